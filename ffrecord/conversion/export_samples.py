"""Samples of a source, and the files or the record that each becomes."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.conversion.export_files import Content, Naming, content_of, content_of_bytes
from ffrecord.dataset_writer.sample_sources import dataset_length
from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    FFRecordError,
    FormatError,
    add_place_to_memory_errors,
)
from ffrecord.fields import Field, ImageFileField, JPEGField, LabelField, ListField, OptionalField, Schema, schema_of
from ffrecord.fields.tree import as_mapping
from ffrecord.inputs.stores import BYTES_AT_ONCE, DATA, KEY, LABEL, RAW_FORMATS, class_names, names_of
from ffrecord.reader import FileReader
from ffrecord.reading.store import Store
from ffrecord.sources.names import name_as_text
from ffrecord.sources.tar.webdataset import WebDatasetReader
from ffrecord.sources.tfrecord.examples_encode import encode_example
from ffrecord.sources.tfrecord.reader import TFRecordReader
from ffrecord.system.values import as_bytes, describe

# Columns with the name of a sample. WebDataset's comes first: a field beside it may be called "key".
KEYS = ("__key__", KEY)
AT_ONCE = 4096  # samples whose sizes are asked for together
_log = logging.getLogger("ffrecord")
INT64 = range(-(1 << 63), 1 << 63)

File = tuple[str, Content]
Packed = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class Sample:
    """A sample of a source.

    Attributes:
        index: its index in the source.
        name: its name in the source; None if it has none.
        columns: name → value; only "data" for a record that is not decoded.
    """

    index: int
    name: str | None
    columns: Mapping[str, Any]


class SampleSource:
    """Samples by index, from a store or a sequence. It can be pickled if the source can.

    Args:
        source: a `Store`, or anything with len() and [i].

    Attributes:
        n: number of samples.
        plain: whether each sample is only bytes, as the first one is.
        raw: whether the samples have no names, either. They are records then.
        classes: column → names of the classes, for columns of class numbers.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self._store = source if isinstance(source, Store) else None
        self._schema = None if self._store is None else _schema_keeping_files(self._store)
        self._names = None if self._store is None else names_of(self._store)
        self.n = dataset_length(source)
        # Also for a dataset that was converted from a WebDataset, so that the export restores its names and its gaps.
        self._suffixed = self.format == "webdataset" or (self._schema is not None and KEYS[0] in self._schema.fields)
        # The first sample decides the form of all names, so it is read here.
        first = self.read([0])[0] if self.n else Sample(0, None, {})
        # Columns that the first sample lacks: later samples may have them.
        named = set() if self._schema is None else set(self._schema.fields) - {DATA, *KEYS}
        # An optional column may hold bytes in one sample and nothing in another: then samples are no plain files.
        self.plain = _is_plain(first.columns) and not named and not self._is_field(DATA, OptionalField)
        self.raw = self.plain and first.name is None
        self.classes = self._classes(first.columns)
        contents = {name: self._content(0, name, value) for name, value in first.columns.items()}
        self._warned: set[str] = set()
        self._naming = Naming(contents, first.name, self.n, self._suffixed)

    @property
    def format(self) -> str | None:
        """The format of the store; None without a store."""
        return None if self._store is None else self._store.format

    def batches(self, start: int, stop: int, at: Callable[[int], None] = lambda index: None) -> Iterator[list[Sample]]:
        """Yield the samples from `start` to `stop`, a few megabytes at a time.

        Args:
            start, stop: indices.
            at: called with the index of each sample before it is read. For samples that are read together, with the
                first.
        """
        for indices in self._parts(start, stop):
            yield self.read(indices, at)

    def iter_packed(self, start: int, stop: int) -> Iterator[Packed] | None:
        """Return an iterator over packed records, as `read_packed` gives them; None if decoding changes the records."""
        store = self._store
        if store is None or not self.raw or self._schema is not None or getattr(store, "parser", None) is not None:
            return None
        # A store with a `_decode` of its own changes records. Without schema and parser, these three do not.
        if type(store)._decode not in (Store._decode, FileReader._decode, TFRecordReader._decode):
            return None
        return self._iter_packed(store, start, stop)

    def _iter_packed(self, store: Store, start: int, stop: int) -> Iterator[Packed]:
        batches = store.iter_batches(self._parts(start, stop), packed=True)
        for indices, (data, offsets) in zip(self._parts(start, stop), batches, strict=True):
            _check_count(len(offsets) - 1, len(indices))  # on_error="skip" would shift all later samples
            yield data, offsets

    def _parts(self, start: int, stop: int) -> Iterator[list[int]]:
        for low in range(start, stop, AT_ONCE):
            indices = np.arange(low, min(low + AT_ONCE, stop))
            # Sizes are unknown: assume 64 KiB each.
            sizes = indices * 0 + (1 << 16) if self._store is None else self._store._sizes(indices)
            # A batch ends where the sum passes a multiple of BYTES_AT_ONCE.
            for part in np.split(indices, np.flatnonzero(np.diff(np.cumsum(sizes) // BYTES_AT_ONCE)) + 1):
                yield part.tolist()

    def read(self, indices: Sequence[int], at: Callable[[int], None] = lambda index: None) -> list[Sample]:
        """Return the samples at `indices`.

        Args:
            indices: indices in the source.
            at: as for `batches`.

        Raises:
            FFRecordError: the source left samples out.
            The errors of the source.
        """
        at(indices[0])
        if self._store is None:
            values = list(self._one_by_one(indices, at))
        elif self._schema is not None:
            # Not `samples`: image files stay bytes with this schema.
            values = [self._schema.decode(record) for record in self._store.read(indices)]
        elif isinstance(self._store, WebDatasetReader):
            # Raw fields, even if the reader has decode=True: the names of the fields describe their bytes.
            records = self._store.read(indices)
            _check_count(len(records), len(indices))
            values = [self._store._fields(*each) for each in zip(indices, records, strict=True)]
        else:
            values = self._store.samples(indices)
        _check_count(len(values), len(indices))
        return [self._sample(i, value) for i, value in zip(indices, values, strict=True)]

    def _one_by_one(self, indices: Sequence[int], at: Callable[[int], None]) -> Iterator[Any]:
        for i in indices:
            at(i)
            with name_sample_in_memory_errors(i):
                value = self.source[i]
            yield value

    def _sample(self, index: int, value: Any) -> Sample:
        columns = dict(_columns(value))
        name = None if self._names is None else self._names[index]
        for key in KEYS:
            # `convert` made this column from the name.
            # Only if it is the name: a column may be called "key" by chance.
            if isinstance(columns.get(key), str | bytes) and name in (None, _text(columns[key])):
                name = _text(columns.pop(key))
        # The original sample of a WebDataset had no field of that name. It had one field at least.
        # A sample of gaps only would have no file at all, so it keeps them.
        columns = {each: columns[each] for each in columns if not self._is_gap(each, columns[each])} or columns
        untyped = self._store is not None and self._schema is None
        # Untyped stores give bytes of files as arrays; typed ones have real arrays there.
        if untyped and (list(columns) == [DATA] or self.format in RAW_FORMATS):
            columns = {each: _raw_bytes(value) for each, value in columns.items()}
        return Sample(index, name, columns)

    def _is_gap(self, column: str, value: Any) -> bool:
        return value is None and self._suffixed and self._is_field(column, OptionalField)

    def _is_field(self, column: str, kind: type[Field]) -> bool:
        return self._schema is not None and isinstance(self._schema.fields.get(column), kind)

    def _content(self, index: int, column: str, value: Any) -> Content:
        try:
            return content_of(value)
        except (TypeError, ValueError) as error:
            raise _name_error(error, f"sample {index}, column {column!r}") from None

    def _classes(self, first: Mapping[str, Any]) -> dict[str, list[str]]:
        if self._schema is not None:
            fields = self._schema.fields.items()
            return {name: list(field.names) for name, field in fields if isinstance(field, LabelField)}
        names = getattr(self._store, "classes", None)
        return {LABEL: class_names(names, self._store)} if names and self._store and LABEL in first else {}

    def _whole_bytes(self, sample: Sample) -> memoryview:
        """Return the bytes of a sample that is only bytes, as the first sample is."""
        if _is_plain(sample.columns):
            return as_bytes(sample.columns[DATA])
        # The first sample decided that samples are plain, and readers expect one form.
        there = ", ".join(f"{name!r}: {type(value).__name__}" for name, value in sample.columns.items())
        raise FormatError(f"sample {sample.index} has the columns {{{there}}}, but sample 0 is only bytes")

    def files(self, sample: Sample, dots: bool) -> list[File]:
        """Return the files of a sample: (name, content) of each, at least one.

        Args:
            sample: the sample.
            dots: whether names may have dots before those of the columns.

        Raises:
            FormatError: a name leads out of the directory or is empty; or the sample has no columns, or has some
                although the first sample is only bytes.
            TypeError, ValueError: a value that no file holds.
        """
        if self.plain and sample.name is not None:
            content = content_of_bytes(self._whole_bytes(sample))
            return [(self._naming.name_of_bytes(sample.name, content, dots), content)]
        # A reader would not see such a sample, and later ones would have other indices.
        if not sample.columns:
            raise FormatError(f"sample {sample.index} has no columns, so it would have no file")
        contents = {name: self._content(sample.index, name, value) for name, value in sample.columns.items()}
        names = self._naming.names_of_columns(sample.index, sample.name, contents, dots)
        return list(zip(names, contents.values(), strict=True))

    def record(self, sample: Sample) -> bytes | memoryview:
        """Return a sample as one record: its bytes, if all samples are only bytes, else a serialized tf.train.Example.

        Raises:
            FormatError: the sample has columns or a name although the first sample has none.
            TypeError, ValueError: a value that no Example holds.
        """
        if self.raw:
            if sample.name is not None:
                raise FormatError(f"sample {sample.index} has the name {sample.name!r}, but sample 0 has none")
            return self._whole_bytes(sample)
        # An Example has a list for each feature.
        values = {name: self._feature(sample.index, name, value) for name, value in sample.columns.items()}
        if sample.name is not None:
            # "key" first, as `convert` names it.
            free = [each for each in (KEY, KEYS[0]) if each not in values]
            if not free:
                raise FormatError(
                    f"sample {sample.index} has a name, but its columns {KEY!r} and {KEYS[0]!r} leave no feature for "
                    "it: rename one of them"
                )
            values = {free[0]: sample.name.encode(errors="surrogateescape"), **values}
        try:
            return encode_example(values)
        except (TypeError, ValueError) as error:
            raise _name_error(error, f"sample {sample.index}") from None

    def _feature(self, index: int, name: str, value: Any) -> Any:
        if isinstance(value, np.ma.MaskedArray):
            # The same error as for files.
            self._content(index, name, value)  # raises: masked arrays are refused
        self._warn_of_changes(name, value)
        if isinstance(value, int):
            # Not `in`: a range looks for an instance of a subclass, such as IntEnum, number by number.
            if not INT64.start <= value < INT64.stop:  # an Example holds int64
                raise ArgumentError(f"sample {index}, column {name!r}: {describe(value)} does not fit in int64")
            return value if isinstance(value, bool) else int(value)
        # A list of bytes is a feature of its own; other lists become JSON.
        if self._is_field(name, ListField) and all(isinstance(each, bytes) for each in value):
            return value
        if value is None or isinstance(value, float | str | bytes | np.ndarray | np.generic):
            return value
        # Everything else becomes the bytes of the file that `export` would write.
        return bytes(self._content(index, name, value).data)

    def _warn_of_changes(self, name: str, value: Any) -> None:
        """Warn, once per column, of properties of a number or an array that an Example does not keep."""
        # Once for each column: every sample would say the same.
        if name in self._warned or not isinstance(value, float | bool | np.ndarray | np.generic):
            return
        # `float` is a double here.
        array = np.asarray(value)
        changes = []
        if array.dtype.kind == "f" and array.dtype.itemsize > 4 and not _fits_float32(array):
            changes.append(f"{array.dtype} values are rounded to float32")
        if array.dtype.kind == "b":
            changes.append("bools become int64")
        if array.ndim > 1:
            changes.append(f"the shape {array.shape} is not kept")
        if changes:
            self._warned.add(name)
            _log.warning("column %r: %s, because Examples cannot hold them otherwise", name, ", ".join(changes))


def name_sample_in_memory_errors(index: int) -> AbstractContextManager[None]:
    """Return a context manager that adds the sample to a MemoryError that names none."""
    return add_place_to_memory_errors(lambda: f"sample {index}")


def _fits_float32(array: npt.NDArray[Any]) -> bool:
    """Tell whether float32 holds all numbers of an array exactly. NaN counts as equal."""
    # Infinity after the cast is a change, and no reason for a warning of NumPy.
    with np.errstate(over="ignore"):
        return bool(np.array_equal(array, array.astype(np.float32), equal_nan=True))


def _is_plain(columns: Mapping[str, Any]) -> bool:
    return list(columns) == [DATA] and isinstance(columns[DATA], bytes | bytearray | memoryview)


def _name_error(error: TypeError | ValueError, where: str) -> Exception:
    kind = ArgumentTypeError if isinstance(error, TypeError) else ArgumentError
    return kind(f"{where}: {error}")


def _check_count(found: int, wanted: int) -> None:
    if found != wanted:
        raise FFRecordError(
            f"only {found} of {wanted} samples could be read, and none may be left out: open the store without "
            'on_error="skip"'
        )


def _columns(value: Any) -> Mapping[str, Any]:
    mapping = as_mapping(value)
    if mapping is not None:
        return {str(name): each for name, each in mapping.items()}  # names of other types, ints for instance
    if isinstance(value, tuple | list):
        return {str(place): each for place, each in enumerate(value)}
    return {DATA: value}


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else name_as_text(key)


def _raw_bytes(value: Any) -> Any:
    """Return the bytes of a flat uint8 array, which untyped stores give for a file; return other values unchanged."""
    # A view: the bytes are written at once, while the array lives.
    return value.data if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1 else value


def _schema_keeping_files(store: Store) -> Schema | None:
    """Return the schema of typed samples with image files kept as bytes; None for other stores."""
    schema = schema_of(store) if isinstance(store, FileReader) else None
    if schema is None:
        return None
    files = {
        # Encoding a picture again would change it.
        name: replace(field, as_bytes=True)
        for name, field in schema.fields.items()
        if isinstance(field, JPEGField | ImageFileField)
    }
    return schema.replace(files)
