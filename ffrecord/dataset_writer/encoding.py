"""How samples become records: as the user says, or as a few of them show."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from ffrecord.dataset_writer.layout import ByBytes, ByCount
from ffrecord.fields import Schema
from ffrecord.fields.complete import completed, overlaid
from ffrecord.format import extension
from ffrecord.format.extension import Extension
from ffrecord.kernels._records import Pieces
from ffrecord.system.buffers import as_bytes

PLAIN = (bytes, bytearray, memoryview)

Encode = Callable[[Any], Any]  # sample → buffer


class Probe(NamedTuple):
    """One sample, looked at beforehand.

    Attributes:
        sample: its index.
        size: of its record, bytes.
        crc: CRC-32 of the record.
    """

    sample: int
    size: int
    crc: int


class Shape(msgspec.Struct):
    """What a few samples are like; `schema` is None if they are plain bytes."""

    schema: dict[str, Any] | None


@dataclass(frozen=True)
class Encoding:
    """How samples become records.

    Attributes:
        encode: sample → buffer.
        arguments: what workers need for it, under the name that users know.
        schema: the columns as plain builtins; None for records without a schema.
        extension: what every file should say about itself; None for nothing.
        record_size: bytes of every record; None if they vary, or nobody knows.
        probes: what the records of a few samples were like; empty where nobody asked.
    """

    encode: Encode
    arguments: dict[str, Any]
    schema: dict[str, Any] | None
    extension: Extension | None
    record_size: int | None = None
    probes: Sequence[Probe] = ()

    def payload(self, cut: ByCount | ByBytes) -> bytes | None:
        """Of the extension block of every shard; None for no block."""
        if self.extension is not None:
            return extension.encode(self.extension)
        # Unused table space has to be in a block, even if that has nothing to say.
        return b"" if isinstance(cut, ByBytes) else None


def given(fields: Schema | None, serializer: Encode | None) -> Encoding | None:
    """The encoding that the user gave, at most one of both; None if the samples are to show it."""
    if serializer is not None:
        return Encoding(serializer, {"serializer": serializer}, None, extension_of(serializer=name_of(serializer)))
    if fields is None:
        return None
    return _of_schema(fields)


def shown(shape: Shape, declared: Schema | None = None) -> Encoding:
    """Return the encoding of samples like these, by the fields that are declared for some of their columns."""
    if shape.schema is None:
        return Encoding(as_it_is, {"serializer": as_it_is}, None, None)
    schema = Schema.from_builtins(shape.schema)
    return _of_schema(schema if declared is None else Schema(overlaid(schema._tree, declared._tree)))


def for_records(encode: Encode) -> Callable[[Any], bytes | memoryview | Pieces]:
    """`encode` as `Records.append` takes its results: for one thread, one sample after the other."""
    if getattr(encode, "__func__", None) is Schema.encode:
        schema: Schema[Any] = encode.__self__  # type: ignore[attr-defined]
        return schema.pieces()

    def flat(sample: Any) -> bytes | memoryview:
        record = encode(sample)
        return record if type(record) is bytes else as_bytes(record)

    return flat


def shape_of(samples: Sequence[Any], declared: Schema | None = None) -> Shape:
    """What `samples`, one or more, are like.

    Args:
        declared: fields of some of their columns.

    Raises:
        TypeError, ValueError: no schema fits them.
    """
    if declared is not None:
        return Shape(Schema(completed(declared._tree, samples)).to_builtins())
    plain = all(isinstance(sample, PLAIN) for sample in samples)
    return Shape(None if plain else Schema.infer(samples).to_builtins())


def as_it_is(sample: Any) -> Any:
    """A plain sample: its bytes are the record.

    Raises:
        TypeError: not bytes, bytearray or memoryview.
    """
    if not isinstance(sample, PLAIN):
        raise TypeError(f"{type(sample).__name__} among samples of plain bytes; give fields or serializer")
    return sample


def _of_schema(schema: Schema) -> Encoding:
    builtins = schema.to_builtins()
    said = extension_of(schema=builtins)
    return Encoding(schema.encode, {"fields": schema.encode}, builtins, said, schema.record_size)


def extension_of(**facts: Any) -> Extension:
    """What files written by this version say about themselves, with these facts."""
    return Extension(writer=f"ffrecord {_version()}", **facts)


@cache
def _version() -> str:
    """Of this package; looked up once, since that reads files."""
    return version("ffrecord")


def name_of(function: Callable[..., Any]) -> str:
    """Module and name of a function, or of what else can be called."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"
