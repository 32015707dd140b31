"""Loaders and datasets over stores of any format: their samples, put together."""

import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from every_format import FORMATS, RECORDS
from spans import SpanReader, table
from torch_builders import WORKERS_ANYWHERE

import ffrecord
from ffrecord import ChecksumError, FFRecordError, FormatError
from ffrecord.reading.store import Store
from ffrecord.sources import FixedFeature, TFRecordWriter, VarFeature, ZipReader, encode_example
from ffrecord.torch import Dataset, Loader, Sampler, Subset

pytestmark = WORKERS_ANYWHERE
COUNT = 20
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]
in_every_way = pytest.mark.parametrize("how", MAKERS, ids=str)


class Objects(Store):
    """A file of JSON lines; sample i is line i."""

    format = "JSON lines"

    def __init__(self, path, check_data=True, *, on_error="raise"):
        self.path = path[0] if isinstance(path, list) else path
        with open(self.path, "rb") as file:
            self.lines = file.read().splitlines()
        super().__init__([self.path], len(self.lines), check_data, on_error=on_error)

    def _load(self, positions):
        return [np.frombuffer(self.lines[position], np.uint8).copy() for position in positions.tolist()]

    def _decode(self, positions, records):
        return [self._one(*each) for each in zip(positions.tolist(), records, strict=True)]

    def _one(self, index, record):
        try:
            found = json.loads(record.tobytes())
        except ValueError as error:
            raise FormatError(f"line {index}: {error}") from None
        return {"index": index, "text": found["text"], "values": np.array(found["values"], np.float32)}


def written(path, lines) -> str:
    path.write_text("\n".join(lines))
    return str(path)


def line(i: int) -> str:
    return json.dumps({"text": f"line {i}", "values": [i, i + 0.5]})


@pytest.fixture
def store(tmp_path):
    with Objects(written(tmp_path / "a.jsonl", map(line, range(COUNT)))) as opened:
        yield opened


@pytest.fixture
def broken(tmp_path):
    """Line 7 is none."""
    lines = [line(i) if i != 7 else "{" for i in range(COUNT)]
    with Objects(written(tmp_path / "b.jsonl", lines)) as opened:
        yield opened


@in_every_way
def test_loader(store, how):
    seen = []
    for batch in Loader(store, 6, seed=3, **how):
        assert list(batch) == ["index", "text", "values"]
        assert batch["text"] == [f"line {i}" for i in batch["index"].tolist()]
        assert batch["values"].dtype == torch.float32
        assert batch["values"].tolist() == [[i, i + 0.5] for i in batch["index"].tolist()]
        seen += batch["index"].tolist()
    assert sorted(seen) == list(range(COUNT))
    assert seen != sorted(seen)


@in_every_way
def test_some_columns_and_functions(store, how):
    loader = Loader(store, 5, "sequential", fields=["values"], **how)
    assert [list(batch) for batch in loader] == [["values"]] * 4
    loader = Loader(store, 5, "sequential", transform=lambda sample: sample["index"] * 2, **how)
    assert torch.cat(list(loader)).tolist() == list(range(0, 2 * COUNT, 2))


@in_every_way
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_samples_that_cannot_be_decoded(broken, how, on_error):
    loader = Loader(broken, 5, "sequential", on_error=on_error, **how)
    if on_error == "raise":
        with pytest.raises(FormatError, match=r"Sample 7: .*b\.jsonl: sample 7: line 7"):
            list(loader)
        return
    found = [i for batch in loader for i in batch["index"].tolist()]
    others = [i for i in range(COUNT) if i != 7]
    assert found == others if on_error == "skip" else (len(found) == COUNT and set(found) == set(others))
    assert loader.stats().skipped == 1


def test_going_on(store):
    loader = Loader(store, 4, seed=1)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch["index"].tolist() for batch in batches]
    again = Loader(store, 4, seed=1)
    again.load_state_dict(state)
    assert [batch["index"].tolist() for batch in again] == rest


