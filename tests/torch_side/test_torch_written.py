"""DatasetWriter of torch datasets of ours: records are copied, unless samples are what code of users makes."""

import io
import os
import shutil
from importlib.util import find_spec

import builders
import numpy as np
import pytest
import torch
from torch.utils import data

import ffrecord
from ffrecord import DatasetWriter, FFRecordError, FileReader
from ffrecord.errors import ArgumentError, MismatchError, SampleError
from ffrecord.fields import (
    ImageFileField,
    IntField,
    JPEGField,
    LabelField,
    ListField,
    NDArrayField,
    OptionalField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
    schema_of,
)
from ffrecord.torch import ConcatDataset, Dataset, IterableDataset, Subset
from ffrecord.utils import dump

COUNT = 20
# Neither would be inferred again from samples.
FIELDS = {
    "number": LabelField([str(i) for i in range(COUNT)]),
    "text": ZstdField(StrField()) if find_spec("zstandard") else OptionalField(StrField()),
    "x": TensorField("float32", (2,)),
}


PICTURES = {"image": JPEGField(quality=30)}


def writer(path, fields=None, **options):
    return DatasetWriter(path, fields, **{"num_workers": 0, "progress": False, **options})


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    path = tmp_path_factory.mktemp("written") / "numbers"
    samples = [{"number": i, "text": "x" * i, "x": torch.full((2,), float(i))} for i in range(COUNT)]
    writer(path, FIELDS, samples_per_shard=6).from_indexed_dataset(samples)
    return path


def records(path):
    with FileReader(path) as reader:
        return schema_of(reader), [record.tobytes() for record in reader]


def same(path, numbers, indices):
    schema, all_records = records(numbers)
    return records(path) == (schema, [all_records[i] for i in indices])


def split(whole):
    return data.random_split(whole, [5, COUNT - 5], generator=torch.Generator().manual_seed(3))[0]


