"""What holds for every format alike."""

import itertools
import multiprocessing
import pickle
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import children
import every_format
import numpy as np
import pytest
from every_format import FORMATS, NAMES, RECORDS, SEEDS

import ffrecord
from ffrecord.errors import ArgumentError, FFRecordError, FormatError, MissingNamesError
from ffrecord.reading.store import Store
from ffrecord.sources.registry import FORMATS as NAMED
from ffrecord.sources.registry import READERS


class Case(NamedTuple):
    """A store to be opened, and what is in it: `tell` makes what is compared with `told` of each sample."""

    path: Path
    options: dict[str, Any]
    format: str
    records: list[bytes] | None
    told: list[Any]
    tell: Callable[[Any], Any]


@pytest.fixture(params=[*FORMATS, *SEEDS])
def case(request, tmp_path):
    if request.param in FORMATS:
        format, make, options = FORMATS[request.param]
        return Case(make(tmp_path), options, format, RECORDS, every_format.samples(format), every_format.of_plain)
    format, name, options, tell = SEEDS[request.param]
    source = every_format.GOLDEN / name
    copied = tmp_path / name
    shutil.copytree(source, copied) if source.is_dir() else shutil.copy(source, copied)
    return Case(copied, options, format, None, every_format.told(request.param), tell)


@pytest.fixture
def store(case):
    with ffrecord.open(case.path, **case.options) as opened:
        yield opened


@pytest.fixture
def records(case, store):
    """The bytes of each record: those that were written, or else those that make the samples that were."""
    if case.records is not None:
        return case.records
    arrays = [store.read_one(index) for index in range(store.n)]
    assert [case.tell(sample) for sample in store._decode(np.arange(store.n), arrays)] == case.told
    return as_bytes(arrays)


def test_sizes_of_records(store, records):
    wanted = [len(record) for record in records]
    indices = [-1, 0, *range(store.n)]
    assert store.record_sizes(indices).tolist() == [wanted[index] for index in indices]
    assert store.record_sizes([]).tolist() == []
    with pytest.raises(IndexError):
        store.record_sizes([store.n])


def as_bytes(arrays):
    return [bytes(array) for array in arrays]


def test_opened_as_a_store(case, store):
    assert isinstance(store, Store) and store.format == case.format
    assert store.n == len(store) == len(case.told)
    assert store.checksum in ("CRC-32", "CRC-32C", None)
    assert not store.closed and str(store.n) in repr(store)


def test_read_in_any_order(store, records):
    assert as_bytes(store.read(range(store.n))) == records
    order = [-1, 0, 2, 2, store.n - 1, 1]
    assert as_bytes(store.read(order)) == [records[index] for index in order]
    assert as_bytes(store.read(np.array(order))) == [records[index] for index in order]
    assert store.read([]) == []
    first, second = store.read([2, 2])
    first[:] = 0
    assert bytes(second) == records[2] and bytes(store.read_one(2)) == records[2]


def test_read_packed(store, records):
    order = [3, 0, -1]
    data, offsets = store.read_packed(order)
    assert data.dtype == np.uint8 and offsets.dtype == np.int64 and len(offsets) == 4
    assert [bytes(data[low:high]) for low, high in itertools.pairwise(offsets)] == [records[index] for index in order]
    out = np.zeros(len(data) + 5, np.uint8)
    again, _ = store.read_packed(order, out)
    assert again.base is out or np.shares_memory(again, out)
    assert np.array_equal(out[: len(data)], data)


def test_sequences(store, records):
    assert as_bytes(store) == records
    assert as_bytes(store[1:3]) == records[1:3] and as_bytes(store[::-2]) == records[::-2]
    assert as_bytes(store.read_range(1, store.n)) == records[1:]
    batches = [[0, 1], [-1], [2, 0, 2]]
    assert [as_bytes(batch) for batch in store.iter_batches(batches)] == [
        [records[index] for index in batch] for batch in batches
    ]


def test_indices_out_of_range(store):
    for index in (store.n, -store.n - 1, 10**15):
        with pytest.raises(IndexError, match=str(index)):
            store.read([0, index])
        with pytest.raises(IndexError, match=str(index)):
            store.read_one(index)
    with pytest.raises(TypeError):
        store.read([0.5])


def test_names(case, store):
    expected = every_format.names(case.format, case.path)
    if expected is None:
        with pytest.raises(MissingNamesError, match=store.format):
            store.keys()
        return
    names = store.keys()
    assert list(names) == expected and [names[index] for index in range(store.n)] == expected
    assert len(names) == store.n and names[-1] == expected[-1]


