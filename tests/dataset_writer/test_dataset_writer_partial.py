"""DatasetWriter with fields for some columns: samples show the others, wherever they come from."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, MismatchError, WorkerError
from ffrecord.fields import FloatField, IntField, NDArrayField, OptionalField, Schema, StrField, ZstdField, schema_of

SAMPLES = [{"a": i, "m": {"t": "x", "k": [i] * 3}, "b": i / 2} for i in range(50)]
TEXT = ZstdField(StrField()) if find_spec("zstandard") else OptionalField(StrField())  # neither would be inferred
FIELDS = {"m": {"t": TEXT}, "b": FloatField()}
COMPLETE = {"a": IntField(), "m.t": TEXT, "m.k": NDArrayField("int64", (3,)), "b": FloatField()}


def writer(path: Path, fields: Any = None, **options: Any) -> DatasetWriter:
    return DatasetWriter(path, fields, **{"num_workers": 0, "progress": False, **options})


def columns(path: Path) -> dict[str, Any]:
    with FileReader(path) as reader:
        schema = schema_of(reader)
        assert schema is not None
        assert reader.n == 0 or np.array_equal(reader.sample(-1)["m"]["k"], [49] * 3)
        return dict(schema.fields)


def of_line(line: str) -> Any:
    return SAMPLES[int(line)]


def of_shard(name: str) -> Any:
    return iter(SAMPLES)


CALLS: dict[str, Any] = {
    "from_indexed_dataset": lambda writer: writer.from_indexed_dataset(SAMPLES),
    "from_iterable": lambda writer: writer.from_iterable(iter(SAMPLES), 50),
    "from_list": lambda writer: writer.from_list([str(i) for i in range(50)], of_line),
    "from_list once": lambda writer: writer.from_list((str(i) for i in range(50)), of_line),
    "from_webdataset": lambda writer: writer.from_webdataset(["a", "b"], of_shard),
}


@pytest.mark.parametrize("cut", [{}, {"samples_per_shard": 20}])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("call", CALLS)
def test_the_rest_is_inferred(tmp_path: Path, call: str, workers: int, cut: dict[str, int]) -> None:
    CALLS[call](writer(tmp_path / "a", FIELDS, num_workers=workers, **cut))
    assert columns(tmp_path / "a") == COMPLETE
    assert list(columns(tmp_path / "a")) == list(COMPLETE)  # as samples have them
    CALLS[call](writer(tmp_path / "a", {"b": FloatField()}, mode="append", num_workers=workers, **cut))
    with FileReader(tmp_path / "a") as reader:
        assert reader.n == (200 if call == "from_webdataset" else 100)
    for wrong, words in (({"b": IntField()}, "kind was 'float', is 'int'"), ({"z": IntField()}, "is 'z'")):
        with pytest.raises(MismatchError, match=words):
            CALLS[call](writer(tmp_path / "a", wrong, mode="append", num_workers=workers))


def test_converted(tmp_path: Path) -> None:
    ffrecord.convert(SAMPLES, tmp_path / "a", fields=FIELDS, num_workers=0, verify=True)
    ffrecord.convert(iter(SAMPLES), tmp_path / "b", fields=FIELDS, num_workers=0)
    assert columns(tmp_path / "a") == columns(tmp_path / "b") == COMPLETE


@pytest.mark.parametrize("call", CALLS)
def test_a_schema_is_all_of_it(tmp_path: Path, call: str) -> None:
    with pytest.raises(WorkerError, match="unexpected key 'a', expected keys 'm', 'b'"):
        CALLS[call](writer(tmp_path / "a", Schema.of(FIELDS)))


@pytest.mark.parametrize("call", CALLS)
def test_a_field_for_no_column(tmp_path: Path, call: str) -> None:
    with pytest.raises(WorkerError, match="key 'z' is missing"):
        CALLS[call](writer(tmp_path / "a", {"z": IntField()}))


@pytest.mark.parametrize("workers", [0, 2])
def test_no_samples(tmp_path: Path, workers: int) -> None:
    writer(tmp_path / "a", FIELDS, num_workers=workers).from_iterable([])
    writer(tmp_path / "b", FIELDS, num_workers=workers).from_webdataset(["a"], lambda name: [])
    writer(tmp_path / "c", FIELDS, num_workers=workers).from_list([], of_line)
    writer(tmp_path / "d", FIELDS, num_workers=workers).from_indexed_dataset([])
    for name in "abcd":
        with FileReader(tmp_path / name) as reader:
            assert schema_of(reader) == Schema.of(FIELDS)


def test_other_fields_are_not_gone_on_with(tmp_path: Path) -> None:
    pytest.importorskip("zstandard", reason="zstandard is not installed")
    lines = [str(i) for i in range(49)]
    with pytest.raises(WorkerError, match="failed at line 50"):
        writer(tmp_path / "a", FIELDS, samples_per_shard=10).from_list([*lines, "no number"], of_line, chunksize=5)
    with pytest.raises(MismatchError, match="level was 3, is 4"):
        other = {**FIELDS, "m": {"t": ZstdField(StrField(), level=4)}}
        writer(tmp_path / "a", other, samples_per_shard=10).from_list([*lines, "no number"], of_line)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("fields", [None, {"a": IntField()}])
def test_a_key_that_samples_lack(tmp_path: Path, workers: int, fields: Any) -> None:
    """The sample is named by its index, and what is advised helps."""
    lacking: list[dict[str, Any]] = [*([{"a": 1, "b": 1}] * 12), {"a": 1}, *([{"a": 1, "b": 2}] * 3)]
    of = "a dict of 2 in the first sample, a dict of 1" if fields is None else "a dict of 1 .*, a dict of 0"
    with pytest.raises(ValueError, match=rf"{of} in sample 12, only one of them has key 'b'; every sample"):
        writer(tmp_path / "out", fields, num_workers=workers).from_indexed_dataset(lacking)
    mended = [{"b": None, **each} for each in lacking]
    writer(tmp_path / "out", {"b": OptionalField(IntField())}, num_workers=workers).from_indexed_dataset(mended)
    with FileReader(tmp_path / "out") as reader:
        assert [sample["b"] for sample in reader.samples(range(16))] == [each["b"] for each in mended]