SOURCES = {
    "dataset": (lambda whole: whole, range(COUNT)),
    "subset": (lambda whole: whole.subset([7, -1, 5, 5]), [7, COUNT - 1, 5, 5]),
    "array": (lambda whole: Subset(whole, np.array([3, 1])), [3, 1]),
    "slice": (lambda whole: whole[4:1:-1], [4, 3, 2]),
    "subset of a subset": (lambda whole: Subset(whole.subset([9, 8, 7]), [2, 0]), [7, 9]),
    "both": (lambda whole: whole.subset([1]) + Dataset(whole.fnames), [1, *range(COUNT)]),
    "torch's subset": (lambda whole: data.Subset(whole, [3, -2]), [3, COUNT - 2]),
    "torch's both": (lambda whole: data.ConcatDataset([whole, data.Subset(whole, [4])]), [*range(COUNT), 4]),
    "random_split": (split, None),
    "a list of them": (lambda whole: [whole.subset([2]), whole], [2, *range(COUNT)]),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", SOURCES)
def test_records_are_copied(tmp_path, numbers, case, workers):
    make, indices = SOURCES[case]
    with Dataset(numbers) as whole:
        source = make(whole)
        indices = source.indices if indices is None else indices
        writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(source)
        writer(tmp_path / "b", num_workers=workers).from_iterable(source)
        dump(source, tmp_path / "c.ffr", 1)
    assert [same(tmp_path / name, numbers, indices) for name in ("a", "b", "c.ffr")] == [True] * 3


@pytest.mark.parametrize("rank", [0, 1])
def test_an_iterable_dataset_in_its_order(tmp_path, numbers, rank):
    with Dataset(numbers) as whole:
        source = IterableDataset(whole, 3, num_replicas=2, rank=rank, shuffle=True, seed=5)
        source.set_epoch(4)
        order = [sample["number"] for sample in source]
        assert writer(tmp_path / "a").from_iterable(source, length=len(source)).samples == len(order)
    assert same(tmp_path / "a", numbers, order)


class Lengths(Dataset):
    """Samples that `process` makes."""

    def process(self, indices, data):
        return [{"size": len(each)} for each in data]


CHAINED = [4, 2]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """A dataset of JPEG files, and these files."""
    image = pytest.importorskip("PIL.Image")
    files = []
    for i in range(COUNT):
        out = io.BytesIO()
        image.fromarray(np.full((8, 8, 3), 9 * i, np.uint8)).save(out, "JPEG")
        files.append(out.getvalue())
    path = tmp_path_factory.mktemp("written") / "pictures"
    writer(path, PICTURES).from_indexed_dataset([{"image": file} for file in files])
    return path, files


STACKS = {
    "by name": (lambda a, b: data.StackDataset(one=a, other=b), range(COUNT)),
    "in a tuple": (data.StackDataset, range(COUNT)),
    "of joined ones": (
        lambda a, b: data.StackDataset(one=data.ConcatDataset([a, a]), other=data.ConcatDataset([b, b])),
        [*range(COUNT), *range(COUNT)],
    ),
    "some": (lambda a, b: data.Subset(data.StackDataset(one=a, other=b), [3, -1]), [3, COUNT - 1]),
    "joined": (
        lambda a, b: data.ConcatDataset([data.StackDataset(a, b), data.StackDataset(a, b)]),
        [*range(COUNT)] * 2,
    ),
    "some of joined ones": (
        lambda a, b: data.Subset(data.ConcatDataset([data.StackDataset(one=a, other=b)] * 2), [COUNT + 1, 5]),
        [1, 5],
    ),
}


@pytest.mark.parametrize("workers", [0, 2])
def test_iterables_of_torchs_chain_are_copied(tmp_path, numbers, workers):
    with Dataset(numbers) as whole:
        chain = data.ChainDataset([IterableDataset(each, shuffle=False) for each in (whole, whole.subset(CHAINED))])
        writer(tmp_path / "a", num_workers=workers).from_iterable(chain)
        writer(tmp_path / "b", num_workers=workers).from_indexed_dataset(chain)
        once = data.ChainDataset(iter([IterableDataset(whole, shuffle=False)]))  # an iterator: read sample by sample
        writer(tmp_path / "c", num_workers=workers).from_iterable(once)
        schema, all_records = records(numbers)
    for name in "ab":
        assert records(tmp_path / name) == (schema, [all_records[i] for i in [*range(COUNT), *CHAINED]])
    assert len(records(tmp_path / "c")[1]) == COUNT


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", STACKS)
def test_columns_of_torchs_stack_keep_their_fields_and_bytes(tmp_path, numbers, pictures, case, workers):
    path, files = pictures
    make, indices = STACKS[case]
    with Dataset(numbers) as one, Dataset(path) as other:
        stack = make(one, other)
        wanted = [stack[i] for i in range(len(indices))]
        writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(stack)
        writer(tmp_path / "b", num_workers=workers).from_iterable(stack)
        ffrecord.convert(stack, tmp_path / "c", num_workers=workers, verify=True, progress=False)
    for name in "abc":
        schema, found = records(tmp_path / name)
        assert all(repr(field) in repr(schema) for field in (*FIELDS.values(), *PICTURES.values()))
        # Not encoded again: each record holds the file as it was.
        assert [files[i] in record for i, record in zip(indices, found, strict=True)] == [True] * len(indices)
        with Dataset(tmp_path / name) as whole:
            assert str([whole[i] for i in range(len(whole))]) == str(wanted)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"other": {**FIELDS, "number": LabelField([str(i) for i in range(COUNT)][::-1])}}, COUNT - 2),
        ({"other": {"number": LabelField([str(i) for i in range(COUNT)][::-1])}}, COUNT - 2),
        ({"one": {"text": StrField()}}, 1),
    ],
)
def test_other_fields_for_columns_of_a_stack(tmp_path, numbers, fields, expected):
    with Dataset(numbers) as whole:
        stack = data.StackDataset(one=whole, other=whole)
        writer(tmp_path / "a", fields).from_indexed_dataset(stack)
        with pytest.raises(ValueError, match="fields has 'third', expected some of the columns one, other"):
            writer(tmp_path / "b", {"third": StrField()}).from_indexed_dataset(stack)
    with Dataset(tmp_path / "a") as found:
        assert (found[1]["one"]["number"], found[1]["other"]["number"]) == (1, expected)
        assert (found[1]["one"]["text"], found[1]["other"]["text"]) == ("x", "x")


