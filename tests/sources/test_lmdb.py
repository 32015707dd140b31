"""LMDBReader: databases as the library wrote them, in place."""

import os
import pickle
import threading
import time
from pathlib import Path

import children
import numpy as np
import pytest
from lmdb_builders import contents, library, write

from ffrecord.errors import ArgumentError, FFRecordError, FormatError, MissingFileError, TruncatedError
from ffrecord.sources.lmdb.reader import LMDBReader

ITEMS = [(b"k%04d" % i, bytes([i % 251]) * (i * 37 % 6000)) for i in range(400)]


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("lmdb") / "env"
    write(path, ITEMS)
    return path


@pytest.fixture
def reader(environment):
    with LMDBReader(environment) as opened:
        yield opened


def as_bytes(arrays) -> list[bytes]:
    return [array.tobytes() for array in arrays]


def test_all_of_it(reader, environment):
    assert as_bytes(reader) == [value for _, value in ITEMS]
    assert list(reader.keys()) == [key.decode() for key, _ in ITEMS]
    assert (len(reader), reader.format, reader.checksum) == (400, "lmdb", None)
    assert reader.fnames == [str(environment / "data.mdb")]


@pytest.mark.parametrize("io", ["auto", "pread", "direct", "mmap"])
def test_any_order(environment, io):
    with LMDBReader(environment, io=io) as reader:
        indices = [399, 0, -1, 7, 7, 250]
        assert as_bytes(reader.read(indices)) == [ITEMS[i][1] for i in indices]
        assert all(array.flags.writeable for array in reader.read(indices)) == (io != "mmap")
        data, offsets = reader.read_packed([3, 9])
        assert data.tobytes() == ITEMS[3][1] + ITEMS[9][1] and offsets.tolist() == [0, 111, 444]


def test_samples_have_keys(reader):
    sample = reader.samples([5])[0]
    assert sample["key"] == "k0005" and sample["data"].tobytes() == ITEMS[5][1]
    assert reader.keys().find("k0399") == 399


def test_a_single_file(tmp_path):
    file = write(tmp_path / "single.lmdb", ITEMS[:9], subdir=False)
    with LMDBReader(file) as reader, LMDBReader(str(tmp_path)[:-1] + "?/*.lmdb") as globbed:
        assert as_bytes(reader) == as_bytes(globbed) == [value for _, value in ITEMS[:9]]


def test_several_environments(tmp_path):
    for name, items in (("b", ITEMS[:5]), ("a", ITEMS[5:9])):
        write(tmp_path / name, items)
    with LMDBReader([tmp_path / "b", tmp_path / "a"]) as reader:
        assert list(reader.keys()) == [key.decode() for key, _ in ITEMS[:9]]
        assert as_bytes(reader) == [value for _, value in ITEMS[:9]]
        assert reader.locate(6) == (str(tmp_path / "a" / "data.mdb"), 1)


def test_named_databases(tmp_path):
    for name in (b"train", b"te\xffst"):
        write(tmp_path, [(name, name * 3)], name)
    write(tmp_path, [(b"plain", b"in the main one")])
    with LMDBReader(tmp_path) as main:
        assert main.databases == ["te\udcffst", "train"]
        assert as_bytes(main) == [b"in the main one"]
    for name in (b"te\xffst", "te\udcffst", "train"):
        with LMDBReader(tmp_path, database=name) as reader:
            raw = name if isinstance(name, bytes) else name.encode(errors="surrogateescape")
            assert as_bytes(reader) == [raw * 3]
            assert [key.encode(errors="surrogateescape") for key in list(reader.keys())] == [raw]
            with pickle.loads(pickle.dumps(reader)) as again:
                assert as_bytes(again) == [raw * 3]


def test_databases_are_asked_for_by_name(tmp_path):
    write(tmp_path, [(b"a", b"1")], b"train")
    with pytest.raises(
        ArgumentError, match=r"data\.mdb: all records are in named databases; pass one as database=: 'train'"
    ):
        LMDBReader(tmp_path)
    with pytest.raises(ArgumentError, match=r"database is 'test', expected one of 'train'"):
        LMDBReader(tmp_path, database="test")
    with pytest.raises(TypeError, match=r"database is int .*, expected str, bytes or None"):
        LMDBReader(tmp_path, database=3)


def test_an_empty_one(tmp_path):
    write(tmp_path, [])
    with LMDBReader(tmp_path) as reader:
        assert len(reader) == 0 and list(reader) == [] and list(reader.keys()) == []


def test_what_is_no_environment(tmp_path):
    with pytest.raises(MissingFileError, match=r"no data\.mdb in this directory"):
        LMDBReader(tmp_path)
    with pytest.raises(MissingFileError):
        LMDBReader(tmp_path / "nothing")
    (tmp_path / "data.mdb").write_bytes(bytes(10_000))
    with pytest.raises(FormatError, match=r"data\.mdb: it is not an LMDB environment: page 0 has magic 0x00000000"):
        LMDBReader(tmp_path)


def test_the_library_may_have_it_open_too(environment):
    with library().open(str(environment), readonly=True, lock=False), LMDBReader(environment) as reader:
        assert reader.read_one(8).tobytes() == ITEMS[8][1]


# Written meanwhile


