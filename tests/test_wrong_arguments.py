"""Wrong values for arguments of what is public: the error names the argument, or the value, in a class that fits."""

import decimal
import itertools
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ffrecord
from ffrecord import DatasetWriter, FileReader, FileWriter
from ffrecord.fields import NDArrayField, ScalarField, Schema
from ffrecord.order import Cursor, Identity, Weighted, balance_classes
from ffrecord.utils import dump

SAMPLES = [{"id": i, "x": np.arange(3) + i} for i in range(6)]
WRONG: dict[str, Any] = {
    "None": None,
    "text": "zz",
    "empty": "",
    "bytes": b"zz",
    "float": 1.5,
    "NaN": float("nan"),
    "inf": float("inf"),
    "huge": 2**70,
    "negative": -1000,
    "nested": [[1, 2], [3]],
    "texts": ["a"],
    "nones": [None],
    "floats": [1.5],
    "float32": np.float32(1.5),
    "bool": np.bool_(True),
    "uint64": np.uint64((1 << 63) + 5),
    "str_": np.str_("zz"),
    "time": np.datetime64("2020-01-01"),
    "duration": np.timedelta64(5, "s"),
    "objects": np.array([None, 1], object),
    "array of floats": np.array([0.5]),
    "two axes": np.zeros((2, 2), int),
    "complex": 1j,
    "dict": {"a": 1},
    "set": {1},
    "function": len,
    "object": object(),
    "Decimal": decimal.Decimal(1),
    "class": int,
    "half a letter": "\ud800",
    "null": "a\0b",
    "long": "n" * 5000,
}
# Built-in errors that Python or a package raises for what it is given, without a word of ours.
BARE = re.compile(
    r"cannot be interpreted as an integer|is not iterable|is ambiguous|unhashable|embedded null|surrogates not allowed"
    r"|only integer|has no (attribute|len)|descriptor|not supported between|must be real number|unpacking"
    r"|required positional|unexpected keyword|^0$|^'\w+'$"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("wrong") / "set"
    DatasetWriter(directory, num_workers=0).from_indexed_dataset(SAMPLES)
    return str(directory)


def tell(call: Callable[[Any], object], known: str, most: int = 1 << 62, least: int = 27) -> None:
    """Try every wrong value; `known` is a pattern of the words that name the argument.

    At least `least` of them must be refused: what is right for some arguments is in the list, too.
    """
    bad, refused = [], 0
    for name, value in WRONG.items():
        if isinstance(value, int) and value > most:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                call(value)
        except (TypeError, ValueError, LookupError, OSError, RuntimeError, AssertionError, ArithmeticError) as error:
            refused += 1
            said = str(error)
            ours = type(error).__module__ == "ffrecord.errors" or type(error) in (TypeError, ValueError)
            ours |= isinstance(error, OSError) and error.filename is not None
            ours &= not BARE.search(said) or re.search("expected|device is|give it a __len__", said) is not None
            if not ours or not re.search(known, said):
                bad.append(f"{name}: {type(error).__name__}: {said[:200]}")
    assert bad == []
    assert refused >= least


numbers = itertools.count()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Callable[[], str]]:
    yield lambda: str(tmp_path / f"out{next(numbers)}")


INDEX = r"\bind(ex|ices)\b"
READER: dict[str, tuple[Callable[[FileReader, Any], object], str]] = {
    "read": (lambda reader, value: reader.read(value), INDEX),
    "read_packed": (lambda reader, value: reader.read_packed(value), INDEX),
    "samples": (lambda reader, value: reader.samples(value), INDEX),
    "read_one": (lambda reader, value: reader.read_one(value), INDEX),
    "sample": (lambda reader, value: reader.sample(value), INDEX),
    "[]": (lambda reader, value: reader[value], INDEX),
    "locate": (lambda reader, value: reader.locate(value), INDEX),
    "record_sizes": (lambda reader, value: reader.record_sizes(value), INDEX),
    "get_offsets": (lambda reader, value: reader.get_offsets(value), "file_index"),
    "fingerprint": (lambda reader, value: reader.fingerprint(value), "shards"),
    "read_columns": (lambda reader, value: reader.read_columns(value, 32, [(0, 8)]), INDEX),
    "record_size": (lambda reader, value: reader.read_columns([0], value, [(0, 8)]), "record_size|bytes"),
    "slots": (lambda reader, value: reader.read_columns([0], 32, value), "slot"),
    "get_checksums": (lambda reader, value: reader.get_checksums(value), "file_index"),
    "batches": (lambda reader, value: list(reader.iter_batches(value)), r"batches|ind(ex|ices)\b"),
    "prefetch": (lambda reader, value: list(reader.iter_batches([[0]], value)), "prefetch"),
}


@pytest.mark.parametrize("name", READER)
def test_methods_of_a_reader(path: str, name: str) -> None:
    call, known = READER[name]
    with FileReader(path) as reader:
        tell(lambda value: call(reader, value), known)