def test_a_stack_goes_on_after_damage(tmp_path, numbers, pictures):
    path, _ = pictures
    copied = shutil.copytree(path, tmp_path / "pictures")
    shard = copied / "PART_00000.ffr"
    shard.write_bytes(builders.flip_in_sample(4)(shard.read_bytes()))
    with Dataset(numbers) as one, Dataset(copied) as other:
        stack = data.StackDataset(one, other)
        with pytest.raises(FFRecordError, match=r"failed at sample 4: .*ChecksumError"):
            writer(tmp_path / "a").from_indexed_dataset(stack)
        writer(tmp_path / "b", on_error="skip", max_skipped=1).from_indexed_dataset(stack)
    with Dataset(tmp_path / "b") as found:
        assert [sample[0]["number"] for sample in found] == [i for i in range(COUNT) if i != 4]


def test_a_stack_with_records_without_columns_is_read_as_it_comes(tmp_path, numbers):
    writer(tmp_path / "raw").from_indexed_dataset([bytes([i]) for i in range(COUNT)])
    with Dataset(numbers) as one, FileReader(tmp_path / "raw") as raw:
        writer(tmp_path / "a").from_indexed_dataset(data.StackDataset(one, raw))
    schema, _ = records(tmp_path / "a")
    assert all(repr(field) in repr(schema) for field in FIELDS.values())
    with Dataset(tmp_path / "a") as found:
        assert [sample[1].tolist() for sample in found] == [[i] for i in range(COUNT)]


class Foreign(data.Dataset):
    """Samples of a program: their columns are unknown. They are read in worker processes only, if there are any."""

    def __init__(self, alone=False):
        self.alone, self.process = alone, os.getpid()

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        assert self.alone or os.getpid() != self.process
        return {"score": index / 2, "name": f"sample {index}", "point": np.float32([index, 1])}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", STACKS)
def test_a_stack_with_a_member_of_another_kind_keeps_ours(tmp_path, pictures, case, workers):
    path, files = pictures
    make, indices = STACKS[case]
    with Dataset(path) as ours:
        stack = make(ours, Foreign(alone=not workers))
        writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(stack)
        writer(tmp_path / "b", num_workers=workers).from_iterable(stack)
        ffrecord.convert(stack, tmp_path / "c", num_workers=workers, verify=workers == 0, progress=False)
        wanted = [make(ours, Foreign(alone=True))[i] for i in range(len(indices))]
    for name in "abc":
        schema, found = records(tmp_path / name)
        assert all(repr(field) in repr(schema) for field in PICTURES.values())
        assert [files[i] in record for i, record in zip(indices, found, strict=True)] == [True] * len(indices)
        with Dataset(tmp_path / name) as whole:
            assert str([whole[i] for i in range(len(whole))]) == str(wanted)


