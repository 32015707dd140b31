"""Readers of URLs give what readers of the same files give, by few requests."""

import pickle
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import builders
import numpy as np
import pytest
import remote_datasets
from servers import Nginx, nginx
from test_remote_client import forked

import ffrecord
from ffrecord import ChecksumError, FileReader, FormatError
from ffrecord.errors import (
    ArgumentError,
    ChangedError,
    ClosedError,
    MissingFileError,
    RemoteError,
    RemotePermissionError,
    SampleIndexError,
)
from ffrecord.format import manifest

pytest.importorskip("obstore", reason="obstore is not installed")
DATA = remote_datasets.samples()
COLUMNS = builders.records([48] * 90, seed=3)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("root")
    remote_datasets.write_dataset(directory / "set", DATA)
    remote_datasets.write_dataset(directory / "columns", COLUMNS, 40)
    builders.write_samples(directory / "one.ffr", DATA[:60])
    builders.write_samples(directory / "many.ffr", builders.records([1] * 9000))
    builders.write_samples(directory / "large.ffr", builders.records([20_000_001, 3]))
    (directory / "empty.ffr").write_bytes(b"")
    (directory / "no.ffr").write_bytes(b"nothing of the kind")
    (directory / "login").mkdir()
    (directory / "login" / "dataset.json").write_bytes(b"\n<!doctype html><title>Log in</title>")
    return directory


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    with nginx(root, directory=tmp_path_factory.mktemp("served") / "nginx") as running:
        yield running