def test_what_varies_is_a_list_in_every_batch(tmp_path):
    """Also in those whose records happen to be of one size; nested values are lists, too."""
    one = table(tmp_path / "a.bin", [(0, 10), (10, 10), (20, 10), (30, 11)])
    with SpanReader([one]) as reader:
        assert [type(batch["data"]) for size in (1, 2, 4) for batch in Loader(reader, size)] == [list] * 7
        padded = next(iter(Loader(reader, 2, "sequential", ragged="padded")))["data"]
        assert type(padded).__name__ == "Padded"

    class Nested(Objects):
        def _one(self, index, record):
            return {"objects": {f"object {index}": [1] * index}, "pair": (index, index)}

    with Nested(written(tmp_path / "a.jsonl", map(line, range(3)))) as store:
        batch = next(iter(Loader(store, 3, "sequential")))
        assert batch == {
            "objects": [{"object 0": []}, {"object 1": [1]}, {"object 2": [1, 1]}],
            "pair": [(0, 0), (1, 1), (2, 2)],
        }


def test_samples_that_differ(tmp_path):
    class Mixed(Objects):
        def _one(self, index, record):
            return {"a": 1} if index % 2 else {"b": 2}

    with (
        Mixed(written(tmp_path / "a.jsonl", map(line, range(4)))) as store,
        pytest.raises(FormatError, match=r"sample \d \(.*a\.jsonl\): it (lacks|has) column '[ab]', which the first"),
    ):
        list(Loader(store, 4))
    with (
        Objects(written(tmp_path / "a.jsonl", map(line, range(4)))) as store,
        pytest.raises(FormatError, match="no column 'label' in a sample of JSON lines, only index, text, values"),
    ):
        list(Loader(store, 4, fields=["label"]))


@pytest.mark.parametrize("fewer", [0, 1])
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_columns_that_some_samples_have(tmp_path, fewer, on_error):
    """Which of them comes first does not matter; to say which columns are wanted helps."""

    class Mixed(Objects):
        def _one(self, index, record):
            return {"index": index} if index % 2 == fewer else {"index": index, "more": 1}

    here, there = ("has", "lacks") if fewer == 0 else ("lacks", "has")
    expected = rf"sample 1 \(.*a\.jsonl\): it {here} column 'more', which the first of the batch {there}"
    with Mixed(written(tmp_path / "a.jsonl", map(line, range(4)))) as store:
        with pytest.raises(FormatError, match=expected):
            list(Loader(store, 4, "sequential", on_error=on_error))
        (batch,) = Loader(store, 4, "sequential", fields=["index"])
        assert batch["index"].tolist() == [0, 1, 2, 3]


@in_every_way
@pytest.mark.parametrize("options", [{}, {"transform": lambda sample: sample["index"]}], ids=["plain", "transform"])
def test_batches_of_which_nothing_is_left(broken, how, options):
    loader = Loader(broken, 1, "sequential", on_error="skip", **options, **how)
    assert len(list(loader)) == COUNT - 1
    assert loader.stats().skipped == 1


def test_a_column_that_nothing_has_is_skipped_everywhere(store, caplog):
    with pytest.raises(
        FFRecordError, match="all samples of epoch 0 were left out, so there is no batch; the first was"
    ):
        list(Loader(store, 5, fields=["typo"], on_error="skip"))
    assert "no column 'typo' in a sample of JSON lines, only index, text, values" in caplog.text


@pytest.mark.parametrize("kind", [each for each in FORMATS if each != "ffrecord"])
def test_batches_are_the_samples_in_columns(tmp_path, kind):
    """Of every format whose records are a column as they are: by name, in order, each value in memory of its own."""
    name, make, options = FORMATS[kind]
    with ffrecord.open(make(tmp_path), **options) as reader:
        samples = reader.samples(range(reader.n))
        loader = Loader(reader, 4, "sequential", num_threads=2)
        batches = list(loader)
        assert loader.stats().skipped == 0
        for first, batch in zip(range(0, reader.n, 4), batches, strict=True):
            expected = samples[first : first + 4]
            assert list(batch) == list(expected[0])
            for column, values in batch.items():
                assert type(values) is (torch.Tensor if column == "label" else list)
                assert [as_python(value) for value in values] == [as_python(sample[column]) for sample in expected]
        column = "image" if "image" in samples[0] else "data"
        (whole,) = Loader(reader, reader.n, "sequential", fields=[column], num_threads=0)
        assert list(whole) == [column]
        for value in whole[column]:
            assert (value.storage_offset(), value.untyped_storage().nbytes()) == (0, len(value))  # of its own
            value.fill_(7)  # writes to no other value
        assert [value.tolist() for value in whole[column]] == [[7] * len(each[column]) for each in samples]
        with pytest.raises(FormatError, match=f"no column 'nothing' in a sample of {name}, only "):
            list(Loader(reader, fields=["nothing"]))


