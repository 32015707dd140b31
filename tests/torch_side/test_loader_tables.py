"""Batches of tables and of TensorDataset are taken by columns. They are those made of their rows."""

import datetime
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from ffrecord import DatasetWriter
from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError, UserFunctionError
from ffrecord.torch import Loader
from ffrecord.torch.loading.python_store import store_of_dataset

COUNT = 50
NUMBERS = np.arange(COUNT) - 7


def same(sample: Any) -> Any:
    """Return a sample as it is. A loader with a transform makes its batches of samples."""
    return sample


def check_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
        for name in found:
            check_equal(found[name], expected[name])
    elif isinstance(found, tuple):
        assert len(found) == len(expected)
        for each, other in zip(found, expected, strict=True):
            check_equal(each, other)
    elif isinstance(found, torch.Tensor):
        assert (found.dtype, found.shape, found.device) == (expected.dtype, expected.shape, expected.device)
        assert found.is_contiguous() and expected.is_contiguous()
        assert torch.equal(found.nan_to_num(77), expected.nan_to_num(77))
    else:
        assert [*map(type, found)] == [*map(type, expected)]
        assert repr(found) == repr(expected)


def check(source: Any, **options: Any) -> None:
    """Check that batches by columns are those of rows, in random order and in their own."""
    for shuffle in (True, False):
        with (
            Loader(source, 8, shuffle=shuffle, seed=3, **options) as by_columns,
            Loader(source, 8, shuffle=shuffle, seed=3, transform=same, **options) as by_rows,
        ):
            for found, expected in zip(by_columns, by_rows, strict=True):
                check_equal(found, expected)


def test_each_type_of_array() -> None:
    kinds = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?", ">i4", ">f8", "g"]
    kinds += ["U5", "S5", "M8[ns]", "m8[s]", "O"]
    check({kind: NUMBERS.astype("u1").astype(kind) for kind in kinds})


def test_arrays_of_several_axes() -> None:
    check(
        {
            "small": np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3),
            "large": np.arange(COUNT * 9000, dtype=np.int16).reshape(COUNT, 9000),
            "reversed": np.arange(COUNT * 2).reshape(COUNT, 2)[::-1, ::-1],
            "axes in another order": np.arange(COUNT * 24).reshape(COUNT, 2, 3, 4).transpose(0, 3, 1, 2),
            "columns first": np.asfortranarray(np.arange(COUNT * 6.0).reshape(COUNT, 2, 3)),
            "of no values": np.zeros((COUNT, 0)),
            "texts": np.array([["a", str(i)] for i in range(COUNT)]),
        }
    )


def test_other_columns() -> None:
    read_only = NUMBERS.copy()
    read_only.flags.writeable = False
    check(
        {
            "list": NUMBERS.tolist(),
            "floats and ints": [float(i) if i % 2 else i for i in range(COUNT)],
            "texts": [str(i) for i in range(COUNT)],
            "nothing": [None] * COUNT,
            "range": range(COUNT),
            "varying": [list(range(i % 3)) for i in range(COUNT)],
            "read-only": read_only,
            "array of one row": np.broadcast_to(np.float32(2), COUNT),
            5: NUMBERS,
        }
    )


def test_columns_of_tensors() -> None:
    check(
        {
            "ints": torch.arange(COUNT),
            "half": torch.arange(COUNT * 4).reshape(COUNT, 2, 2).bfloat16(),
            "parameter": torch.nn.Parameter(torch.rand(COUNT)).detach(),
            "channels last": torch.rand(COUNT, 3, 4, 5).to(memory_format=torch.channels_last),
        }
    )


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"ragged": "padded"}], ids=repr)
def test_tensor_dataset(options: dict[str, Any]) -> None:
    turned = torch.rand(COUNT, 3, 4).permute(0, 2, 1)
    check(TensorDataset(torch.arange(COUNT), torch.rand(COUNT, 3), torch.arange(COUNT) > 5, turned), **options)


def test_part_of_a_tensor_dataset() -> None:
    check(Subset(TensorDataset(torch.arange(COUNT)), range(40, 3, -1)))