def test_over_http(root: Path, served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader, FileReader(root / "set") as local:
        remote_datasets.check_all(reader, DATA, local)


def test_bytes_that_are_only_checked_count(root: Path, served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader, FileReader(root / "set") as local:
        for each in (reader, local):
            assert list(each.bad_records()) == []
            assert each.stats().bytes == sum(map(len, DATA))


def test_records_of_columns_count(served: Nginx) -> None:
    """And not the columns, of which there are fewer."""
    with FileReader(f"{served.url}/columns") as reader:
        reader.read_columns([3, 50, 7, 88, 20], 48, [(0, 8), (8, 40)])
        assert reader.stats().records == 5
        assert reader.stats().bytes == 5 * 48


def test_by_fsspec(root: Path, served: Nginx) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    options = {"backend": "fsspec"}
    with FileReader(f"{served.url}/set/", storage_options=options) as reader, FileReader(root / "set") as local:
        remote_datasets.check_all(reader, DATA, local)
    with FileReader(f"{served.url}/one.ffr", storage_options=options) as reader:
        assert builders.read_all(reader) == DATA[:60]


def test_in_memory_of_fsspec(root: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    memory = fsspec.filesystem("memory")
    for path in (root / "set").iterdir():
        memory.pipe_file(f"/x/set/{path.name}", path.read_bytes())
    try:
        with FileReader("memory://x/set") as reader, FileReader(root / "set") as local:
            remote_datasets.check_all(reader, DATA, local)
    finally:
        memory.rm("/x", recursive=True)


def test_as_files_of_this_machine(root: Path) -> None:
    with FileReader(f"file://{root}/set") as reader, ffrecord.open(f"file://localhost{root}/one.ffr") as one:
        assert builders.read_all(reader) == DATA
        assert len(one) == 60
    with pytest.raises(ArgumentError, match=r"names a file of elsewhere"):
        FileReader("file://elsewhere/set")


def test_files_without_a_manifest(served: Nginx) -> None:
    with served.counted() as requests, FileReader(f"{served.url}/one.ffr") as reader:
        assert len(reader) == 60
    assert requests == ["GET /one.ffr 206"]
    with served.counted() as requests, FileReader(f"{served.url}/many.ffr") as reader:
        assert builders.read_all(reader) == builders.records([1] * 9000)
    assert requests == ["GET /many.ffr 206"] * 3  # its tables do not come with its header
    with FileReader([f"{served.url}/one.ffr", f"{served.url}/set", f"{served.url}/one.ffr"]) as reader:
        assert builders.read_all(reader) == DATA[:60] + DATA + DATA[:60]


def test_what_opening_asks_for(served: Nginx) -> None:
    with served.counted() as requests:
        readers = [FileReader(f"{served.url}/set{end}") for end in ("", "/", "/dataset.json", "?x=y")]
    assert [request.partition("?")[0] for request in requests[:3]] == ["GET /set/dataset.json 200"] * 3
    assert len(requests) == 4
    assert {reader.fingerprint() for reader in readers} == {readers[0].fingerprint()}


def test_neighbours_together_and_none_twice(served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader:
        with served.counted() as requests:
            reader.read([5, 0])
        assert requests == ["GET /set/part%20000.ffr 206"] * 2  # its tables, then both
        with served.counted() as requests:
            reader.read([7, 6, 5, 7, 7, 5, -len(DATA) + 6])
        assert requests == ["GET /set/part%20000.ffr 206"]
        with served.counted() as requests:
            reader.read([100, 400])
        assert len(requests) == 4
        before = reader.stats().requests
        with served.counted() as requests:
            reader.read([100, 400, 100, 400])
        assert sorted(requests) == ["GET /set/part%20002.ffr 206", "GET /set/part%20006.ffr 206"]
        assert reader.stats().requests == before + 2


def test_a_record_that_takes_several_requests(served: Nginx) -> None:
    with FileReader(f"{served.url}/large.ffr") as reader:
        with served.counted() as requests:
            first, second = reader.read([0, 1])
        assert len(requests) == 4
        assert [first.tobytes(), second.tobytes()] == builders.records([20_000_001, 3])
        assert reader.read([0, 0])[1].tobytes() == first.tobytes()


def test_columns(served: Nginx) -> None:
    slots = [(0, 8), (40, 8), (4, 20)]
    with FileReader(f"{served.url}/columns") as reader:
        some = [3, 88, 3, 41, 0]
        columns = reader.read_columns(some, 48, slots)
        wanted = remote_datasets.columns_of([COLUMNS[i] for i in some], slots)
        assert [[row.tobytes() for row in column] for column in columns] == wanted
        room = [np.empty(len(some) * size, np.uint8) for _, size in slots]
        columns = reader.read_columns(some, 48, slots, room)
        assert [[row.tobytes() for row in column] for column in columns] == wanted
        batches = [range(50), range(50, 90)]
        found = [row.tobytes() for column in reader.iter_columns(batches, 48, [(1, 3)]) for row in column[0]]
        assert found == [sample[1:4] for sample in COLUMNS]
    with FileReader(f"{served.url}/set") as reader, pytest.raises(FormatError, match=r"Sample 1: .*expected 48"):
        reader.read_columns([1], 48, slots)


def test_stats(served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader:
        reader.read([1, 2])
        list(reader.iter_batches([[1, 2, 3]]))
        stats = reader.stats()
        assert (stats.batches, stats.records, stats.skipped, stats.open_files) == (2, 5, 0, 0)
        assert stats.bytes == sum(map(len, [DATA[i] for i in (1, 2, 1, 2, 3)]))
        assert stats.requests == 4  # dataset.json, tables, and a request for each batch
        assert stats.io_seconds > 0 < stats.crc_seconds
        assert stats.engines == {f"{served.url}/set": "requests"}


def test_indices_and_life(served: Nginx) -> None:
    reader = FileReader(f"{served.url}/set")
    with pytest.raises(SampleIndexError, match=r"index >= number of samples"):
        reader.read([0, len(DATA)])
    with pytest.raises(TypeError):
        reader.read(["a"])  # type: ignore[list-item]
    batches = reader.iter_batches([[0], [1]])
    next(batches)
    reader.close()
    reader.close()
    assert reader.closed
    for call in (lambda: reader.read([0]), lambda: next(batches), lambda: reader.record_sizes([0])):
        with pytest.raises(ClosedError, match=r"has been closed"):
            call()


def test_many_threads(served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader:
        wrong: list[object] = []

        def read(seed: int) -> None:
            random = np.random.default_rng(seed)
            for _ in range(5):
                some = random.integers(0, len(DATA), 20).tolist()
                if [array.tobytes() for array in reader.read(some)] != [DATA[i] for i in some]:
                    wrong.append(some)

        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert wrong == []
        assert reader.stats().batches == 40


def test_after_a_fork(served: Nginx) -> None:
    with FileReader(f"{served.url}/set") as reader:
        batches = reader.iter_batches([[i] for i in range(6)])
        assert next(batches)[0].tobytes() == DATA[0]

        def child() -> None:
            assert builders.read_all(reader) == DATA
            assert [batch[0].tobytes() for batch in batches] == DATA[1:6]
            assert reader.stats().requests > 0

        assert forked(child) == 0
        assert [batch[0].tobytes() for batch in batches] == DATA[1:6]


def test_pickled_by_url(served: Nginx) -> None:
    host = served.url.partition("://")[2]
    url = f"http://user:secret-word@{host}/basic/set"
    with FileReader(url, on_error="skip", storage_options={"max_requests": 5}) as reader:
        assert "secret" not in f"{reader!r} {reader.fnames}"
        with served.counted() as requests, pickle.loads(pickle.dumps(reader)) as again:
            assert again.fnames == reader.fnames
        assert requests == ["GET /basic/set/dataset.json 200"]
        assert builders.read_all(pickle.loads(pickle.dumps(reader))) == DATA


def test_a_dataset_that_grew_is_pickled_as_it_was(tmp_path: Path, served: Nginx, root: Path) -> None:
    place = root / "growing"
    remote_datasets.write_dataset(place, DATA[:140])
    with FileReader(f"{served.url}/growing") as reader:
        pickled = pickle.dumps(reader)
        remote_datasets.write_dataset(tmp_path / "larger", DATA[:210])
        for path in (tmp_path / "larger").iterdir():
            shutil.move(path, place / path.name)
        assert builders.read_all(pickle.loads(pickled)) == DATA[:140]
        remote_datasets.write_dataset(tmp_path / "other", DATA[1:141])
        for path in (tmp_path / "other").iterdir():
            shutil.move(path, place / path.name)
        with pytest.raises(ffrecord.FFRecordError, match=r"differ from those that this reader was pickled with"):
            pickle.loads(pickled)


def test_one_of_several_that_grew_is_pickled_as_it_was(tmp_path: Path, served: Nginx, root: Path) -> None:
    """And not the last: those after it stay where they are."""
    place = remote_datasets.write_dataset(root / "first", DATA[:140])
    given = [f"{served.url}/first", f"{served.url}/one.ffr", f"{served.url}/columns"]
    with FileReader(given) as reader:
        pickled = pickle.dumps(reader)
    remote_datasets.write_dataset(tmp_path / "larger", DATA[:280])
    for path in (tmp_path / "larger").iterdir():
        shutil.move(path, place / path.name)
    with pickle.loads(pickled) as again:
        assert builders.read_all(again) == DATA[:140] + DATA[:60] + COLUMNS
        assert again.extension is None
        assert pickle.loads(pickle.dumps(again)).fingerprint() == again.fingerprint()


# What is wrong


def test_what_there_is_not(served: Nginx) -> None:
    with pytest.raises(MissingFileError, match=r"/nothing/dataset.json does not exist; expected the URL of a dataset"):
        FileReader(f"{served.url}/nothing")
    with pytest.raises(MissingFileError, match=r"/nothing.ffr does not exist"):
        FileReader(f"{served.url}/nothing.ffr")
    with pytest.raises(RemotePermissionError, match=r"access denied"):
        FileReader(f"{served.url}/denied/set")
    with pytest.raises(FormatError, match=r"/login/dataset.json: .*: the server sent a web page, such as"):
        FileReader(f"{served.url}/login")
    with pytest.raises(ArgumentError, match=r"patterns work on this machine only"):
        FileReader(f"{served.url}/set/*.ffr")
    with pytest.raises(ArgumentError, match=r"is a URL, .*one.ffr is on this machine; open them separately"):
        FileReader([f"{served.url}/set", "one.ffr"])
    with pytest.raises(ArgumentError, match=r"io is 'mmap'"):
        FileReader(f"{served.url}/set", io="mmap")
    with pytest.raises(ArgumentError, match=r"cache_limit needs cache_dir"):
        FileReader(f"{served.url}/set", cache_limit="1GB")
    with pytest.raises(ArgumentError, match=r"tables_memory is 'x'"):
        FileReader(f"{served.url}/set", storage_options={"tables_memory": "x"})


def test_a_write_that_has_not_ended(root: Path, served: Nginx) -> None:
    (root / "half").mkdir()
    (root / "half" / ".dataset.part").write_text("{}")
    with pytest.raises(MissingFileError, match=r"a write of it was interrupted, or is going on"):
        FileReader(f"{served.url}/half")


def test_no_such_files(served: Nginx) -> None:
    with pytest.raises(FormatError, match=r"empty.ffr: it is unfinished, or not a .ffr file: it has 0 bytes"):
        FileReader(f"{served.url}/empty.ffr")
    with pytest.raises(FormatError, match=r"no.ffr: it is not an .ffr file: it begins with"):
        FileReader(f"{served.url}/no.ffr")


def test_other_formats(served: Nginx) -> None:
    with ffrecord.open(f"{served.url}/set") as reader:
        assert isinstance(reader, FileReader)
    for name, format in (("a.zip", None), ("a.tar?x=secret", None), ("set", "tfrecord")):
        with pytest.raises(ArgumentError, match=r"copy it to this machine; ffrecord\.convert makes") as raised:
            ffrecord.open(f"{served.url}/{name}", format)
        assert "secret" not in str(raised.value)


def test_a_server_without_ranges(served: Nginx) -> None:
    with FileReader(f"{served.url}/whole/set") as reader, pytest.raises(RemoteError, match=r"HTTP ranges.* copy the"):
        reader.read([0])


@pytest.fixture
def place(root: Path) -> Iterator[Path]:
    """A dataset that a test may damage."""
    directory = remote_datasets.write_dataset(root / "damaged", DATA[:200])
    yield directory
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


def test_damaged_records(place: Path, served: Nginx) -> None:
    with FileReader(place) as local:
        shard, number = local.locate(150)
    offset = FileReader(shard).get_offsets(0)[number]
    data = bytearray(Path(shard).read_bytes())
    data[offset + 5] ^= 1
    Path(shard).write_bytes(data)
    with FileReader(f"{served.url}/damaged") as reader:
        reader.read([148, 149, 151])
        with (
            served.counted() as requests,
            pytest.raises(ChecksumError, match=r"Sample 150: .*damaged/part%20003.ffr") as told,
        ):
            reader.read([150])
        assert len(requests) == 3  # twice the record, and the tables, to see whether they are those of another file
        assert (told.value.index, told.value.path) == (150, f"{served.url}/damaged/part%20003.ffr")
        assert [index for index, _ in reader.bad_records()] == [150]
    with FileReader(f"{served.url}/damaged", on_error="skip") as reader:
        assert [array.tobytes() for array in reader.read([149, 150, 151])] == [DATA[149], DATA[151]]
        assert reader.skipped == 1
    with FileReader(f"{served.url}/damaged", check_data=False) as reader:
        assert len(reader.read([150])) == 1


def test_damaged_tables(place: Path, served: Nginx) -> None:
    data = bytearray((place / "part 000.ffr").read_bytes())
    data[40] ^= 1
    (place / "part 000.ffr").write_bytes(data)
    with FileReader(f"{served.url}/damaged", on_error="skip") as reader:
        with pytest.raises(ChecksumError, match=r"part%20000.ffr: checksum of metadata mismatch"):
            reader.read([3])
        assert reader.read([80])[0].tobytes() == DATA[80]  # another shard


def replace(path: Path, data: list[bytes]) -> None:
    path.unlink()
    builders.write_samples(path, data)


def test_an_object_that_was_replaced(place: Path, served: Nginx) -> None:
    shard = place / "part 000.ffr"
    with FileReader(f"{served.url}/damaged", on_error="skip") as reader:
        assert [array.tobytes() for array in reader.read([0, 2])] == [b"", DATA[2]]
        replace(shard, DATA[1:71])
        with pytest.raises(ChangedError, match=r"part%20000.ffr: the file was replaced or removed after it was opened"):
            reader.read([2])
        replace(shard, DATA[:70])  # as it was, with another etag
        shard.touch()
        assert reader.read([2])[0].tobytes() == DATA[2]
        shard.unlink()
        with pytest.raises(MissingFileError, match=r"Sample 1: .*part%20000.ffr does not exist"):
            reader.read([1])
    with FileReader(f"{served.url}/damaged") as reader, pytest.raises(MissingFileError):
        reader.read([5])
    builders.write_samples(shard, DATA[:69])
    with FileReader(f"{served.url}/damaged") as reader, pytest.raises(ChangedError, match=r"\(samples, size"):
        reader.read([5])


def test_ten_thousand_shards(root: Path, served: Nginx) -> None:
    """Are opened by one request, and read by no more than two for each record."""
    place, count, samples = root / "thousands", 10_000, builders.records([50] * 5)
    place.mkdir()
    shards = []
    for number, sample in enumerate(samples):
        builders.write_samples(place / f"{number}.ffr", [sample])
    facts = [FileReader(place / f"{number}.ffr")._files[0] for number in range(5)]
    for number in range(count):
        if number >= 5:
            (place / f"{number}.ffr").hardlink_to(place / f"{number % 5}.ffr")
        opened = facts[number % 5]
        shards.append(manifest.Shard(f"{number}.ffr", 1, opened.size, opened.crc))
    manifest.save(str(place), manifest.build(shards))
    with served.counted() as requests, FileReader(f"{served.url}/thousands") as reader:
        assert len(reader) == count
        assert reader.locate(9_999) == (f"{served.url}/thousands/9999.ffr", 0)
    assert requests == ["GET /thousands/dataset.json 200"]
    with served.counted() as requests, FileReader(f"{served.url}/thousands") as reader:
        some = [9_999, 3, 5_000, 9_998, 3]
        assert [array.tobytes() for array in reader.read(some)] == [samples[i % 5] for i in some]
    assert len(requests) == 1 + 2 * 4


def test_tables_that_have_no_room_are_fetched_again(served: Nginx) -> None:
    with FileReader(f"{served.url}/set", storage_options={"tables_memory": 0}) as reader:
        assert reader.read([400, 1])[1].tobytes() == DATA[1]
        with served.counted() as requests:
            reader.read([400, 401, 1])
        assert len(requests) in (3, 4)  # of one of both shards they are still here