@pytest.mark.parametrize("name", ["io", "on_error", "fname"])
def test_arguments_of_a_reader(path: str, name: str) -> None:
    known = name if name != "fname" else r"fname|\b(exist|\.ffr|found|long|shard|path)"
    tell(lambda value: FileReader(**{"fname": path, name: value}).close(), known)


@pytest.mark.parametrize("name", ["storage_options", "cache_limit"])
def test_arguments_of_a_reader_of_urls(tmp_path: Path, name: str) -> None:
    """They are refused before anything is asked for."""
    pytest.importorskip("obstore")
    others = {"storage_options": {"max_tries": 1}, "cache_dir": tmp_path}

    def read(value: Any) -> None:
        if value is not None:
            FileReader("http://127.0.0.1:9/x.ffr", **{**others, name: value}).close()

    tell(read, name)


@pytest.mark.parametrize("name", ["format", "io", "on_error", "index_cache"])
def test_arguments_of_open(path: str, name: str) -> None:
    tell(lambda value: ffrecord.open(path, **{name: value}).close(), name)


def test_a_writer_of_a_file(fresh: Callable[[], str]) -> None:
    def write(value: Any, call: str) -> None:
        with FileWriter(f"{fresh()}.ffr") as writer:
            getattr(writer, call)(value)

    tell(lambda value: write(value, "write_one"), r"\.ffr: sample 0: ", least=22)  # the others have bytes
    tell(lambda value: write(value, "write_many"), r"samples is|\.ffr: sample 0: ")
    tell(lambda value: FileWriter(f"{fresh()}.ffr", 1, extension=value), "extension")

    def begin(value: Any) -> None:
        with pytest.raises(ZeroDivisionError), FileWriter(f"{fresh()}.ffr", value):
            raise ZeroDivisionError

    def write_packed(data: Any, offsets: Any) -> None:
        with FileWriter(f"{fresh()}.ffr") as writer:
            writer.write_packed(data, offsets)

    tell(lambda value: write_packed(b"abc", value), "offsets")
    tell(lambda value: write_packed(value, [0, 0]), "sample|bytes", least=10)
    tell(lambda value: dump(SAMPLES, f"{fresh()}.ffr", value, serializer=pickle.dumps), "nfiles", most=8)
    tell(lambda value: dump(value, f"{fresh()}.ffr", 1), "dataset|sample|len", least=24)
    tell(begin, r"\bn is|reserving", most=1 << 20)


OPTIONS = ("fields", "serializer", "shard_size", "samples_per_shard", "num_shards", "start_method", "progress")
MORE = ("stuck_after", "mode", "resume", "on_error")


@pytest.mark.parametrize("name", [*OPTIONS, *MORE, "num_workers"])
def test_arguments_of_a_dataset_writer(fresh: Callable[[], str], name: str) -> None:
    def write(value: Any) -> None:
        if name == "serializer" and callable(value):
            return
        made = DatasetWriter(fresh(), **{"num_workers": 0, "progress": False, name: value})
        if name != "num_workers":
            made.from_indexed_dataset(SAMPLES)

    known = {"fields": "fields|column|sample|expected a Field"}.get(name, name)
    tell(write, known, most=1000)


CALLS = ("indices", "chunksize", "shuffle_indices", "fingerprint")


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_a_write(fresh: Callable[[], str], name: str) -> None:
    known = INDEX if name == "indices" else name
    writer = lambda: DatasetWriter(fresh(), num_workers=0, progress=False)  # noqa: E731
    least = 24 if name == "fingerprint" else 27  # any text or number is one
    tell(lambda value: writer().from_indexed_dataset(SAMPLES, **{name: value}), known, least=least)
    if name == "chunksize":
        tell(lambda value: writer().from_iterable(iter(SAMPLES), chunksize=value), known)
        tell(lambda value: writer().from_iterable(iter(SAMPLES), length=value), "length|the iterable gives")
        tell(lambda value: writer().from_list(value, len), "lines_or_file|line \\d|No such file|name too long")


FIELDS = ("fields", "verify", "format", "resume", "mode", "shard_size", "samples_per_shard", "num_shards")


@pytest.mark.parametrize("name", [*FIELDS, "max_skipped", "start_method", "progress"])
def test_arguments_of_convert(path: str, fresh: Callable[[], str], name: str) -> None:
    known = {"fields": "fields|column|sample|expected a Field"}.get(name, name)
    tell(lambda value: ffrecord.convert(path, fresh(), **{"num_workers": 0, "progress": False, name: value}), known)


@pytest.mark.parametrize("name", ["format", "verify", "samples_per_shard", "source_format", "start_method", "progress"])
def test_arguments_of_export(path: str, fresh: Callable[[], str], name: str) -> None:
    options = {"num_workers": 0, "progress": False}
    tell(
        lambda value: ffrecord.export(path, f"{fresh()}.zip", **{**options, name: value}), name.removeprefix("source_")
    )