def test_own_tensor_dataset_gives_its_own_rows() -> None:
    class Doubled(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            return tuple(2 * each for each in super().__getitem__(index))

    with Loader(Doubled(torch.arange(COUNT)), 8, shuffle=False) as loader:
        assert torch.cat([batch[0] for batch in loader]).tolist() == list(range(0, 2 * COUNT, 2))


def test_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    numbers = pandas.Series(NUMBERS)
    check(
        pandas.DataFrame(
            {
                "int": numbers,
                "float": numbers / 3,
                "nan": numbers.where(numbers % 2 == 0),
                "nullable": numbers.astype("Int64"),
                "whole": numbers.astype("Int32"),
                "bool": numbers > 5,
                "text": numbers.astype(str),
                "category": numbers.astype(str).astype("category"),
                "time": pandas.to_datetime(numbers, unit="D"),
                "object": [{"i": i} for i in range(COUNT)],
            }
        )
    )


def arrow_columns(arrow: Any) -> dict[str, Any]:
    numbers = NUMBERS.tolist()
    kinds = [arrow.int8(), arrow.int32(), arrow.float32(), arrow.float64(), arrow.string()]
    found = {str(kind): arrow.array([str(i) if kind == arrow.string() else i for i in numbers], kind) for kind in kinds}
    return found | {
        "uint64": arrow.array([2**64 - 1 - i for i in range(COUNT)], arrow.uint64()),
        "uint16": arrow.array(range(COUNT), arrow.uint16()),
        "bool": arrow.array([i > 0 for i in numbers]),
        "time": arrow.array(numbers, arrow.timestamp("us")),
        "time with a zone": arrow.array(numbers, arrow.timestamp("s", "Europe/Berlin")),
        "day": arrow.array(numbers, arrow.date32()),
        "day in milliseconds": arrow.array([86_400_000 * i for i in numbers], arrow.date64()),
        "duration": arrow.array(numbers, arrow.duration("ns")),
        "half": arrow.array(np.float16(numbers)),
        "decimal": arrow.array(numbers).cast(arrow.decimal128(30, 2)),
        "uint32": arrow.array(range(COUNT), arrow.uint32()),
        "dictionary": arrow.array([str(i % 3) for i in numbers]).dictionary_encode(),
        "numbers of a dictionary": arrow.array([i % 3 for i in numbers]).dictionary_encode(),
        "lists": arrow.array([[i, i + 1] for i in numbers]),
        "varying": arrow.array([[i] * (i % 4) for i in numbers]),
        "struct": arrow.array([{"a": i, "b": str(i)} for i in numbers]),
        "binary": arrow.array([bytes([i % 7]) for i in numbers]),
        "large binary": arrow.array([bytes([i % 7]) * (i % 3) for i in numbers], arrow.large_binary()),
        "large text": arrow.array(["ä€" * (i % 3) for i in numbers], arrow.large_string()),
        "empty text": arrow.array([""] * COUNT),
    }


@pytest.mark.parametrize("split", [1, 3])
def test_arrow_table(split: int) -> None:
    arrow = pytest.importorskip("pyarrow")
    columns = arrow_columns(arrow)
    parts = [arrow.table({name: each[i::split] for name, each in columns.items()}) for i in range(split)]
    check(arrow.concat_tables(parts))


def test_arrow_slices() -> None:
    arrow = pytest.importorskip("pyarrow")
    columns = arrow_columns(arrow)
    check(arrow.table(columns).slice(3, COUNT - 5))
    check(arrow.table({name: arrow.concat_arrays([each, each]).slice(COUNT) for name, each in columns.items()}))


@pytest.mark.parametrize("kind", ["string", "large_string"])
def test_arrow_text_that_is_not_utf8(kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    raw = arrow.array([b"ok"] * 5 + [b"bad \xff"] + [b"ok"] * 5).cast(kind.replace("string", "binary"))
    table = arrow.table({"i": range(11), "x": raw.cast(kind, safe=False)})
    message = "row 5: column 'x': its text is not UTF-8: .*cast it to binary"
    with Loader(table, 4, shuffle=False) as loader, pytest.raises(FormatError, match=message):
        list(loader)


def test_arrow_batch() -> None:
    arrow = pytest.importorskip("pyarrow")
    check(arrow.record_batch(arrow_columns(arrow)))


def first_column(batch: Any) -> Any:
    return batch["x"] if isinstance(batch, dict) else batch[0]


@pytest.mark.parametrize("transform", [None, same], ids=["columns", "rows"])
def test_a_batch_shares_no_memory_with_its_source(transform: Any) -> None:
    arrow = pytest.importorskip("pyarrow")
    numbers, several, tensor = NUMBERS.copy(), np.ones((COUNT, 3)), torch.ones(COUNT, 2)
    for source in ({"x": numbers}, {"x": several}, {"x": tensor}, TensorDataset(tensor), arrow.table({"x": numbers})):
        with Loader(source, COUNT, shuffle=False, transform=transform) as loader:
            for batch in loader:
                first_column(batch).zero_()
            assert first_column(next(iter(loader))).abs().sum() > 0
    texts = np.array([["a", "b"]] * COUNT)
    with Loader({"x": texts}, COUNT, shuffle=False, transform=transform) as loader:
        next(iter(loader))["x"][0][:] = "z"
    assert (texts[0] == ["a", "b"]).all()


def test_a_transform_may_write_in_place() -> None:
    """Each epoch gets the values of the table, with and without workers."""

    def halve(sample: Any) -> Any:
        sample["x"] /= 2
        sample["y"] *= 3
        return sample

    table = {"x": np.ones((COUNT, 3)), "y": torch.ones(COUNT, 2)}
    with Loader(table, 8, transform=halve) as loader:
        for _ in range(2):
            assert all((batch["x"] == 0.5).all() and (batch["y"] == 3).all() for batch in loader)
    assert (table["x"] == 1).all() and (table["y"] == 1).all()


def test_a_memory_map(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(COUNT * 3.0).reshape(COUNT, 3))
    check({"x": np.load(tmp_path / "x.npy", mmap_mode="r")})


@pytest.mark.parametrize("transform", [None, same], ids=["columns", "rows"])
def test_a_mask_is_not_lost(transform: Any) -> None:
    masked = np.ma.masked_array(NUMBERS, NUMBERS == 4)
    with Loader({"x": masked}, 8, shuffle=False, transform=transform) as loader:
        batches = iter(loader)
        assert next(batches)["x"].tolist() == NUMBERS[:8].tolist()
        with pytest.raises(UserFunctionError, match=r"column 'x'.*its mask would be lost"):
            next(batches)


def test_types_of_few_bits() -> None:
    """torch cannot index them, so they come row by row."""
    bits = torch.zeros(COUNT, dtype=torch.uint8).view(torch.bits8)
    for source in ({"x": bits}, TensorDataset(bits)):
        with Loader(source, 8) as loader:
            assert first_column(next(iter(loader))).dtype == torch.bits8


def test_sparse_tensors() -> None:
    sparse = torch.eye(COUNT).to_sparse()
    for source in ({"x": sparse}, TensorDataset(sparse)):
        with Loader(source, COUNT, shuffle=False) as loader:
            assert torch.equal(first_column(next(iter(loader))).to_dense(), torch.eye(COUNT))


def test_a_series_goes_by_position(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for index in ([2, 0, 1], [5, 6, 7], [0, 0, 0]):
        series = pandas.Series([10, 20, 30], index=index)
        for source in (series, Subset(series, range(3)), ConcatDataset([series[:1], series[1:]])):
            with Loader(source, 3, shuffle=False) as loader:
                assert next(iter(loader)).tolist() == [10, 20, 30]
        out = tmp_path / str(index)
        DatasetWriter(out, num_workers=0, progress=False).from_indexed_dataset(Subset(series, [2, 1, 0]))
        with Loader(out, 3, shuffle=False) as loader:
            assert next(iter(loader)).tolist() == [30, 20, 10]


def test_columns_of_arrow_are_no_source() -> None:
    arrow = pytest.importorskip("pyarrow")
    for column in (arrow.array([1, 2]), arrow.chunked_array([[1], [2]])):
        with pytest.raises(ArgumentTypeError, match="a column of Arrow without a name: pass a table"):
            Loader(column, 2)
        with pytest.raises(ArgumentTypeError, match=r"'x' of the source.*pass pyarrow\.table\(source\)"):
            Loader({"x": column}, 2)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_named(tmp_path: Path) -> None:
    nested = torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged)
    strided = torch._nested_tensor_from_tensor_list([torch.ones(1), torch.ones(2)])
    for source in (strided, nested):
        with pytest.raises(ArgumentTypeError, match="the source is a nested torch float32 tensor"):
            Loader(source, 2)
        with pytest.raises(ArgumentTypeError, match="the source is a nested torch float32 tensor"):
            DatasetWriter(tmp_path / "out", num_workers=0, progress=False).from_indexed_dataset(source)
    with pytest.raises(ArgumentError, match="'x' of the source, a dict, is a nested torch float32 tensor"):
        Loader({"x": strided}, 2)


def test_a_type_that_no_field_holds_is_told_at_once() -> None:
    arrow = pytest.importorskip("pyarrow")
    union = arrow.UnionArray.from_sparse(arrow.array([0, 0], arrow.int8()), [arrow.array([1, 2])])
    with pytest.raises(FormatError, match=r"column 'x' has type .*union"):
        Loader(arrow.table({"x": union}), 2)


def test_columns_by_name() -> None:
    table = {"x": NUMBERS, "y": NUMBERS / 2, "name": [str(i) for i in range(COUNT)], "a.b": NUMBERS}
    for fields in (["y", "name"], ["name", "x"], ["a.b"]):
        check(table, fields=fields)
    arrow = pytest.importorskip("pyarrow")
    for fields in (["y", "name"], ["name"], ["x"]):
        check(arrow.table(table), fields=fields)
    with Loader(table, 8, fields=["x", "z"]) as loader, pytest.raises(FormatError, match=r"'z'.*x, y, name"):
        next(iter(loader))


@pytest.mark.parametrize("fields", [None, ["x"]])
def test_says_that_it_takes_columns(fields: Any) -> None:
    with Loader({"x": NUMBERS, "y": NUMBERS}, 8, fields=fields) as loader:
        assert loader.stats().source.split(";")[0].endswith("made by Python in columns")


def with_null(arrow: Any, kind: str) -> Any:
    if kind.startswith("dictionary"):
        values = arrow.array([5, None], kind.partition(" of ")[2] or "int64")
        return arrow.DictionaryArray.from_arrays([int(i == 9) for i in range(COUNT)], values)
    if kind == "runs":
        return arrow.RunEndEncodedArray.from_arrays([9, 10, COUNT], [5, None, 6])
    return arrow.array([None if i == 9 else i for i in range(COUNT)]).cast(kind)


@pytest.mark.parametrize("kind", ["int8", "float64", "string", "dictionary", "dictionary of float", "runs"])
def test_missing_values_fail_alike(kind: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    values = with_null(arrow, kind)
    found: list[Any] = []
    for transform in (None, same):
        with Loader(arrow.table({"x": values}), 8, shuffle=False, transform=transform) as loader:
            try:
                found.append([batch["x"] for batch in loader][1])
            except UserFunctionError as error:
                found.append(str(error))
    if kind == "string":
        assert found[0] == found[1] == ["8", None, *map(str, range(10, 16))]
    else:
        assert all("sample 9: column 'x' is None, but" in each for each in found)


def test_pickled_once() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"x": np.arange(100_000), "name": ["a"] * 100_000})
    with Loader(table, 8) as loader:
        next(iter(loader))
        assert len(pickle.dumps(loader.reader)) < 1.2 * table.nbytes
        again = pickle.loads(pickle.dumps(loader.reader))
    with Loader(again, 8, shuffle=False) as loader:
        assert next(iter(loader))["x"].tolist() == list(range(8))


# Datasets of Hugging Face, whose rows are Python's values


def huggingface_columns(datasets: Any) -> tuple[dict[str, Any], Any]:
    """Return columns and their features, of each kind that is taken by column."""
    value = datasets.Value
    numbers = [("int8", 100), ("int32", 2**31), ("int64", 2**63), ("uint8", 200), ("uint64", 2**64)]
    columns: dict[str, Any] = {kind: [i % most for i in range(COUNT)] for kind, most in numbers}
    kinds = {kind: value(kind) for kind in columns}
    columns |= {kind: [i / 3 for i in range(COUNT)] for kind in ("float16", "float32", "float64")}
    columns |= {kind: ["ä" * (i % 3) for i in range(COUNT)] for kind in ("string", "large_string")}
    columns |= {kind: [bytes([i % 5]) * (i % 3) for i in range(COUNT)] for kind in ("binary", "large_binary")}
    kinds |= {kind: value(kind) for kind in columns}
    more = {
        "bool": (value("bool"), [i % 3 == 0 for i in range(COUNT)]),
        "time": (value("timestamp[us]"), [datetime.datetime(2026, 1, 1 + i % 28) for i in range(COUNT)]),
        "class": (datasets.ClassLabel(names=["a", "b"]), [i % 2 for i in range(COUNT)]),
        "floats": (datasets.List(value("float32")), [[i / 3, 1.0] for i in range(COUNT)]),
        "varying": (datasets.List(value("int16")), [[i] * (i % 4) for i in range(COUNT)]),
        "bools": (datasets.List(value("bool")), [[i > 3, True] for i in range(COUNT)]),
        "large lists": (datasets.LargeList(value("int64")), [[i, 2] for i in range(COUNT)]),
        "lists of lists": (datasets.List(datasets.List(value("int32"))), [[[i], [2]] for i in range(COUNT)]),
        "texts": (datasets.List(value("string")), [[str(i), "b"] for i in range(COUNT)]),
        "times": (datasets.List(value("timestamp[s]")), [[datetime.datetime(2026, 1, 1)] for i in range(COUNT)]),
        "dict": ({"a": value("int64"), "b": value("string")}, [{"a": i, "b": str(i)} for i in range(COUNT)]),
    }
    return columns | {name: each for name, (_, each) in more.items()}, datasets.Features(
        kinds | {name: kind for name, (kind, _) in more.items()}
    )


FORMATTED = ["int8", "int64", "float32", "float64", "string", "binary", "bool", "class", "floats", "varying", "texts"]


@pytest.mark.parametrize("parts", [1, 5])
def test_huggingface(parts: int, caplog: pytest.LogCaptureFixture) -> None:
    datasets = pytest.importorskip("datasets")
    columns, features = huggingface_columns(datasets)
    cuts = np.linspace(0, COUNT, parts + 1).astype(int).tolist()
    several = [
        datasets.Dataset.from_dict({name: each[low:high] for name, each in columns.items()}, features)
        for low, high in itertools.pairwise(cuts)
    ]
    source = datasets.concatenate_datasets(several)
    with caplog.at_level("INFO", "ffrecord"):
        check(source)
    assert "made by Python in columns" in caplog.text
    check(source.shuffle(seed=1))
    check(source.select(range(5, COUNT - 3)))
    check(source.select([3, 3, 1, COUNT - 1]).select([2, 0]))
    check(source.with_format(None, columns=["int8", "texts"]))
    for kind in ("torch", "numpy"):
        check(source.with_format(kind, columns=FORMATTED))
        check(source.shuffle(seed=2).with_format(kind, columns=["int8", "texts"], output_all_columns=True))
    check(source, fields=["class", "floats"])
    check(Subset(source, range(COUNT - 1, 3, -1)))


def test_huggingface_samples_that_others_make() -> None:
    """A format, a transform, a subclass or a feature that decodes: rows are made as these make them."""
    datasets = pytest.importorskip("datasets")

    class Doubled(datasets.Dataset):  # type: ignore[name-defined,misc]
        def __getitems__(self, keys: Any) -> Any:
            return [{"x": 2 * key} for key in keys]

    source = datasets.Dataset.from_dict({"x": list(range(COUNT))})
    doubled = Doubled(source.data, source.info)
    (batch,) = Loader(doubled, COUNT, shuffle=False)
    assert batch["x"].tolist() == [2 * i for i in range(COUNT)]
    (batch,) = Loader(source.with_transform(lambda rows: {"y": [3 * x for x in rows["x"]]}), COUNT, shuffle=False)
    assert batch["y"].tolist() == [3 * i for i in range(COUNT)]
    for kind in ("numpy", "torch"):
        check(source.with_format(kind))
    matrix = datasets.Features({"m": datasets.Array2D((2, 3), "float32")})
    check(datasets.Dataset.from_dict({"m": [np.full((2, 3), i, np.float32) for i in range(COUNT)]}, matrix))


def test_huggingface_values_that_are_missing() -> None:
    """They are told as they are for rows."""
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"x": [1, None, 3], "text": ["a", None, "c"]})
    with Loader(source, 3, shuffle=False, fields=["text"]) as loader:
        assert [batch["text"] for batch in loader] == [["a", None, "c"]]
    message = "sample 1: column 'x' is None, but int 1 in the first sample of the batch"
    for options in ({}, {"transform": same}):
        with Loader(source, 3, shuffle=False, **options) as loader, pytest.raises(UserFunctionError, match=message):
            list(loader)