OTHERS = {
    "numbers": list(range(COUNT)),
    "tuples": [(i, f"{i}") for i in range(COUNT)],
    "bytes": [bytes([i] * i) for i in range(COUNT)],
    "tensors": data.TensorDataset(torch.arange(COUNT), torch.ones(COUNT, 2)),
    "a stack": data.StackDataset(a=list(range(COUNT)), b=[f"{i}" for i in range(COUNT)]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_samples_of_other_members_show_their_columns(tmp_path, pictures, name):
    path, files = pictures
    alone, both = tmp_path / "alone", tmp_path / "both"
    writer(alone).from_indexed_dataset([{"other": OTHERS[name][i]} for i in range(COUNT)])
    with Dataset(path) as ours, Dataset(alone) as expected:
        writer(both).from_indexed_dataset(data.StackDataset(ours=ours, other=OTHERS[name]))
        with Dataset(both) as found:
            assert str([sample["other"] for sample in found]) == str([sample["other"] for sample in expected])
    assert [files[i] in record for i, record in enumerate(records(both)[1])] == [True] * COUNT


def test_members_inside_members(tmp_path, pictures):
    path, files = pictures
    with Dataset(path) as ours:
        inner = data.StackDataset(ours, Foreign(alone=True))
        writer(tmp_path / "a").from_indexed_dataset(data.StackDataset(left=inner, right=list(range(COUNT))))
        with Dataset(tmp_path / "a") as found:
            assert [(sample["left"][1]["score"], sample["right"]) for sample in found] == [
                (i / 2, i) for i in range(COUNT)
            ]
    assert [files[i] in record for i, record in enumerate(records(tmp_path / "a")[1])] == [True] * COUNT


def test_fields_for_a_member_of_another_kind(tmp_path, pictures):
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    path, files = pictures
    with Dataset(path) as ours:
        stack = data.StackDataset(ours=ours, other=Foreign(alone=True))
        writer(tmp_path / "a", {"other": {"name": ZstdField(StrField())}}).from_indexed_dataset(stack)
        with pytest.raises(ValueError, match="fields has 'third', expected some of the columns ours, other"):
            writer(tmp_path / "b", {"third": StrField()}).from_indexed_dataset(stack)
    schema, found = records(tmp_path / "a")
    assert repr(ZstdField(StrField())) in repr(schema) and "FloatField" in repr(schema)
    assert [files[i] in record for i, record in enumerate(found)] == [True] * COUNT


class Files(data.Dataset):
    """JPEG files of a program, or their pixels, as ours have them."""

    def __init__(self, files, form=bytes):
        self.files, self.form = files, form

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        if self.form is bytes:
            return {"image": self.files[index]}
        image = pytest.importorskip("PIL.Image").open(io.BytesIO(self.files[index]))
        return {"image": image if self.form == "image" else np.asarray(image)}


JOINS = {
    "ours first": (lambda a, b: data.ConcatDataset([a, b]), [*range(COUNT), 3, 4]),
    "others first": (lambda a, b: data.ConcatDataset([b, a]), [3, 4, *range(COUNT)]),
    "a list": (lambda a, b: [a, b, a], [*range(COUNT), 3, 4, *range(COUNT)]),
    "a tuple": (lambda a, b: (b, a.subset([-1, 2])), [3, 4, COUNT - 1, 2]),
    "a list of samples": (lambda a, b: [a, [b[1]]], [*range(COUNT), 4]),
    "some": (lambda a, b: data.Subset(data.ConcatDataset([a, b]), [-1, 5, COUNT, 5]), [4, 5, 3, 5]),
    "some of some": (lambda a, b: data.Subset(data.Subset(data.ConcatDataset([a, b]), [-1, 5]), [1, 0, 0]), [5, 4, 4]),
    "joined again": (
        lambda a, b: data.ConcatDataset([data.Subset(data.ConcatDataset([b, a]), [1, 2]), b, a.subset([7])]),
        [4, 0, 3, 4, 7],
    ),
    "a reader": (lambda a, b: data.ConcatDataset([b, a.reader]), [3, 4, *range(COUNT)]),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", [bytes, "image"])
@pytest.mark.parametrize("case", JOINS)
def test_ours_joined_with_others_keep_their_bytes(tmp_path, pictures, case, form, workers):
    path, files = pictures
    make, indices = JOINS[case]
    with Dataset(path) as ours:
        source = make(ours, Files(files[3:5], form))
        writer(tmp_path / "a", num_workers=workers).from_indexed_dataset(source, chunksize=3)
        writer(tmp_path / "b", num_workers=workers).from_iterable(source)
        ffrecord.convert(source, tmp_path / "c", num_workers=workers, verify=True, progress=False)
        picked = indices[1:]
        writer(tmp_path / "d", num_workers=workers).from_indexed_dataset(source, indices=range(1, len(indices)))
    schema, all_records = records(path)
    for name in "abc":
        assert records(tmp_path / name) == (schema, [all_records[i] for i in indices])
    assert records(tmp_path / "d") == (schema, [all_records[i] for i in picked])


@pytest.mark.parametrize("method", ["forkserver", pytest.param("spawn", marks=pytest.mark.long)])
def test_joins_pickle(tmp_path, numbers, method):
    others = [{"number": "3", "text": "a", "x": torch.zeros(2)}]
    with Dataset(numbers) as ours:
        writer(tmp_path / "a", num_workers=1, start_method=method).from_indexed_dataset([others, ours])
    schema, all_records = records(numbers)
    found = records(tmp_path / "a")
    assert found[0] == schema and found[1][1:] == all_records
    with Dataset(tmp_path / "a") as whole:
        assert (whole[0]["number"], whole[0]["text"]) == (3, "a")


def test_what_fields_of_ours_would_change_is_refused(tmp_path, numbers, pictures):
    path, files = pictures
    with Dataset(path) as ours:
        joined = data.ConcatDataset([ours, Files(files[:2], "pixels")])
        words = (
            r"failed at sample 2[01] \(sample [01] of dataset 1 of the ConcatDataset\): TypeError: image: "
            r"a uint8 array of shape \(8, 8, 3\) would be compressed: JPEGField\(quality=30"
        )
        with pytest.raises(SampleError, match=words):
            writer(tmp_path / "a").from_indexed_dataset(joined)
        writer(tmp_path / "b", PICTURES).from_indexed_dataset(joined)
        writer(tmp_path / "c", {"image": ImageFileField()}).from_indexed_dataset(joined)
    assert records(tmp_path / "b")[1][:COUNT] == records(path)[1]
    assert [file in record for file, record in zip(files, records(tmp_path / "c")[1], strict=False)] == [True] * COUNT
    with Dataset(numbers) as ours:
        others = [{"number": 3, "text": "a", "x": torch.zeros(2)}]
        with pytest.raises(SampleError, match="number: int 3 may be another class there: LabelField"):
            writer(tmp_path / "d").from_indexed_dataset([ours, others])
        writer(tmp_path / "d", {"number": FIELDS["number"]}).from_indexed_dataset([ours, others])
        writer(tmp_path / "d", mode="append").from_indexed_dataset([ours, others])
    assert len(records(tmp_path / "d")[1]) == 2 * (COUNT + 1)


def test_lists_and_values_that_may_be_missing_are_looked_into(tmp_path):
    fields = {"classes": ListField(LabelField(["a", "b"])), "maybe": OptionalField(LabelField(["a", "b"]))}
    writer(tmp_path / "a", fields).from_indexed_dataset([{"classes": [0, 1], "maybe": None}])
    with Dataset(tmp_path / "a") as ours:
        good = [{"classes": ["b"], "maybe": None}, {"classes": [], "maybe": "b"}]
        writer(tmp_path / "b").from_indexed_dataset([ours, good])
        for bad in ({"classes": ["a", 1], "maybe": None}, {"classes": [], "maybe": 1}):
            with pytest.raises(SampleError, match="int 1 may be another class there"):
                writer(tmp_path / "c").from_indexed_dataset([ours, [bad]])
    with Dataset(tmp_path / "b") as found:
        assert [found[1], found[2]] == [{"classes": [1], "maybe": None}, {"classes": [], "maybe": 1}]


def test_joins_that_do_not_fit(tmp_path, numbers, pictures):
    with Dataset(numbers) as one, Dataset(pictures[0]) as other:
        with pytest.raises(MismatchError, match="dataset 2 of the list: its columns differ from those of dataset 1"):
            writer(tmp_path / "a").from_indexed_dataset([[{"image": b""}], one, other])
        with pytest.raises(SampleError, match=r"dataset 1 of the ConcatDataset.*key 'text' is missing"):
            writer(tmp_path / "a").from_indexed_dataset(data.ConcatDataset([one, [{"number": "1"}]]))
        with pytest.raises(TypeError, match="dataset 1 of the list is a dict of 1, expected a dataset"):
            writer(tmp_path / "a").from_indexed_dataset([one, {"number": "1"}])
        with pytest.raises(IndexError, match=rf"indices\[1\] of a subset is {COUNT + 1}, expected"):
            writer(tmp_path / "a").from_iterable(data.Subset(data.ConcatDataset([one, [{}]]), [0, COUNT + 1]))
        chain = data.ChainDataset([IterableDataset(one, shuffle=False), Streamed()])
        with pytest.raises(ArgumentError, match="the ChainDataset joins datasets of files and others"):
            writer(tmp_path / "a").from_iterable(chain)
    writer(tmp_path / "a").from_iterable(data.ChainDataset([Streamed(), Streamed()]))
    assert len(records(tmp_path / "a")[1]) == 2


class Streamed(data.IterableDataset):
    def __iter__(self):
        yield {"number": 1}


def test_a_list_of_stacks_is_joined(tmp_path, pictures):
    path, files = pictures
    with Dataset(path) as ours:
        stacks = [data.StackDataset(a=each, b=list(range(len(each)))) for each in (ours, ours.subset([3, 1]))]
        writer(tmp_path / "a").from_indexed_dataset(stacks)
        other = data.StackDataset(b=list(range(COUNT)), a=ours)
        words = "dataset 1 of the list: its columns differ from those of dataset 0 in their order"
        with pytest.raises(MismatchError, match=words):
            writer(tmp_path / "b").from_indexed_dataset([stacks[0], other])
        schema = Schema.of({"a": PICTURES, "b": IntField()})
        writer(tmp_path / "b", schema).from_indexed_dataset([stacks[0], other])
        writer(tmp_path / "c").from_indexed_dataset([data.Subset(ours, [5]), [{"image": files[6]}]])
    assert all(files[i] in each for i, each in zip([*range(COUNT), 3, 1], records(tmp_path / "a")[1], strict=True))
    assert records(tmp_path / "b")[0] == schema and len(records(tmp_path / "b")[1]) == 2 * COUNT
    assert records(tmp_path / "c")[1] == [records(path)[1][i] for i in (5, 6)]


def test_joins_beside_others(tmp_path, pictures):
    path, files = pictures
    with Dataset(path) as ours:
        joined = data.ConcatDataset([ours, Files(files[3:5])])
        for place, member in enumerate((joined, data.Subset(joined, range(COUNT + 2)), data.ConcatDataset([joined]))):
            stack = data.StackDataset(one=member, other=list(range(COUNT + 2)))
            writer(tmp_path / f"{place}").from_indexed_dataset(stack)
            schema, found = records(tmp_path / f"{place}")
            assert repr(PICTURES["image"]) in repr(schema)
            assert [file in each for file, each in zip([*files, *files[3:5]], found, strict=True)] == [True] * len(
                stack
            )
        pixels = data.ConcatDataset([ours, Files(files[3:5], "pixels")])
        stack = data.StackDataset(one=pixels, other=list(range(COUNT + 2)))
        with pytest.raises(SampleError, match=r"image: a uint8 array .* would be compressed"):
            writer(tmp_path / "a").from_indexed_dataset(stack)
        writer(tmp_path / "a", {"one": PICTURES}).from_indexed_dataset(stack)
        stacks = data.ConcatDataset([data.StackDataset(ours, list(range(COUNT))), [({"image": files[0]}, 7)]])
        writer(tmp_path / "b").from_indexed_dataset(stacks)
        with Dataset(tmp_path / "b") as found:
            assert [sample[1] for sample in found] == [*range(COUNT), 7]


def test_a_transform_of_ours_makes_other_samples(tmp_path, pictures, caplog):
    with Dataset(pictures[0]) as ours:
        decoded = Dataset(ours.reader, transform=lambda sample: sample)
        with pytest.raises(SampleError, match=r"dataset 1 of the ConcatDataset.* would be compressed"):
            writer(tmp_path / "a").from_indexed_dataset(ConcatDataset([ours, decoded]))
        writer(tmp_path / "b").from_indexed_dataset(decoded)
    assert isinstance(records(tmp_path / "b")[0].fields["image"], NDArrayField)
    assert not caplog.records


def test_joins_leave_out_bad_samples(tmp_path, pictures):
    path, files = pictures
    others = Files([files[0], b"no JPEG", files[1]])
    with Dataset(path) as ours:
        done = writer(tmp_path / "a", on_error="skip", max_skipped=1).from_indexed_dataset([ours, others])
    assert (done.samples, done.skipped) == (COUNT + 2, 1)
    assert records(tmp_path / "a")[1][-2:] == records(path)[1][:2]


def test_other_members_that_cannot_be_stored(tmp_path, pictures):
    path, _ = pictures

    class Failing(Foreign):
        def __getitem__(self, index):
            return {**super().__getitem__(index), "score": "text" if index == 1 else 0.5}

    with Dataset(path) as ours:
        with pytest.raises(TypeError, match=r"^\[1\]: sample: no field holds an object"):
            writer(tmp_path / "a").from_indexed_dataset(data.StackDataset(ours, [object()] * COUNT))
        stack = data.StackDataset(ours, Failing(alone=True))
        with pytest.raises(FFRecordError, match=r"failed at sample 1: TypeError: \[1\]: score: str"):
            writer(tmp_path / "a").from_indexed_dataset(stack)


class Doubled(Subset):
    """Samples that `__getitem__` makes."""

    def __getitem__(self, indices):
        return {"twice": 2 * super().__getitem__(indices)["number"]}

    __getitems__ = None


class Transformed(data.Dataset):
    """A wrapper as people write it."""

    def __init__(self, inner):
        self.inner = inner

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, index):
        return {"number": self.inner[index]["number"] + 1}


@pytest.mark.parametrize(
    ("make", "column"),
    [
        (Lengths, "size"),
        (lambda path: Lengths(path).subset([1, 2, 3]), "size"),
        (lambda path: ConcatDataset([Dataset(path), Lengths(path)]).datasets[1], "size"),
        (lambda path: data.Subset(Lengths(path), [1]), "size"),
        (lambda path: Transformed(Dataset(path)), "number"),
        (lambda path: data.Subset(Transformed(Dataset(path)), [0, 4]), "number"),
    ],
)
def test_samples_that_code_of_users_makes_are_written(tmp_path, numbers, make, column):
    writer(tmp_path / "a").from_indexed_dataset(make(numbers))
    schema, _ = records(tmp_path / "a")
    assert schema.fields == {column: IntField()}


def test_a_process_of_the_object_itself(tmp_path, numbers):
    with Dataset(numbers) as whole:
        whole.process = lambda indices, data: [{"size": len(each)} for each in data]
        writer(tmp_path / "a").from_indexed_dataset(whole.subset([1]))
    assert records(tmp_path / "a")[0].columns == ("size",)


def test_tensors_of_another_shape_are_appended(tmp_path, numbers):
    fields = {**FIELDS, "x": TensorField("float32", (None,))}
    writer(tmp_path / "a", fields).from_indexed_dataset([{"number": 0, "text": "", "x": torch.zeros(5)}])
    with Dataset(numbers) as whole:
        writer(tmp_path / "a", mode="append").from_indexed_dataset(whole.subset([7]))
    with Dataset(tmp_path / "a") as found:
        assert [len(sample["x"]) for sample in found] == [5, 2]
        assert torch.equal(found[1]["x"], torch.full((2,), 7.0))


def test_a_batch_of_lists_is_one_tensor(tmp_path):
    writer(tmp_path / "a").from_indexed_dataset([{"x": [i, i + 1, i + 2], "tokens": [1] * (i + 1)} for i in range(4)])
    with Dataset(tmp_path / "a") as dataset:
        batch = next(iter(data.DataLoader(dataset, batch_size=4, collate_fn=lambda samples: samples)))
        assert [sample["tokens"].tolist() for sample in batch] == [[1], [1, 1], [1, 1, 1], [1, 1, 1, 1]]
        loaded = next(iter(data.DataLoader(dataset.subset([0, 0]), batch_size=2)))
    assert loaded["x"].tolist() == [[0, 1, 2], [0, 1, 2]]


def test_rows_of_hugging_face_joined_with_ours(tmp_path):
    """Their classes are matched by name."""
    datasets = pytest.importorskip("datasets")
    fields = {"label": LabelField(["cat", "dog"]), "x": IntField()}
    writer(tmp_path / "a", fields).from_indexed_dataset([{"label": "dog", "x": 1}])
    features = datasets.Features({"label": datasets.ClassLabel(names=["dog", "cat"]), "x": datasets.Value("int64")})
    rows = datasets.Dataset.from_dict({"label": [0, 1], "x": [2, 3]}, features=features)
    with Dataset(tmp_path / "a") as ours:
        for name, source in (("b", data.ConcatDataset([rows, ours])), ("c", [rows, ours])):
            writer(tmp_path / name).from_indexed_dataset(source)
            assert records(tmp_path / name)[0].fields == fields
            with Dataset(tmp_path / name) as found:
                assert [(each["label"], each["x"]) for each in found] == [(1, 2), (0, 3), (1, 1)]


def test_rows_of_hugging_face_beside_ours(tmp_path, pictures):
    rows = pytest.importorskip("datasets").Dataset.from_dict({"x": list(range(COUNT))})
    path, files = pictures
    with Dataset(path) as ours:
        for name, count in (("a", COUNT), ("b", 0)):
            stack = data.StackDataset(one=ours[:count], rows=rows.select(range(count)))
            writer(tmp_path / name).from_indexed_dataset(stack)
            schema, found = records(tmp_path / name)
            assert len(found) == count and repr(PICTURES["image"]) in repr(schema)
            assert all(files[i] in record for i, record in enumerate(found))
    with Dataset(tmp_path / "a") as found:
        assert [sample["rows"] for sample in found] == [{"x": i} for i in range(COUNT)]


@pytest.mark.parametrize("other", [[], "ours"], ids=["another", "ours"])
def test_an_empty_stack_keeps_the_columns_of_ours(tmp_path, pictures, other):
    path, _ = pictures
    with Dataset(path) as ours:
        member = ours[:0] if other == "ours" else other
        writer(tmp_path / "a").from_indexed_dataset(data.StackDataset(one=ours[:0], other=member))
    schema, found = records(tmp_path / "a")
    assert repr(PICTURES["image"]) in repr(schema) and found == []
