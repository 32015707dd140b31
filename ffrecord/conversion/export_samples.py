"""Samples of a source → the files that each becomes, or the records."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ffrecord.conversion.export_values import Content, content_of, of_bytes
from ffrecord.conversion.stores import BYTES_AT_ONCE, RAW_FORMATS
from ffrecord.errors import FFRecordError, FormatError, MissingNamesError
from ffrecord.fields import JPEGField, Schema, schema_of
from ffrecord.fields.tree import as_mapping
from ffrecord.reader import FileReader
from ffrecord.safe_unpack import safe_parts
from ffrecord.sources.examples_encode import encode_example
from ffrecord.store import Store

KEY, DATA = "key", "data"
KEYS = (KEY, "__key__")
SHORTEST = 6  # digits of names that are numbers
NAME_MOST = 65_535  # bytes of a member's name

File = tuple[str, Content]


@dataclass(frozen=True)
class Sample:
    """A sample of a source.

    Attributes:
        index: in the source.
        name: that it has there; None for none.
        columns: name → value; of a record that nobody decodes, "data" only.
    """

    index: int
    name: str | None
    columns: Mapping[str, Any]


class SampleSource:
    """Samples by index, from a store or a sequence. Pickles as that does.

    Args:
        source: a `Store`, or anything with len() and [i].
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        self._store = source if isinstance(source, Store) else None
        self._schema = None if self._store is None else _keeping_jpegs(self._store)
        self._names = None if self._store is None else _names(self._store)
        self.n = len(source)
        first = self.read([0])[0].columns if self.n else {}
        # Whether each sample is the bytes of one thing.
        self.plain = list(first) == [DATA] and isinstance(first[DATA], bytes | bytearray | memoryview)
        self._named_columns = self._columns_in_names(first)
        self._digits = max(SHORTEST, len(str(max(self.n - 1, 0))))

    @property
    def format(self) -> str | None:
        """That of the store."""
        return None if self._store is None else self._store.format

    def batches(self, start: int, stop: int) -> Iterator[list[Sample]]:
        """The samples from `start` to `stop`, a few megabytes at a time."""
        for low in range(start, stop, 4096):
            indices = np.arange(low, min(low + 4096, stop))
            sizes = indices * 0 + (1 << 16) if self._store is None else self._store._sizes(indices)
            for part in np.split(indices, np.flatnonzero(np.diff(np.cumsum(sizes) // BYTES_AT_ONCE)) + 1):
                yield self.read(part.tolist())

    def read(self, indices: Sequence[int]) -> list[Sample]:
        """The samples at `indices`.

        Raises:
            What the source raises; FFRecordError: it left some out.
        """
        if self._store is None:
            values = [self.source[i] for i in indices]
        elif self._schema is not None:
            values = [self._schema.decode(record) for record in self._store.read(indices)]
        else:
            values = self._store.samples(indices)
        if len(values) != len(indices):
            raise FFRecordError(
                f"{len(values)} of {len(indices)} samples could be had; none must be left out of an export"
            )
        return [self._sample(i, value) for i, value in zip(indices, values, strict=True)]

    def _sample(self, index: int, value: Any) -> Sample:
        columns = dict(_columns(value))
        name = None if self._names is None else self._names[index]
        for key in KEYS:
            # A column that says the name, as `convert` makes one.
            if isinstance(columns.get(key), str | bytes) and name in (None, _text(columns[key])):
                name = _text(columns.pop(key))
        untyped = self._store is not None and self._schema is None
        if untyped and (list(columns) == [DATA] or self.format in RAW_FORMATS):
            columns = {each: _raw(value) for each, value in columns.items()}
        return Sample(index, name, columns)

    def _columns_in_names(self, first: Mapping[str, Any]) -> frozenset[str]:
        """Columns that the names of files say: those with another of the same kind."""
        kinds = {name: self._content(-1, name, value).kind for name, value in first.items()}
        return frozenset(name for name, kind in kinds.items() if list(kinds.values()).count(kind) > 1)

    def _content(self, index: int, column: str, value: Any) -> Content:
        try:
            return content_of(value)
        except (TypeError, ValueError) as error:
            raise type(error)(f"sample {max(index, 0)}, column {column!r}: {error}") from None

    def files(self, sample: Sample, dots: bool) -> list[File]:
        """The files of a sample: (name, content) of each.

        Args:
            dots: whether names may have dots before those of the columns.

        Raises:
            FormatError: a name that leads elsewhere, or nowhere.
            TypeError, ValueError: a value that no file holds.
        """
        if self.plain and sample.name is not None:
            return [(_checked(sample.name), of_bytes(sample.columns[DATA]))]
        contents = {name: self._content(sample.index, name, value) for name, value in sample.columns.items()}
        base = self._base(sample, contents, dots)
        return [(_checked(f"{base}.{self._suffix(name, each)}"), each) for name, each in contents.items()]

    def _base(self, sample: Sample, contents: Mapping[str, Content], dots: bool) -> str:
        if sample.name is None:
            return f"{sample.index:0{self._digits}}"
        # "a.jpg" with a picture and a label becomes "a.jpg" and "a.cls".
        head, dot, tail = sample.name.rpartition(".")
        known = {each.suffix for each in contents.values()} | ({"jpeg"} if dot else set())
        base = head if dot and head and tail.lower() in known else sample.name
        if dots:
            return base
        folder, slash, last = base.rpartition("/")
        return folder + slash + last.replace(".", "_")

    def _suffix(self, column: str, content: Content) -> str:
        if self.format == "webdataset":
            return column  # it is one
        return f"{column}.{content.suffix}" if column in self._named_columns else content.suffix

    def record(self, sample: Sample) -> bytes | memoryview:
        """The sample as one record: its bytes, if it is nothing else, or a serialized tf.train.Example."""
        if self.plain and sample.name is None:
            return of_bytes(sample.columns[DATA]).data
        named = {} if sample.name is None else {KEY: sample.name.encode(errors="surrogateescape")}
        values = {name: self._feature(sample.index, name, value) for name, value in sample.columns.items()}
        return encode_example({**named, **values})

    def _feature(self, index: int, name: str, value: Any) -> Any:
        if value is None or isinstance(value, int | float | str | bytes | np.ndarray | np.generic):
            return value
        content = self._content(index, name, value)
        return bytes(content.data)


def _columns(value: Any) -> Mapping[str, Any]:
    mapping = as_mapping(value)
    if mapping is not None:
        return {str(name): each for name, each in mapping.items()}
    if isinstance(value, tuple | list):
        return {str(place): each for place, each in enumerate(value)}
    return {DATA: value}


def _text(key: str | bytes) -> str:
    return key if isinstance(key, str) else key.decode(errors="surrogateescape")


def _raw(value: Any) -> Any:
    """Bytes of a file, which come as an array; other values as they are."""
    return value.data if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1 else value


def _checked(name: str) -> str:
    if "/".join(safe_parts(name)) != name:
        raise FormatError(f"{name!r} is no name of a file below a directory")
    size = len(name.encode(errors="surrogateescape"))
    if size > NAME_MOST:
        raise FormatError(f"{name[:40]!r}…, {size} bytes, is no name of a file: expected at most {NAME_MOST}")
    return name


def _names(store: Store) -> Sequence[str] | None:
    try:
        return store.keys()
    except MissingNamesError:
        return None


def _keeping_jpegs(store: Store) -> Schema | None:
    """The schema of typed samples, JPEG images as they are stored; None for other stores."""
    schema = schema_of(store) if isinstance(store, FileReader) else None
    if schema is None:
        return None
    jpegs = {name: field for name, field in schema.fields.items() if isinstance(field, JPEGField)}
    return schema.replace({name: JPEGField(field.quality, as_bytes=True) for name, field in jpegs.items()})