def test_huggingface_in_workers(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"x": list(range(COUNT)), "t": [str(i) for i in range(COUNT)]}).save_to_disk(
        tmp_path / "d"
    )
    source = datasets.load_from_disk(str(tmp_path / "d"))
    for method in ("fork", "spawn"):
        with Loader(source, 7, shuffle=True, num_workers=2, multiprocessing_context=method) as loader:
            found = [pair for batch in loader for pair in zip(batch["x"].tolist(), batch["t"], strict=True)]
        assert sorted(found) == [(i, str(i)) for i in range(COUNT)]


@pytest.mark.parametrize("fields", [None, ["x", "t"]])
def test_a_format_set_later(fields: Any) -> None:
    """The dataset's format is that of the moment, as it is for rows; named columns are taken as they were."""
    datasets = pytest.importorskip("datasets")
    for change in ("before", "between"):
        source = datasets.Dataset.from_dict({"x": [1, 2, 3, 4], "t": list("abcd")})
        loader = Loader(source, 2, shuffle=False, fields=fields)
        batches = iter(loader)
        if change == "between":
            assert next(batches)["x"].tolist() == [1, 2]
        source.set_transform(lambda rows: {"x": [9 for _ in rows["x"]], "t": rows["t"]})
        if fields is None:
            assert [batch["x"].tolist() for batch in loader] == [[9, 9], [9, 9]]
        source.set_format("numpy", columns=["x"])
        assert [list(batch) for batch in loader] == [["x"] if fields is None else ["x", "t"]] * 2


