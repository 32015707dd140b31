"""Batches collated from records are what default_collate makes of the samples; and lists of samples stay lists."""

import copy
import gc
import operator
import pickle
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_torch_schema import same, write
from torch.utils.data import DataLoader, default_collate
from torch.utils.data._utils import collate as torchs
from torch_builders import WORKERS_ANYWHERE

from ffrecord import FileWriter, fields
from ffrecord.fields import Schema
from ffrecord.format.extension import Extension
from ffrecord.torch import Dataset, collate, transfer
from ffrecord.torch.samples import LazySamples, SampleRecords

pytestmark = WORKERS_ANYWHERE

DTYPES = ["b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8", "c8", "c16"]
TENSORS = ["bool", "uint8", "int16", "int64", "float16", "bfloat16", "float32", "complex64", "float8_e5m2"]


def array(i: int, dtype: str, shape: tuple[int, ...] = (2, 3)) -> Any:
    return (np.arange(i, i + int(np.prod(shape))) % 2).reshape(shape).astype(dtype)


# Each: name → a value for sample i. What default_collate refuses, it must go on to refuse.
VALUES: dict[str, Any] = {
    "int": lambda i: i - 3,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 2 == 0,
    "none": lambda i: None,
    "str": lambda i: f"sample {i}",
    "bytes": lambda i: bytes([i] * i),
    "varying array": lambda i: np.zeros(i % 2 + 1),
    "varying array of one shape": lambda i: np.zeros((i // 100 + 1, 2)),
    "array without dimensions": lambda i: np.array(i, np.int16),
    "empty array": lambda i: np.zeros((0, 3), np.float32),
    "array of strings": lambda i: np.array([f"{i:3}"]),
    "array of dates": lambda i: np.array([i], "M8[s]"),
    "foreign array": lambda i: np.array([i], ">i4"),
    "date": lambda i: np.datetime64(i, "s"),
    "varying tensor": lambda i: torch.zeros(i % 2 + 1),
    **{f"array {dtype}": lambda i, dtype=dtype: array(i, dtype) for dtype in DTYPES},
    **{f"scalar {dtype}": lambda i, dtype=dtype: array(i, dtype, (1,))[0] for dtype in DTYPES},
    **{
        f"tensor {name}": lambda i, name=name: torch.from_numpy(array(i, "u1")).to(getattr(torch, name))
        for name in TENSORS
    },
    "tensor without dimensions": lambda i: torch.tensor(i, dtype=torch.bfloat16),
}

values = st.sampled_from(sorted(VALUES))
structures = st.recursive(
    values,
    lambda inner: (
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        | st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


def build(structure: Any, i: int) -> Any:
    if isinstance(structure, str):
        return VALUES[structure](i)
    if isinstance(structure, dict):
        return {key: build(child, i) for key, child in structure.items()}
    return type(structure)(build(child, i) for child in structure)


def outcome(function: Any, batch: Any) -> Any:
    """What it returns, or what it raises, and whether that is so."""
    try:
        return True, function(batch)
    except Exception as error:
        return False, (type(error), str(error))


def declared(samples: list[Any]) -> Any:
    """The fields of samples, each list a column for each of its items, as files of before have it."""
    first = samples[0]
    if isinstance(first, dict):
        return {name: declared([sample[name] for sample in samples]) for name in first}
    if isinstance(first, list | tuple):
        return type(first)(declared([sample[i] for sample in samples]) for i in range(len(first)))
    return Schema.infer(samples).fields["value"]


def samples_of(samples: list[Any]) -> LazySamples:
    schema = Schema.of(declared(samples))
    records = [np.frombuffer(schema.encode(each), np.uint8) for each in samples]
    offsets = np.cumsum([0, *map(len, records)], dtype=np.int64)
    return LazySamples(SampleRecords(schema, np.concatenate([*records, np.empty(0, np.uint8)]), offsets))


@given(structure=structures.filter(lambda structure: not isinstance(structure, str)), first=st.sampled_from([0, 5, 97]))
@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
def test_equal_to_default_collate(structure: Any, first: int):
    samples = [build(structure, i) for i in range(first, first + 4)]
    expected = outcome(default_collate, samples)
    for function in (collate, default_collate):
        batch = samples_of(samples)
        got = outcome(function, batch)
        assert same(got, expected), (got, expected)
        assert batch.records is not None or not expected[0], "decoded for nothing"


@pytest.mark.parametrize("name", sorted(VALUES))
@pytest.mark.parametrize("kind", [lambda x: {"a": x}, lambda x: (x,), lambda x: [x], lambda x: {"a": (x, [x])}])
def test_each_kind_of_value(name: str, kind: Any):
    samples = [kind(VALUES[name](i)) for i in range(3)]
    assert same(outcome(default_collate, samples_of(samples)), outcome(default_collate, samples))


def test_compressed_columns():
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    schema = Schema.of(
        {
            "pixels": fields.ZstdField(fields.NDArrayField("u1", (4, 4))),
            "label": fields.ZstdField(fields.IntField()),
            "dates": fields.ZstdField(fields.NDArrayField("M8[s]", (1,))),
            "text": fields.ZstdField(fields.StrField()),
        }
    )
    samples = [{"pixels": array(i, "u1", (4, 4)), "label": i, "text": f"{i}"} for i in range(5)]
    plain = [{**each, "dates": np.array([i], "M8[s]")} for i, each in enumerate(samples)]
    records = [np.frombuffer(schema.encode(each), np.uint8) for each in plain]
    batch = LazySamples(SampleRecords(schema, np.concatenate(records), np.cumsum([0, *map(len, records)])))
    assert same(outcome(default_collate, batch), outcome(default_collate, plain))


# A list like any other

SAMPLES = [{"image": array(i, "u1"), "label": i} for i in range(6)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset[Any]:
    return Dataset(write(tmp_path_factory.mktemp("collate") / "x.ffr", SAMPLES))


@pytest.mark.parametrize(
    "look",
    [
        list,
        tuple,
        lambda batch: [*batch],
        lambda batch: operator.add([], batch),
        lambda batch: operator.add(batch, []),
        lambda batch: batch[:],
        lambda batch: [batch[i] for i in range(-6, 0)],
        lambda batch: [batch[i] for i in range(6)],
        lambda batch: list(reversed(list(reversed(batch)))),
        lambda batch: [batch[np.int64(i)] for i in range(6)],
        lambda batch: sorted(batch, key=lambda each: each["label"]),
        lambda batch: batch.copy(),
        lambda batch: (batch * 2)[6:],
        lambda batch: (2 * batch)[:6],
        lambda batch: list(map(dict, batch)),
        lambda batch: [dict(zip(("image", "label"), each, strict=True)) for each in zip(*columns(batch), strict=True)],
        lambda batch: batch[::-1][::-1],
        lambda batch: [batch.pop(0) for _ in range(6)],
        lambda batch: list(np.array(batch, object)),
        copy.copy,
        copy.deepcopy,
        lambda batch: pickle.loads(pickle.dumps(batch)),
    ],
)
@pytest.mark.parametrize("looked", [False, True])
def test_looking_at_it(dataset: Dataset[Any], look: Any, looked: bool):
    batch = dataset.__getitems__(range(6))
    assert isinstance(batch, list)
    assert len(batch) == 6
    if looked:
        assert same(dict(batch[0]), SAMPLES[0])
    found = look(batch)
    assert same([dict(each) for each in found], SAMPLES)
    assert all(isinstance(each, dict) for each in found)


def columns(batch: Any) -> list[Any]:
    return [[each[key] for each in batch] for key in batch[0]]


def test_comparisons_and_changes(dataset: Dataset[Any]):
    labels = dataset.__getitems__([1, 2])
    labels.append({"label": 9})
    labels.extend([{"label": 8}])
    labels += [{"label": 7}]
    labels.reverse()
    labels.insert(0, labels[0])
    assert [each["label"] for each in labels] == [7, 7, 8, 9, 2, 1]
    del labels[0]
    labels[0] = {"label": 5}
    labels.sort(key=lambda each: each["label"])
    assert [each["label"] for each in labels] == [1, 2, 5, 8, 9]
    labels.clear()
    assert labels == []
    assert labels != [1]
    assert repr(labels) == "[]"


def test_before_it_is_looked_at_c_code_finds_no_sample(dataset: Dataset[Any]):
    batch = dataset.__getitems__([1])
    assert repr(list.__getitem__(batch, 0)) == "<sample not yet decoded>"
    assert repr(batch) == repr([SAMPLES[1]])


def test_the_first_sample_is_a_dict_and_copies_of_it_plain(dataset: Dataset[Any]):
    for wrap in (lambda each: each, lambda each: (each["label"],), lambda each: [each["label"]]):
        samples = [wrap(each) for each in SAMPLES]
        first = samples_of(samples)[0]
        assert isinstance(first, type(samples[0]))
        assert same(copy.copy(first), samples[0])
        assert same(pickle.loads(pickle.dumps(first)), samples[0])
        assert samples_of(samples)[0] is not first


def test_what_a_collate_function_changes_is_collated(dataset: Dataset[Any]):
    batch = dataset.__getitems__([0, 1])
    batch[0]["label"] = 70
    assert default_collate(batch)["label"].tolist() == [70, 1]
    batch = dataset.__getitems__([0, 1])
    batch[0]["image"][:] = 7
    assert collate(batch)["image"][0].unique().tolist() == [7]
    batch = dataset.__getitems__([0, 1])
    first = batch[0]
    assert batch[0] is first
    assert next(iter(batch)) is first
    for each in batch:
        each["label"] += 5
    assert default_collate(batch)["label"].tolist() == [5, 6]
    batch[1] = {"image": batch[1]["image"], "label": 3}
    assert default_collate(batch)["label"].tolist() == [5, 3]


def test_first_samples_in_lists_of_others(dataset: Dataset[Any]):
    batch = dataset.__getitems__([4, 5])
    assert default_collate([batch[0], batch[1], SAMPLES[0]])["label"].tolist() == [4, 5, 0]
    assert default_collate([SAMPLES[0], batch[0]])["label"].tolist() == [0, 4]
    nested = default_collate([{"inner": batch[0]}, {"inner": SAMPLES[2]}])
    assert nested["inner"]["label"].tolist() == [4, 2]
    assert type(nested["inner"]) is dict


def test_default_collate_changed_by_the_user(dataset: Dataset[Any], monkeypatch: pytest.MonkeyPatch):
    def pad(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return "padded"

    changed = {**torchs.default_collate_fn_map, torch.Tensor: pad}
    assert torchs.collate(dataset.__getitems__([0, 1]), collate_fn_map=changed)["image"] == "padded"
    assert torchs.collate(dataset.__getitems__([0, 1]), collate_fn_map={int: pad, np.ndarray: pad})["label"] == "padded"
    monkeypatch.setitem(torchs.default_collate_fn_map, torch.Tensor, pad)
    assert default_collate(dataset.__getitems__([0, 1]))["image"] == "padded"


@pytest.mark.parametrize("function", [collate, default_collate])
def test_a_batch_goes_with_who_holds_it(dataset: Dataset[Any], function: Any):
    """Its memory is not kept until garbage is collected, which in a worker of torch may be long."""
    gc.collect()
    gc.disable()
    try:
        batch = function(dataset.__getitems__([0, 1]))
        held = [weakref.ref(column) for column in batch.values()]
        assert all(column() is not None for column in held)
        del batch
        assert [column() for column in held] == [None] * len(held)
    finally:
        gc.enable()


def test_collate_of_plain_lists():
    assert same(collate(SAMPLES), default_collate(SAMPLES))
    assert same(collate([1, 2]), torch.tensor([1, 2]))
    with pytest.raises(IndexError):
        collate([])


def test_batches_are_the_users_own(dataset: Dataset[Any]):
    first, second = (collate(dataset.__getitems__([1, 2])) for _ in range(2))
    first["image"][:] = 9
    first["label"][:] = 9
    assert same(second, default_collate(SAMPLES[1:3]))
    assert first["image"].is_contiguous()


@pytest.mark.parametrize("fixed", [True, False])
def test_damage_is_named(tmp_path: Path, fixed: bool):
    samples = [{"flag": True, "label": i, **({} if fixed else {"text": ""})} for i in range(3)]
    schema = Schema.infer(samples)
    with FileWriter(tmp_path / "x.ffr", extension=Extension(schema=schema.to_builtins())) as writer:
        for i, each in enumerate(samples):
            record = bytearray(schema.encode(each))
            if i == 1:
                record[schema.slots["flag"].offset] = 7
            writer.write_one(record)
        writer.write_one(record[:-1])
    dataset = Dataset[Any](tmp_path / "x.ffr")
    for function in (collate, list):
        with pytest.raises(ValueError, match=r"record 1 of the batch: flag \(BoolField\): a bool is byte 7"):
            function(dataset.__getitems__([0, 1, 2]))
        with pytest.raises(ValueError, match="record 2 of the batch: "):
            function(dataset.__getitems__([0, 2, 3]))


@fields.register
@dataclass(frozen=True)
class Odd(fields.IntField):
    """Ints that come back as strings."""

    kind: ClassVar[str] = "test.odd"

    def decode(self, data: memoryview) -> Any:
        return str(super().decode(data))

    def unstack(self, column: Any) -> list[Any]:
        return list(map(str, column.tolist()))


def test_kinds_of_fields_of_the_users_own():
    schema = Schema.of({"label": fields.IntField(), "odd": Odd()})
    records = [np.frombuffer(schema.encode({"label": i, "odd": i}), np.uint8) for i in range(3)]
    batch = LazySamples(SampleRecords(schema, np.concatenate(records), np.arange(4) * 16))
    assert same(default_collate(batch), {"label": torch.tensor([0, 1, 2]), "odd": ["0", "1", "2"]})


# Through loaders


@pytest.mark.parametrize("workers", [0, 2])
def test_through_torchs_loader(dataset: Dataset[Any], workers: int):
    options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork" if workers else None}
    batches = list(DataLoader(dataset, 4, **options))
    assert same(batches, [default_collate(SAMPLES[:4]), default_collate(SAMPLES[4:])])
    parts = list(DataLoader(dataset[1:] + dataset[:1], 3, **options))
    assert same(parts, [default_collate(SAMPLES[1:4]), default_collate([*SAMPLES[4:], SAMPLES[0]])])


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_large_columns_come_in_shared_memory(tmp_path: Path, strategy: str):
    samples = [(torch.full((40_000,), i, dtype=torch.bfloat16), i, f"{i}") for i in range(4)]
    for each in (samples, [sample[:2] for sample in samples]):
        dataset = Dataset[Any](write(tmp_path / "x.ffr", each))
        before = torch.multiprocessing.get_sharing_strategy()
        torch.multiprocessing.set_sharing_strategy(strategy)
        try:
            (batch,) = DataLoader(dataset, 4, num_workers=1, multiprocessing_context="fork")
        finally:
            torch.multiprocessing.set_sharing_strategy(before)
        expected = default_collate(each)
        assert torch.equal(batch[0], expected[0])
        assert same(batch[1:], expected[1:])
        assert (batch[0].is_shared(), batch[1].is_shared()) == (True, False)
        assert file_at(batch[0].data_ptr()).startswith(
            "/memfd:ffrecord" if strategy == "file_descriptor" else "/dev/shm"
        )
        assert file_at(batch[1].data_ptr()) in ("", "[heap]")
        for column in batch[:2]:
            column[0] = 5  # what came in the message is writable too


def file_at(address: int) -> str:
    """What is mapped there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(each, 16) for each in line.split()[0].split("-"))
        if low <= address < high:
            return " ".join(line.split()[5:])
    raise AssertionError(f"nothing at {address:#x}")


def test_columns_are_filled_where_the_loader_maps_them(monkeypatch: pytest.MonkeyPatch):
    """Or each would be copied once more on its way."""
    monkeypatch.setattr(transfer, "get_worker_info", lambda: object())
    for tensor in (torch.ones(40_000, dtype=torch.bfloat16), torch.ones(3, 40_000), torch.ones(70_000) > 0):
        batch = collate(samples_of([(tensor,), (tensor,)]))
        assert batch[0].is_shared()
        assert torch.equal(batch[0], torch.stack([tensor, tensor]))


def test_a_batch_that_a_collate_function_changes(dataset: Dataset[Any]):
    def add(batch: Any) -> Any:
        made = default_collate(batch)
        made["twice"] = made["label"] * 2
        made["odd"] = [
            torch.zeros(2, requires_grad=True),
            torch.zeros(0),
            torch.zeros(3, 2).T,
        ]
        return made

    (batch,) = DataLoader(dataset, 6, num_workers=1, multiprocessing_context="fork", collate_fn=add)
    (expected,) = DataLoader(dataset, 6, collate_fn=add)
    assert type(batch) is dict
    assert same(batch["twice"], expected["twice"])
    assert [each.tolist() for each in batch["odd"]] == [each.tolist() for each in expected["odd"]]


def test_no_sample_is_decoded_for_torchs_loader(dataset: Dataset[Any], monkeypatch: pytest.MonkeyPatch):
    decoded = []

    def count(self: Schema, data: Any, offsets: Any, tensor: Any = None) -> Any:
        decoded.append(len(offsets) - 1)
        return original(self, data, offsets, tensor)

    original = Schema.decode_batch
    monkeypatch.setattr(Schema, "decode_batch", count)
    list(DataLoader(dataset, 6))
    assert decoded == [1]
    decoded.clear()
    list(DataLoader(dataset + dataset, 12, collate_fn=collate))
    assert decoded == []


def test_an_error_names_the_column(tmp_path: Path) -> None:
    """And it is that of default_collate."""
    path = tmp_path / "x.ffr"
    schema = Schema.of({"id": fields.IntField(), "x": fields.NDArrayField("int64", (None,))})
    with FileWriter(path, 2, extension=Extension(schema=schema.to_builtins())) as writer:
        writer.write_many([schema.encode({"id": i, "x": np.arange(i)}) for i in range(2)])
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size") as caught:
        collate(Dataset(path).__getitems__([0, 1]))
    assert caught.value.__notes__ == ["This is column x."]