def test_samples(case, store):
    order = [*range(store.n), -1, 0]
    assert [case.tell(sample) for sample in store.samples(order)] == [case.told[index] for index in order]
    assert [case.tell(store.sample(index)) for index in order] == [case.told[index] for index in order]
    assert store.samples([]) == []


def test_closed(case, store):
    store.close()
    store.close()
    assert store.closed
    with pytest.raises(ValueError, match="has been closed"):
        store.read([0])


def test_pickled(case, store, records):
    with pickle.loads(pickle.dumps(store)) as copy:
        assert type(copy) is type(store) and copy.n == store.n
        assert as_bytes(copy.read([1, 0])) == records[1::-1]


def test_changed_files_are_noticed_by_copies(case, store):
    if store.format == "image folder":
        pytest.skip("is known by the names of its files, which would take long to be asked for more")
    pickled = pickle.dumps(store)
    path = case.path
    if path.is_dir():
        path = max((each for each in path.rglob("*") if each.is_file()), key=lambda each: each.stat().st_size)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises((FFRecordError, OSError)):
        pickle.loads(pickled).read(range(store.n))


def child(store, expected, answer):
    answer.send([as_bytes(store.read([2, 0, 1])) == expected for _ in range(3)])


def test_forked(store, records):
    store.read([0])
    answers, answer = multiprocessing.Pipe(False)
    expected = [records[2], records[0], records[1]]
    process = multiprocessing.get_context("fork").Process(target=child, args=(store, expected, answer))
    process.start()
    assert answers.poll(20) and answers.recv() == [True] * 3
    process.join(20)
    assert process.exitcode == 0 and as_bytes(store.read([2, 0, 1])) == expected


def test_threads(store, records):
    wrong = []

    def read(seed):
        random = np.random.default_rng(seed)
        for _ in range(15):
            order = random.integers(-store.n, store.n, 5)
            if as_bytes(store.read(order)) != [records[index] for index in order]:
                wrong.append(order)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_stays_open(case):
    path, options = case.path, case.options
    ffrecord.open(path, **options).close()
    before = len(children.open_files(collect=True))
    for _ in range(3):
        with ffrecord.open(path, **options) as opened:
            opened.read([0, -1])
    assert len(children.open_files()) == before


def test_several_files_are_one_store(tmp_path):
    for format in ("ffrecord", "zip", "tar", "tfrecord", "recordio"):
        paths = []
        for name in ("one", "two"):
            (tmp_path / format / name).mkdir(parents=True)
            paths.append(FORMATS[format][1](tmp_path / format / name))
        with ffrecord.open(paths) as store:
            assert store.n == 2 * len(RECORDS) and as_bytes(store) == RECORDS * 2, format
        with ffrecord.open(str(tmp_path / format / "*" / "*")) as store:
            assert as_bytes(store) == RECORDS * 2, format


def test_formats_are_told_or_found(tmp_path):
    path = FORMATS["tar"][1](tmp_path)
    assert ffrecord.open(path).format == ffrecord.open(path, "tar").format == "tar"
    with ffrecord.open(f"file://{path}") as store:
        assert as_bytes(store) == RECORDS and list(store.keys()) == NAMES
    with pytest.raises(FormatError, match=r"records\.tar"):
        ffrecord.open(path, "zip")
    with pytest.raises(ArgumentError, match="format is 'rar', expected one of ffrecord, packed folder, zip"):
        ffrecord.open(path, "rar")
    with pytest.raises(TypeError, match="no_such_option"):
        ffrecord.open(path, no_such_option=1)
    with pytest.raises(ArgumentError, match="expected one of this machine"):
        ffrecord.open(f"file://elsewhere{path}")
    with pytest.raises(ArgumentError, match=r"copy it to this machine; ffrecord\.convert makes"):
        ffrecord.open("memory://bucket/data.tar")
    with pytest.raises(ArgumentError, match="nothing to open"):
        ffrecord.open([])
    with pytest.raises(FileNotFoundError, match=r"\*\.nothing"):
        ffrecord.open(str(tmp_path / "*.nothing"))


def test_parquet_is_for_converting(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1....PAR1")
    with pytest.raises(FormatError, match=r"ffrecord\.convert"):
        ffrecord.open(tmp_path / "x.parquet")


def test_every_format_is_tried_here():
    tried = {format for format, *_ in (*FORMATS.values(), *SEEDS.values())}
    assert set(NAMED) == set(READERS) == tried | {"webdataset"}


def test_bad_records(store):
    assert list(store.bad_records()) == []
    assert list(store.bad_records(store.n, store.n)) == []
    for wrong in ((0, store.n + 1), (-1, 2), (2, 1)):
        with pytest.raises(IndexError):
            store.bad_records(*wrong)