def test_a_write_after_opening_is_noticed(tmp_path):
    write(tmp_path, ITEMS[:50])
    with LMDBReader(tmp_path) as reader, LMDBReader(tmp_path, on_error="skip") as skipping:
        batches = iter(reader.iter_batches([[1], [2], [3]], prefetch=1))
        next(batches)
        write(tmp_path, [(b"k0001", b"other")])
        message = r"data\.mdb: the file changed after it was opened: its transaction is 2, was 1"
        calls = [lambda: reader.read([1]), lambda: next(batches), lambda: skipping.samples([0])]
        for call in [*calls, lambda: reader.sample(0), lambda: list(reader), lambda: skipping.read_packed([0])]:
            with pytest.raises(FormatError, match=message):
                call()
        with pytest.raises(FormatError, match=message):
            reader.read_one(3)
        with pytest.raises(IndexError, match="50 >= 50"):
            reader.read_one(50)
        with pytest.raises(FFRecordError, match="differ from those"):
            pickle.loads(pickle.dumps(reader))
        reader.close()
        with pytest.raises(ValueError, match="LMDBReader has been closed"):
            reader.read_one(3)
    with LMDBReader(tmp_path) as reader:
        assert as_bytes(reader)[1] == b"other"


def test_no_batch_mixes_transactions(tmp_path):
    """A writer goes on all the time: what is returned is of one transaction, or nothing is."""
    size, count = 3000, 40
    write(tmp_path, [(b"%d" % i, bytes(size)) for i in range(count)])
    stop = threading.Event()

    def rewrite() -> None:
        with library().open(str(tmp_path), map_size=1 << 28, sync=False) as environment:
            for number in range(1, 10_000):
                with environment.begin(write=True) as transaction:
                    for i in range(count):
                        transaction.put(b"%d" % i, bytes([number % 256]) * size)
                if stop.wait(0.001):
                    break

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = refused = 0
    try:
        end = time.monotonic() + 30
        while seen + refused < 60 or (not (seen and refused) and time.monotonic() < end):
            try:
                with LMDBReader(tmp_path) as reader:
                    for _ in range(3):
                        batch = as_bytes(reader.read(range(count)))
                        assert len(set(batch)) == 1 and len(set(batch[0])) == 1
                        seen += 1
            except FormatError:
                refused += 1
    finally:
        stop.set()
        writer.join()
    assert seen and refused


def test_one_that_was_replaced_is_read_on(tmp_path):
    write(tmp_path / "old", ITEMS[:9])
    write(tmp_path / "new", ITEMS[9:])
    with LMDBReader(tmp_path / "old") as reader:
        os.replace(tmp_path / "new" / "data.mdb", tmp_path / "old" / "data.mdb")
        assert as_bytes(reader) == [value for _, value in ITEMS[:9]]
        os.unlink(tmp_path / "old" / "data.mdb")
        assert reader.read_one(3).tobytes() == ITEMS[3][1]


# Damage


def test_a_value_that_was_cut_off(tmp_path):
    file = write(tmp_path, [(b"a", b"1"), (b"big", bytes(50_000))])
    os.truncate(file, os.path.getsize(file) - 4096)
    with LMDBReader(tmp_path) as reader:
        assert reader.read_one(0).tobytes() == b"1"
        with pytest.raises(TruncatedError, match=r"data\.mdb: key 'big'"):
            reader.read([0, 1])
        with LMDBReader(tmp_path, on_error="skip") as skipping:
            assert as_bytes(skipping.read([0, 1])) == [b"1"]


# The index, kept


def test_a_kept_index(environment, tmp_path):
    for _ in range(2):
        with LMDBReader(environment, index_cache=tmp_path) as reader:
            assert as_bytes(reader.read([4, 390])) == [ITEMS[4][1], ITEMS[390][1]]
            assert reader.keys()[390] == "k0390"
    assert len(list(tmp_path.iterdir())) == 1
    with pickle.loads(pickle.dumps(reader)) as again:
        assert len(again) == 400


def test_a_kept_index_of_an_earlier_transaction_is_not_used(tmp_path):
    for value in (b"1", b"2", b"3"):
        file = write(tmp_path / "env", [*ITEMS[:20], (b"k0003", value)])
    with LMDBReader(tmp_path / "env", index_cache=tmp_path / "cache"):
        before = os.stat(file)
    write(tmp_path / "env", [(b"k0003", b"other")])
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a mapping that was not synced leaves it
    assert os.path.getsize(file) == before.st_size
    with LMDBReader(tmp_path / "env", index_cache=tmp_path / "cache") as reader:
        assert as_bytes(reader) == [value for _, value in contents(file)]


# Processes and threads


def test_forks_and_threads(reader):
    reader.read([0])
    pid = os.fork()
    if not pid:
        os._exit(as_bytes(reader.read([7, 9])) != [ITEMS[7][1], ITEMS[9][1]])
    assert os.waitpid(pid, 0)[1] == 0
    wrong = []

    def work(seed: int) -> None:
        indices = np.random.default_rng(seed).integers(0, 400, 100)
        wrong.extend(i for i, got in zip(indices, reader.read(indices), strict=True) if got.tobytes() != ITEMS[i][1])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_descriptors_are_given_back(environment):
    before = children.open_files(collect=True)
    for _ in range(20):
        with LMDBReader(environment) as reader:
            reader.read([1, 2])
        with pytest.raises(ArgumentError):
            LMDBReader(environment, database="x")
    assert children.open_files() == before
