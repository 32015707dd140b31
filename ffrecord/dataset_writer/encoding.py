"""How samples become records: from arguments, from a schema, or inferred from the first samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec

from ffrecord._crc import crc32
from ffrecord.dataset_writer.layout import ByBytes, ByCount
from ffrecord.dataset_writer.sample_sources import sample_names
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.errors import SampleError
from ffrecord.fields import Schema
from ffrecord.fields.complete import complete_tree, lacks, overlay_fields
from ffrecord.format import extension
from ffrecord.format.extension import Extension
from ffrecord.kernels._records import Pieces
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, run_pool
from ffrecord.processes.process import Link, WithoutProcess, sentence
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


def encoding_from_arguments(fields: Schema | None, serializer: Encode | None) -> Encoding | None:
    """The encoding that the user gave, at most one of both; None if the samples are to show it."""
    if serializer is not None:
        return Encoding(serializer, {"serializer": serializer}, None, extension_of(serializer=name_of(serializer)))
    if fields is None:
        return None
    return _of_schema(fields)


def encoding_from_schema(shape: Shape, declared: Schema | None = None) -> Encoding:
    """Return the encoding of samples like these, by the fields that are declared for some of their columns."""
    if shape.schema is None:
        return Encoding(as_it_is, {"serializer": as_it_is}, None, None)
    schema = Schema.from_builtins(shape.schema)
    return _of_schema(schema if declared is None else Schema(overlay_fields(schema._tree, declared._tree)))


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
        return Shape(Schema(complete_tree(declared._tree, samples)).to_builtins())
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


@dataclass(frozen=True)
class ProbeRequest:
    """What a look is for.

    Attributes:
        skips: whether samples that cannot be had or encoded are done without.
        declared: fields of some columns, where samples are to show the others; None for none.
        exact: whether sizes of records are not asked for: then a sample without other columns is enough.
    """

    skips: bool
    declared: Schema | None = None
    exact: bool = False

    def is_enough(self, sample: Any) -> bool:
        """Tell whether no other sample has to be looked at."""
        return self.exact and self.declared is not None and not lacks(self.declared._tree, sample)


class ProbeResult(msgspec.Struct):
    """What a few samples show; `schema` is None for records without a schema."""

    schema: dict[str, Any] | None
    probes: list[Probe]


def infer_encoding(
    dataset: Any,
    probes: list[int],
    fields: Schema | None,
    serializer: Encode | None,
    means: WorkerSettings,
    *,
    skips: bool = False,
    completes: bool = False,
    exact: bool = False,
) -> Encoding:
    """The encoding of a dataset.

    Args:
        probes: indices of the samples to look at; may be empty if `fields` or `serializer` is given or there are none.
        fields, serializer: what the user gave, at most one of them. With neither, samples of bytes, bytearray or
            memoryview are written as they are, and others by the schema they show.
        skips: whether to do without samples that cannot be had or encoded.
        completes: whether `fields` may leave out columns, which samples then show.
        exact: whether sizes of records are not asked for.

    Raises:
        SampleError: a sample could not be had or encoded.
        TypeError, ValueError: no schema fits the samples.
    """
    known = encoding_from_arguments(fields, serializer)
    if not probes:
        return known or encoding_from_schema(Shape(None))
    asked = ProbeRequest(skips, fields if completes else None, exact)
    probed = _probe(dataset, probes, None if completes else known, means, asked)
    if completes and probed.schema is not None:
        known = encoding_from_schema(Shape(probed.schema), fields)
    return replace(known or encoding_from_schema(Shape(probed.schema)), probes=probed.probes)


def _probe(
    dataset: Any, indices: list[int], known: Encoding | None, means: WorkerSettings, asked: ProbeRequest
) -> ProbeResult:
    name = sample_names(dataset)
    if not means.workers:
        heart = Heart()
        with WithoutProcess(heart, name):
            return _look(heart, dataset, indices, known.encode if known else None, asked)
    arguments = {"dataset": dataset, "indices": indices, "asked": asked, **(known.arguments if known else {})}
    crew = WorkerPool(look, arguments, 1, start_method=means.start_method, stuck_after=means.stuck_after, name=name)
    return run_pool(crew, lambda: _answer(crew))


def _answer(crew: WorkerPool) -> ProbeResult:
    while not (messages := crew.listen()):
        pass
    crew.dismiss()
    return msgspec.msgpack.decode(messages[0][1], type=ProbeResult)


def look(
    link: Link,
    heart: Heart,
    *,
    dataset: Any,
    indices: list[int],
    asked: ProbeRequest,
    serializer: Encode | None = None,
    fields: Encode | None = None,
) -> None:
    """The work of the process that looks at a few samples."""
    link.send(msgspec.msgpack.encode(_look(heart, dataset, indices, serializer or fields, asked)))


def _look(heart: Heart, dataset: Any, indices: list[int], encode: Encode | None, asked: ProbeRequest) -> ProbeResult:
    samples, failure = {}, None
    for index in indices:
        heart.at(heartbeats.SAMPLE, index)
        try:
            samples[index] = dataset[index]
        except Exception as error:
            if not asked.skips:
                raise
            failure = error
        else:
            if asked.is_enough(samples[index]):
                break
    schema = None
    heart.at(heartbeats.OURS, indices[-1])
    if encode is None:
        if not samples and asked.declared is not None:
            return ProbeResult(None, [])
        if not samples:
            what = f"none of the samples {indices} can be had, to see what they are like"
            why = "" if failure is None else f", the last of them because of {sentence(failure)}"
            raise SampleError(f"{what}{why}; with `fields` given, nobody looks") from failure
        shape = _shape_of(samples, asked.declared)
        schema, encode = shape.schema, encoding_from_schema(shape, asked.declared).encode
    if asked.exact and asked.declared is not None:
        return ProbeResult(schema, [])
    probes = []
    for index, sample in samples.items():
        heart.at(heartbeats.SAMPLE, index)
        try:
            record = as_bytes(encode(sample))
        except Exception:
            if not asked.skips:
                raise
        else:
            probes.append(Probe(index, len(record), crc32(record)))
    return ProbeResult(schema, probes)


def _shape_of(samples: dict[int, Any], declared: Schema | None) -> Shape:
    try:
        return shape_of(list(samples.values()), declared)
    except (TypeError, ValueError) as error:
        error.args = (f"{error} (looked at: samples {list(samples)})",)
        raise
