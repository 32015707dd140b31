"""Sources of `convert`: each becomes samples by index, or samples one after the other. None may contain the output."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from itertools import islice
from typing import Any

import numpy as np

from ffrecord.conversion import parquet
from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError, add_place_to_memory_errors
from ffrecord.fields import BytesField, Schema
from ffrecord.inputs import huggingface
from ffrecord.inputs.columns import ColumnFacts, choose_columns
from ffrecord.inputs.recognise import InferColumns, JoinInput, StackInput, infer_columns, input_of, open_store_samples
from ffrecord.inputs.stores import (
    DATA,
    KEY,
    PROBED_BYTES,
    PROBES,
    WEB_KEY,
    check_files,
    columns_of_bytes,
    empty_schema,
    is_text,
    with_bytes_key,
)
from ffrecord.inputs.tables import values_of
from ffrecord.reading.paths import is_remote
from ffrecord.reading.store import Store
from ffrecord.sources.detect import detect
from ffrecord.sources.files import expand
from ffrecord.sources.images.image_folder import ImageFolderReader
from ffrecord.sources.inflated import LONGEST, compression_of
from ffrecord.sources.opening import check_format_name, check_options, detect_first, first_of, local_paths, open_for
from ffrecord.sources.registry import SUFFIXES
from ffrecord.sources.tar.stream import iter_members, iter_samples
from ffrecord.system.values import check_characters, check_samples, describe_wrong

CONVERT = "ffrecord.convert"
Samples = Iterator[tuple[str, dict[str, Any]]]  # each with its archive


@dataclass(frozen=True)
class ConversionInput:
    """The samples of a source, and the way to store them.

    Attributes:
        dataset: samples by len() and [i]; None if they only come one after the other.
        samples: a function that begins a new pass over the samples.
        fields: a Schema, or fields as `DatasetWriter` takes them; None: the first samples decide.
        once: whether `samples` can be called only once.
    """

    dataset: Any
    samples: Callable[[], Iterator[Any]]
    fields: Any = None
    once: bool = False

    @property
    def schema(self) -> Schema | None:
        """The schema of the result, if it is known before writing; else None."""
        return self.fields if isinstance(self.fields, Schema) else None


@contextmanager
def open_input(
    source: Any,
    format: str | None,
    fields: Any,
    options: Mapping[str, Any],
    storage_options: Mapping[str, Any] | None = None,
    *,
    skips: bool = False,
    infer: InferColumns = infer_columns,
) -> Iterator[ConversionInput]:
    """Recognise `source` and open it. Files that are opened here are closed at the end of `with`.

    Args:
        source, format, fields, options: arguments of `convert`.
        storage_options: options of the reader for a URL.
        skips: whether unreadable samples are left out when the first samples are read to find the columns.
        infer: function that returns the columns of a dataset beside ours, see `recognise.StackInput`.

    Raises:
        The errors of `convert`.
    """
    check_format_name("format", format)
    if isinstance(source, Store):
        # Options are of readers that are opened here.
        _refuse({**options, **_format_option(format)}, "an open store")
        yield _from_store(source, fields, skips)
    elif _is_path(source):
        # Only for URLs: other readers do not know the option.
        of_url = {"storage_options": storage_options} if is_remote(local_paths(source)) else {}
        with _open_path(source, format, fields, {**of_url, **options}, skips) as found:
            yield found
    else:
        _refuse({**options, **_format_option(format)}, type(source).__name__)
        yield _from_object(source, fields, skips, infer)


def _is_path(source: Any) -> bool:
    several = source if isinstance(source, list | tuple) else [source]
    return bool(several) and all(isinstance(each, str | os.PathLike) for each in several)


def _format_option(format: str | None) -> dict[str, Any]:
    return {} if format is None else {"format": format}


def _refuse(options: Mapping[str, Any], what: str) -> None:
    if options:
        raise ArgumentTypeError(f"{next(iter(options))!r} is not an argument for {what}")


@contextmanager
def _open_path(
    source: Any, format: str | None, fields: Any, options: dict[str, Any], skips: bool
) -> Iterator[ConversionInput]:
    paths = local_paths(source)
    kind = detect_first(paths) if format is None else format
    if kind == "zip" and format is None:
        _refuse_arrays(first_of(paths))
    if kind == "parquet":
        _refuse(options, "Parquet files")
        with closing(parquet.ParquetDataset(paths, fields, skips=skips)) as dataset:
            yield _from_columns(dataset)
    # A compressed tar has no index by bytes, so its members come one after the other.
    elif kind in ("tar", "webdataset") and _is_compressed(first_of(paths, SUFFIXES["tar"])):
        read = iter_samples if kind == "webdataset" else iter_members
        check_options(options, f"compressed {kind}", [*signature(read).parameters][1:], CONVERT)
        yield _from_archives(
            expand(paths, SUFFIXES["tar"]), kind, partial(_read_archives, read, options), fields, skips
        )
    else:
        with open_for(CONVERT, source, format, options) as store:
            yield _from_store(store, fields, skips)


def _refuse_arrays(path: str) -> None:
    """Refuse a file of numpy: as a zip, each array would be one sample, of the bytes of its `.npy`."""
    if path.lower().endswith(".npz"):
        raise ArgumentError(
            f"{path} has arrays of numpy: run `ffrecord write {path} OUT` to make samples of them; pass "
            'format="zip" to convert its files'
        )


def _is_compressed(path: str) -> bool:
    """Tell whether a file is a tar that is compressed as a whole."""
    if not os.path.isfile(path) or detect(path) != "tar":
        # A URL, or a directory of other files.
        return False
    with open(path, "rb") as file:
        # Only the first bytes: they tell the compression.
        return compression_of(file.read(LONGEST)) is not None


def _from_store(store: Store, fields: Any, skips: bool) -> ConversionInput:
    return _from_columns(open_store_samples(store, fields, skips))


def _from_columns(dataset: Any) -> ConversionInput:
    """Wrap a dataset that knows its columns."""
    columns = dataset.columns
    return ConversionInput(
        dataset, lambda: map(dataset.__getitem__, range(len(dataset))), None if columns is None else columns.schema
    )


def _from_object(source: Any, fields: Any, skips: bool, infer: InferColumns) -> ConversionInput:
    check_samples("source", source)
    source = values_of(source)
    # Before `input_of`, which takes such a dataset for an unknown object.
    huggingface.check_format(source)
    found = input_of(source)
    if isinstance(found, StackInput | JoinInput):
        found.infer = infer
    if found is not None:
        return _from_columns(found.dataset(fields, skips=skips))
    if hasattr(source, "__len__") and hasattr(source, "__getitem__"):
        return ConversionInput(source, lambda: map(source.__getitem__, range(len(source))), fields)
    if not isinstance(source, Iterable):
        raise ArgumentTypeError(describe_wrong("source", source, "a path, a store, a dataset or an iterable"))
    # An iterator is its own `iter`, and gives its samples once.
    stream = huggingface.name_stream(source, None if fields is None else Schema.of(fields))
    return ConversionInput(None, lambda: iter(stream), fields, once=iter(stream) is stream)


def _from_archives(
    paths: Sequence[str], format: str, read: Callable[[Sequence[str]], Samples], fields: Any, skips: bool
) -> ConversionInput:
    """Return the samples of compressed archives. A file in whose place something else came is an error of its sample.

    Args:
        read: function that returns each sample of some archives with the archive.
        skips: whether samples with errors may be left out.
    """
    check = _FileCheck(format, columns_of_bytes(fields))

    def begin() -> Iterator[dict[str, Any]]:
        for path, sample in read(paths):
            if not skips:
                check(sample, path)
            yield sample

    if not skips:
        return _from_stream(begin, fields)
    # An iterable that raises has no more samples. So each sample is checked where it is encoded; but those that show
    # the columns are good ones.
    first = _read_first(begin)
    good = [sample for sample in first if check.accepts(sample)]
    if first and not good:
        check(first[0], paths[0])
    found = _from_first(good, begin, fields)
    return replace(found, fields=_CheckedSchema(found.fields, check))


@dataclass(frozen=True)
class _FileCheck:
    """A check that samples of an archive have files of data, see `stores.check_files`.

    Attributes:
        format: format of the archive.
        kept: columns with any bytes.
    """

    format: str
    kept: frozenset[str]

    def __call__(self, sample: Any, path: str | None = None) -> None:
        """Raise FormatError, with the name of the sample and of its archive, if they are known, unless it is good."""

        def name() -> str:
            key = repr(sample.get(KEY, sample.get(WEB_KEY)))
            return key if path is None else f"{path}: {key}"

        check_files(self.format, sample, name, self.kept)

    def accepts(self, sample: Any) -> bool:
        """Tell whether a sample is good."""
        try:
            self(sample)
        except FormatError:
            return False
        return True


class _CheckedSchema(Schema):
    """A schema that checks samples before it encodes them."""

    def __init__(self, schema: Schema, check: _FileCheck) -> None:
        super().__init__(schema._tree)
        self._check = check

    def encode(self, sample: Any) -> bytes:
        self._check(sample)
        return super().encode(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return _CheckedSchema, (Schema(self._tree), self._check)


def _read_archives(read: Callable[..., Iterator[Any]], options: Mapping[str, Any], paths: Sequence[str]) -> Samples:
    """Yield each member, or sample, of archives, one after the other, with the path of its archive."""
    for path in paths:
        for found in _naming_memory_errors(path, read(path, **options)):
            yield path, found if isinstance(found, dict) else {KEY: found.name, DATA: found.data}


def _naming_memory_errors(path: str, members: Iterator[Any]) -> Iterator[Any]:
    """Yield members of an archive, and add its path to a MemoryError while they are read."""
    with add_place_to_memory_errors(lambda: path):
        yield from members


def _from_stream(begin: Callable[[], Iterator[Any]], fields: Any) -> ConversionInput:
    """Return samples that can be begun anew, but not read by index. The first ones decide the columns."""
    return _from_first(_read_first(begin), begin, fields)


def _from_first(first: list[dict[str, Any]], begin: Callable[[], Iterator[Any]], fields: Any) -> ConversionInput:
    """Return samples of which the first ones are known."""
    # Without a sample nothing shows the columns.
    if not first:
        return ConversionInput(None, begin, empty_schema(fields))
    names = [str(sample[key]) for sample in first for key in (KEY, WEB_KEY) if key in sample]
    # One column has one type, so all names become bytes if one has to.
    if _wants_bytes(fields) or not all(map(is_text, names)):
        return _with_inferred_columns(
            [with_bytes_key(sample) for sample in first], lambda: map(with_bytes_key, begin()), fields
        )
    return _with_inferred_columns(first, begin, fields)


def _wants_bytes(fields: Any) -> bool:
    """Tell whether names should be bytes: later names may not be UTF-8 even if the first ones are."""
    return isinstance(fields, Mapping) and any(isinstance(fields.get(key), BytesField) for key in (KEY, WEB_KEY))


def _with_inferred_columns(
    first: list[dict[str, Any]], begin: Callable[[], Iterator[Any]], fields: Any
) -> ConversionInput:
    arrays = {key for sample in first for key, value in sample.items() if isinstance(value, np.ndarray)}
    names = [_describe_sample(place, sample) for place, sample in enumerate(first)]
    columns = choose_columns(first, fields, ColumnFacts(frozenset(arrays)), names)
    return ConversionInput(None, lambda: map(columns.prepare, begin()), columns.schema)


def _describe_sample(place: int, sample: Mapping[str, Any]) -> str:
    """Return the name of a sample of an archive for messages."""
    name = next((sample[key] for key in (KEY, WEB_KEY) if key in sample), None)
    return f"sample {place}" if name is None else f"sample {place} ({name!r})"


def _read_first(begin: Callable[[], Iterator[Any]]) -> list[dict[str, Any]]:
    """Read some samples, of bounded total size."""
    found: list[dict[str, Any]] = []
    size = 0
    for sample in islice(begin(), PROBES):
        found.append(sample)
        # Only arrays count: other values are small.
        size += sum(len(value) for value in sample.values() if isinstance(value, np.ndarray))
        if size > PROBED_BYTES:
            break
    return found


def paths_of(source: Any) -> list[str]:
    """Return the paths that a source reads. Of open stores only image folders have one; others have a list of files."""
    # Whatever files appear in this directory are samples, so nothing may be written into it.
    if isinstance(source, ImageFolderReader):
        return [source.root]
    several = source if isinstance(source, list | tuple) else [source]
    if not all(isinstance(each, str | os.PathLike) for each in several):
        # Objects in memory have no paths.
        return []
    return [check_characters("source", path) for path in map(os.fspath, several) if isinstance(path, str)]
