"""What is converted: the same source again, however it is spelled, all of it, and not all of it at once."""

import shutil
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from test_convert import samples, tarred, zipped

import ffrecord
from ffrecord import DatasetWriter, FileReader, MismatchError
from ffrecord.conversion import convert, export
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.errors import ArgumentError, ArgumentTypeError, FFRecordError
from ffrecord.fields import BytesField
from ffrecord.inputs import stores
from ffrecord.inputs.stores import StoreDataset
from ffrecord.reading.store import Store
from ffrecord.sources import RecordIOWriter


def interrupted(source: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that fails when all its shards are finished, and leaves them."""

    def fail(*_: object) -> None:
        raise OSError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(PartDirectory, "publish", fail)
        with pytest.raises(OSError, match="no more"):
            convert(source, out, num_workers=0, samples_per_shard=10)


def test_another_source_does_not_go_on(tmp_path, monkeypatch):
    one = zipped(tmp_path / "one", {f"{i:02}": b"one" for i in range(40)})
    other = zipped(tmp_path / "other", {f"{i:02}": b"two" for i in range(40)})
    interrupted(one, tmp_path / "out", monkeypatch)
    with pytest.raises(MismatchError, match=r"finished shards of an interrupted write .*: fingerprint was "):
        convert(other, tmp_path / "out", num_workers=0, samples_per_shard=10)
    shutil.copy(one, tmp_path / "copied")
    assert convert(tmp_path / "copied", tmp_path / "out", num_workers=0, samples_per_shard=10).kept_shards == 4
    assert {each["data"] for each in samples(tmp_path / "out")} == {b"one"}


def test_packed_archives_however_they_are_named(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "ab":
        tarred(tmp_path / "in" / f"{name}.tar.gz", {f"{name}.x": name.encode()}, "w:gz")
    expected = [{"key": "a.x", "data": b"a"}, {"key": "b.x", "data": b"b"}]
    found = tmp_path / "in"
    for i, source in enumerate(
        (found, f"{found}/*.tar.gz", f"file://{found}", [found / "a.tar.gz", found / "b.tar.gz"])
    ):
        convert(source, tmp_path / f"out{i}", num_workers=0, verify=True)
        assert samples(tmp_path / f"out{i}") == expected


def test_names_in_packed_archives_that_are_no_text(tmp_path):
    source = tarred(tmp_path / "source", {f"{i:03}": b"1" for i in range(70)} | {"a\udcff": b"2"}, "w:gz")
    convert(source, tmp_path / "out", fields={"key": BytesField()}, num_workers=0, verify=True)
    assert samples(tmp_path / "out")[-1] == {"key": b"a\xff", "data": b"2"}
    source = tarred(tmp_path / "source", {"a\udcff.x": b"1", "b.x": b"2"}, "w:gz")
    convert(source, tmp_path / "other", format="webdataset", num_workers=0, verify=True)
    assert [each["__key__"] for each in samples(tmp_path / "other")] == [b"a\xff", b"b"]


@pytest.mark.parametrize(("before", "after"), [(100, 50), (50, 100), (64, 65)])
def test_an_iterable_that_gives_another_number_of_samples_again(tmp_path, before, after):
    class Changing:
        def __iter__(self):
            return iter([{"x": i} for i in range(after if (tmp_path / "out").exists() else before)])

    with pytest.raises(MismatchError, match=f"the source has .* samples, the result has {before}"):
        convert(Changing(), tmp_path / "out", num_workers=0, verify=True)


def test_a_dataset_that_has_grown(tmp_path):
    class Growing:
        def __len__(self) -> int:
            return 150 if (tmp_path / "out").exists() else 100

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"x": index}

    with pytest.raises(MismatchError, match="the source has 150 samples, the result has 100"):
        convert(Growing(), tmp_path / "out", num_workers=0, verify=True)


class Large(Store):
    """Records of 4 MiB, as it says; remembers how many were asked for at once."""

    format = "large"
    most = 0

    def _load(self, positions):
        Large.most = max(Large.most, len(positions))
        return [np.zeros(1, np.uint8) for _ in positions]

    def _sizes(self, positions):
        return np.full(len(positions), 4 << 20)

    def fingerprint(self):
        return "0" * 64


def test_large_samples_are_not_all_in_memory(tmp_path):
    store = Large(["x"], 200)
    StoreDataset(store)
    assert Large.most == 16  # 64 MiB of those that show the columns
    Large.most = 0
    convert(store, tmp_path / "out", num_workers=0, verify=True)
    assert len(samples(tmp_path / "out")) == 200
    assert Large.most == 16


def test_plain_records_of_which_some_are_left_out(tmp_path):
    with ffrecord.FileWriter(tmp_path / "x.ffr", 200) as writer:
        for i in range(200):
            writer.write_one(b"record %3d" % i)
    data = bytearray((tmp_path / "x.ffr").read_bytes())
    data[data.index(b"record 199")] ^= 1
    (tmp_path / "x.ffr").write_bytes(data)
    with (
        FileReader(tmp_path / "x.ffr", on_error="skip") as store,
        pytest.raises(FFRecordError, match=r"failed at sample 199: .*ChecksumError: Sample 199: checksum mismatch"),
    ):
        convert(store, tmp_path / "out", num_workers=0)


def test_a_format_for_what_is_open(tmp_path):
    with (
        ffrecord.open(zipped(tmp_path / "source", {"a": b"1"})) as store,
        pytest.raises(ArgumentTypeError, match="'format' is not an argument for an open store"),
    ):
        convert(store, tmp_path / "out", format="lmdb")


def test_a_module_of_ones_own_that_is_called_datasets(tmp_path, monkeypatch):
    module = types.ModuleType("datasets")

    class Dataset:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"x": index}

    Dataset.__module__ = "datasets"
    monkeypatch.setitem(sys.modules, "datasets", module)
    assert convert(Dataset(), tmp_path / "out", num_workers=0, verify=True).samples == 3


def test_few_chunks_are_read_to_see_the_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of records that come many at a time, as from chunks of RecordIO, fewer are looked at."""
    path = tmp_path / "x.recordio"
    with RecordIOWriter(path, max_chunk_size=10_000) as writer:
        for i in range(2000):
            writer.write(b"%d" % i * 100)
    with ffrecord.open(path) as store:
        assert store.chunks > 64
        assert len(stores.probe_indices(store)) == stores.PROBES
        monkeypatch.setattr(stores, "PROBED_BESIDE", 100_000)
        found = stores.probe_indices(store)
        assert 8 <= len(found) <= 12
        assert found[0] == 0 and found[-1] == 1999
        monkeypatch.setattr(stores, "PROBED_BESIDE", 1)
        assert stores.probe_indices(store) == [0, 1999]


@pytest.mark.parametrize("format", ["ffrecord", "recordio"])
def test_a_reader_is_left_as_it_was(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records are read once only while they are converted."""
    if format == "ffrecord":
        path = tmp_path / "x.ffr"
        with ffrecord.FileWriter(path, 3) as file:
            file.write_many([b"a", b"b", b"c"])
    else:
        path = tmp_path / "x.recordio"
        with RecordIOWriter(path) as writer:
            for record in (b"a", b"b", b"c"):
                writer.write(record)
    with ffrecord.open(path) as store:
        engine = store._table.payloads._engine if format == "recordio" else store._engine
        assert not engine.once
        seen = []
        write = DatasetWriter.from_indexed_dataset

        def watched(self: DatasetWriter, *args: object, **options: object) -> object:
            seen.append(engine.once)
            return write(self, *args, **options)

        monkeypatch.setattr(DatasetWriter, "from_indexed_dataset", watched)
        convert(store, tmp_path / "out", num_workers=0, progress=False)
        assert seen == [True]
        assert not engine.once


# Where the result may be


@pytest.mark.parametrize("spelled", ["in", "in/", "link", "other/../in"])
@pytest.mark.parametrize("write", [convert, export])
def test_a_place_inside_the_source(tmp_path, monkeypatch, spelled, write):
    monkeypatch.chdir(tmp_path)
    for name in ("in/a", "in/b", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "1.jpg").write_bytes(b"jpeg")
    (tmp_path / "link").symlink_to("in")
    kinds = {"format": "folder"} if write is export else {}
    with ffrecord.open("in") as reader:
        tried = [(spelled, "in/out"), (spelled, "in/a/out"), (spelled, "link/out"), (reader, "in/out")]
        for source, out in [*tried, (["other", "in"], "in/out")]:
            with pytest.raises(ArgumentError, match=rf"^{out} is inside {spelled if source is spelled else 'in'}, "):
                write(source, out, **kinds)
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["a", "b"]
    write(spelled, "in-out", **kinds)  # beside it, however alike the names are
    assert len(ffrecord.open("in-out")) > 0