def test_the_pickle_of_a_dataset_with_fewer_columns() -> None:
    datasets = pytest.importorskip("datasets")
    whole = datasets.Dataset.from_dict({"x": list(range(50_000)), "y": [1.0] * 50_000, "left out": ["a"] * 50_000})
    source = whole.with_format(None, columns=["x", "y"]).shuffle(seed=1)
    store = store_of_dataset(source)
    assert len(store.fetch_columns([3, 4])["x"]) == 2
    assert len(pickle.dumps(store)) < 1.05 * len(pickle.dumps(source))
    assert pickle.loads(pickle.dumps(store)).fetch_columns([7])["x"] == store.fetch_columns([7])["x"]


def test_a_stale_format() -> None:
    datasets = pytest.importorskip("datasets")
    source = datasets.Dataset.from_dict({"s": [{"x": 1}, {"x": 2}]}).with_format(None, columns=["s"]).flatten()
    with Loader(source, 1, shuffle=False) as loader, pytest.raises(UserFunctionError):
        list(loader)


@pytest.mark.parametrize("kind", ["table", "frame"])
def test_columns_that_are_left_out_may_be_of_any_type(kind):
    arrow, pandas = pytest.importorskip("pyarrow"), pytest.importorskip("pandas")
    columns = {"i": [1, 2], "t": [datetime.time(1), datetime.time(2)]}
    source = arrow.table(columns) if kind == "table" else pandas.DataFrame(columns)
    with Loader(source, 2, shuffle=False, fields=["i"]) as loader:
        assert [batch["i"].tolist() for batch in loader] == [[1, 2]]
    if kind == "table":
        with pytest.raises(FormatError, match="column 't' has type time64"):
            Loader(source, 2)