def test_sources_and_targets(path: str, fresh: Callable[[], str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    words = r"source|out\b|path|fname|sample|column|iterable|exist|No such|too long|suffix|list|file"
    tell(lambda value: ffrecord.convert(value, fresh(), num_workers=0, progress=False), words, least=24)
    tell(lambda value: ffrecord.export(value, f"{fresh()}.zip", num_workers=0, progress=False), words, least=24)
    tell(lambda value: ffrecord.recover(value), words)
    tell(lambda value: ffrecord.pack_folder(value, f"{fresh()}.ffr"), r"exist|directory|No such|too long|is ")
    tell(ffrecord.checkFsAlign, r"\bfd\b")
    tell(lambda value: ffrecord.open(value), words)


ORDERS = ("order", "batch_size", "seed", "epoch", "rank", "world_size", "policy", "indices", "drop_last", "weights")


@pytest.mark.parametrize("name", ORDERS)
def test_arguments_of_an_order(name: str) -> None:
    known = {"rank": "rank", "world_size": "rank|world_size", "weights": "weight", "indices": INDEX}.get(name, name)
    if name == "weights":
        tell(lambda value: Weighted(value), "weight")
        return
    tell(lambda value: Cursor(Identity(6), **{"order": "random", name: value}), known, most=8)


@pytest.mark.parametrize("name", ["fields", "decode", "transform", "io", "on_error", "fnames"])
def test_arguments_of_a_torch_dataset(path: str, name: str) -> None:
    datasets = pytest.importorskip("ffrecord.torch", reason="torch is not installed")
    known = {"fnames": r"fname|\b(exist|\.ffr|found|long|shard|path)", "fields": "fields|column"}.get(name, name)
    tell(lambda value: datasets.Dataset(**{"fnames": path, name: value})[0], known)


SAMPLER = ("order", "seed", "epoch", "rank", "world_size", "policy", "indices", "weights", "class_balanced", "shuffle")


@pytest.mark.parametrize("name", [*SAMPLER, "batch_size", "drop_last"])
def test_arguments_of_samplers(path: str, name: str) -> None:
    samplers = pytest.importorskip("ffrecord.torch", reason="torch is not installed")
    known = {"rank": "rank", "world_size": "rank|world_size", "weights": "weight", "indices": INDEX}
    known |= {"class_balanced": "class_balanced|label|column"}
    with FileReader(path) as reader:
        if name not in ("batch_size", "drop_last"):
            tell(lambda value: next(iter(samplers.Sampler(reader, **{name: value})), None), known.get(name, name))
        batches = {"batch_size": 2}
        tell(
            lambda value: next(iter(samplers.BatchSampler(reader, **{**batches, name: value})), None),
            known.get(name, name),
            most=8,
        )


def test_fields_and_orders() -> None:
    schema = Schema.of({"a": ScalarField("int8")})
    tell(Schema.of, "expected a Field|column|key")
    tell(Schema.infer, "sample|column|list|key|value", least=19)
    tell(schema.encode, r"\ba\b|sample")
    tell(
        lambda value: schema.decode(value) if not isinstance(value, np.ndarray) else None, "record|column|bytes|buffer"
    )
    tell(ScalarField, "dtype|scalar|field", least=24)
    tell(lambda value: NDArrayField("int8", value), "shape")
    tell(balance_classes, "labels|int|sample")


LOADER = (
    "batch_size",
    "order",
    "seed",
    "epoch",
    "sampler",
    "batch_sampler",
    "weights",
    "class_balanced",
    "num_threads",
)
LOADER_FLAGS = ("check_data", "pin_memory", "persistent_workers", "drop_last", "multiprocessing_context")
LOADER_MORE = ("prefetch", "rank", "world_size", "policy", "fields", "indices", "decode", "ragged", "transform")
LOADER_LAST = ("collate_fn", "batch_transform", "timeout", "device", "io", "on_error", "placement")


@pytest.mark.parametrize("name", [*LOADER, *LOADER_FLAGS, *LOADER_MORE, *LOADER_LAST])
def test_arguments_of_a_loader(path: str, name: str) -> None:
    loaders = pytest.importorskip("ffrecord.torch", reason="torch is not installed")
    known = {
        "class_balanced": "class_balanced|label|column",
        "sampler": r"sampler|ind(ex|ices)\b",
        "batch_sampler": r"batch_sampler|ind(ex|ices)\b|batch",
        "weights": "weight",
        "rank": "rank",
        "world_size": "rank|world_size",
        "decode": "decode",
        "transform": "transform|sample",
        "batch_transform": "batch_transform|sample",
        "collate_fn": "collate_fn|sample",
        "placement": "placement|node",
        "fields": "fields|column",
        "indices": INDEX,
    }.get(name, name)

    def load(value: Any) -> None:
        with loaders.Loader(path, **{"batch_size": 2, "num_threads": 0, name: value}) as loader:
            next(iter(loader), None)

    tell(load, known, most=8)