def as_python(value):
    return value.tolist() if hasattr(value, "tolist") else value


def test_samples_of_a_subclass_are_its_own(tmp_path):
    """A class that decodes records itself makes the batches, too."""

    class Sizes(ZipReader):
        def _decode(self, positions, records):
            return [{"size": len(record)} for record in records]

    class Wanted(ZipReader):
        def _decode_columns(self, positions, records, wanted):
            return [{"key": "", "data": len(record)} for record in records]

    class Alike(ZipReader):
        def _varies(self, column):
            return False

    sizes, path = list(map(len, RECORDS)), FORMATS["zip"][1](tmp_path)
    with Sizes(path) as reader:
        (batch,) = Loader(reader, 6, "sequential")
        assert {name: column.tolist() for name, column in batch.items()} == {"size": sizes}
    with Wanted(path) as reader:
        (batch,) = Loader(reader, 6, "sequential", fields=["data"])
        assert batch["data"].tolist() == sizes
    with ZipReader(path) as reader:
        reader._decode = lambda positions, records: [{"size": len(record)} for record in records]
        (batch,) = Loader(reader, 6, "sequential")
        assert batch["size"].tolist() == sizes
    with zipfile.ZipFile(tmp_path / "alike.zip", "w") as archive:
        for i in range(4):
            archive.writestr(f"{i}.bin", bytes([i] * 4))
    with Alike(tmp_path / "alike.zip") as reader:
        (batch,) = Loader(reader, 4, "sequential")
        assert batch["data"].tolist() == [[i] * 4 for i in range(4)]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ("index", "index: int 0, expected an image file or an array of pixels"),
        ("text", "text: str .*, expected an image file or an array of pixels; pass a path as pathlib.Path"),
        ("values", r"values: a float32 array \[2\], expected an image file"),
    ],
)
def test_columns_that_are_no_pictures(store, column, message):
    from ffrecord.torch.images import CenterCrop

    decode = {column: CenterCrop(8)}
    with pytest.raises(FormatError, match=rf"Sample 0: .*a\.jsonl: sample 0: {message}"):
        list(Loader(store, 4, "sequential", decode=decode))
    with pytest.raises(FFRecordError, match=rf"all samples of epoch 0 were left out, .*{message}"):
        list(Loader(store, 4, "sequential", decode=decode, on_error="skip"))


def test_arguments(store):
    with pytest.raises(TypeError, match="fields is a dict"):
        Loader(store, fields={"text": None})
    with pytest.raises(TypeError, match="expected one of ffrecord"):
        Loader(store, decode={"text": str})
    with pytest.raises(TypeError, match="expected a dict of column"):
        Loader(store, decode=str)
    assert not store.closed
    Loader(store).close()
    assert not store.closed


def test_records_of_a_table(tmp_path):
    """Samples of a format that makes nothing of records."""
    one = table(tmp_path / "a.bin", [(i * 10, 10) for i in range(8)], "crc32c")
    with SpanReader([one]) as reader:
        batches = list(Loader(reader, 4, "sequential"))
        assert torch.cat([torch.stack(list(batch["data"])) for batch in batches]).numpy().tobytes() == one.data[:80]


def test_damaged_records(tmp_path):
    one = table(tmp_path / "a.bin", [(i * 10, 10) for i in range(8)], "crc32c")
    with SpanReader([one]) as reader:
        with open(one.path, "r+b") as file:
            file.seek(35)
            file.write(bytes([one.data[35] ^ 1]))
        with pytest.raises(ChecksumError, match=r"Sample 3: .*record 3 of file 0: CRC-32C"):
            list(Loader(reader, 4, "sequential"))
        assert [len(batch["data"]) for batch in Loader(reader, 4, "sequential", on_error="skip")] == [3, 4]


@in_every_way
def test_pictures(tmp_path, how):
    """JPEG files of an archive become one tensor."""
    builders = pytest.importorskip("images_builders")
    from ffrecord.torch.images import CenterCrop

    files = [builders.jpeg(builders.picture(40 + i, 50 - i, i)) for i in range(8)]
    offsets = np.cumsum([0, *map(len, files)])
    (tmp_path / "a.bin").write_bytes(b"".join(files))
    one = table(tmp_path / "b.bin", [])._replace(
        path=str(tmp_path / "a.bin"),
        data=b"".join(files),
        spans=[(int(low), len(file)) for low, file in zip(offsets, files, strict=False)],
    )
    decoder = CenterCrop(24)
    with SpanReader([one]) as reader:
        found = torch.cat([batch["data"] for batch in Loader(reader, 3, "sequential", decode={"data": decoder}, **how)])
        assert found.shape == (8, 3, 24, 24)
        for picture, file in zip(found, files, strict=True):
            assert np.array_equal(picture.permute(1, 2, 0).numpy(), builders.decoded(decoder, file).squeeze())
        assert [
            type(batch).__name__
            for batch in Loader(
                reader, 8, decode={"data": decoder}, transform=lambda sample: sample["data"].float(), **how
            )
        ] == ["Tensor"]
        with pytest.raises(ValueError, match="decode has 'data', expected some of the columns key"):
            Loader(reader, fields=["key"], decode={"data": decoder})


# Datasets


def test_dataset(store):
    dataset = Dataset(store)
    assert (len(dataset), dataset.fnames, dataset.reader, dataset.ffreaders()) == (COUNT, store.fnames, store, [store])
    assert [sample["index"] for sample in dataset[[3, -1, 3]]] == [3, 19, 3]
    assert dataset[5]["text"] == "line 5"
    assert [sample["index"] for sample in Subset(dataset, [4, 2])[:]] == [4, 2]
    again = pickle.loads(pickle.dumps(dataset))
    assert again[5]["text"] == "line 5"
    again.close()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_torch_loader(store, num_workers):
    loader = torch.utils.data.DataLoader(Dataset(store), batch_size=4, num_workers=num_workers)
    batches = list(loader)
    assert torch.cat([batch["index"] for batch in batches]).tolist() == list(range(COUNT))
    assert torch.cat([batch["values"] for batch in batches])[:, 0].tolist() == list(range(COUNT))


def test_dataset_that_processes(store):
    class Texts(Dataset[str]):
        def process(self, indices, data):
            return [f"{i} {sample['text']}" for i, sample in zip(indices, super().process(indices, data), strict=True)]

    assert Texts(store)[[2, 1]] == ["2 line 2", "1 line 1"]


def test_dataset_that_skips(tmp_path):
    one = table(tmp_path / "a.bin", [(0, 10), (10**6, 10), (20, 10)], None)
    with SpanReader([one], on_error="skip") as reader:
        samples = Dataset(reader)[[0, 1, 2]]
        assert [sample["data"].tobytes() for sample in samples] == [one.data[:10], one.data[20:30]]


def test_samplers_know_stores(store):
    sampler = Sampler(store, seed=3)
    assert sorted(sampler) == list(range(COUNT))
    sampler.load_state_dict(sampler.state_dict())


GOLDEN = Path(__file__).parents[1] / "golden" / "seeds"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_columns_of_a_beton_are_of_one_kind(size):
    """Whatever the sizes of the pictures that a batch happens to have."""
    with ffrecord.open(GOLDEN / "mixed.beton", decode=True) as store:
        kinds = [{name: type(column) for name, column in batch.items()} for batch in Loader(store, size)]
    assert all(each == kinds[0] for each in kinds)
    assert kinds[0]["img"] is list


@pytest.mark.parametrize(("feature", "kind"), [(FixedFeature, torch.Tensor), (VarFeature, list)])
def test_columns_of_examples_are_as_declared(tmp_path, feature, kind):
    with TFRecordWriter(tmp_path / "a.tfrecord") as writer:
        for i in range(4):
            writer.write(encode_example({"pixels": bytes([i, i])}))
    declared = FixedFeature("uint8", (2,)) if feature is FixedFeature else VarFeature("uint8")
    with ffrecord.open(tmp_path / "a.tfrecord", features={"pixels": declared}) as store:
        assert [type(batch["pixels"]) for batch in Loader(store, 2)] == [kind, kind]
