"""Encodings of samples as records: from arguments, from a schema, or inferred from the first samples."""

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
from ffrecord.fields.declare import complete_tree, lacks, overlay_fields
from ffrecord.fields.infer import infer_tree
from ffrecord.format import extension
from ffrecord.format.extension import Extension
from ffrecord.kernels._records import Pieces
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import WorkerPool, run_pool
from ffrecord.processes.process import Link, WithoutProcess, sentence
from ffrecord.system.values import as_bytes, describe_wrong

PLAIN = (bytes, bytearray, memoryview)

Encode = Callable[[Any], Any]  # sample → buffer


class ProbedRecord(NamedTuple):
    """The record of one sample that was read beforehand.

    Attributes:
        sample: index of the sample.
        size: size of its record, bytes.
        crc: CRC-32 of the record.
    """

    sample: int
    size: int
    crc: int


class Shape(msgspec.Struct):
    """The schema that a few samples show; `schema` is None if they are plain bytes."""

    schema: dict[str, Any] | None


@dataclass(frozen=True)
class Encoding:
    """The way in which samples become records.

    Attributes:
        encode: function sample → buffer.
        arguments: arguments for the workers, under the names that users know.
        schema: schema of the columns as plain builtins; None for records without a schema.
        extension: extension block of every file; None for no block.
        record_size: size of every record, bytes; None if sizes vary or are unknown.
        probes: records of a few samples; empty unless they were asked for.
    """

    encode: Encode
    arguments: dict[str, Any]
    schema: dict[str, Any] | None
    extension: Extension | None
    record_size: int | None = None
    probes: Sequence[ProbedRecord] = ()

    def payload(self, cut: ByCount | ByBytes) -> bytes | None:
        """Return the payload of the extension block of every shard; None for no block."""
        if self.extension is not None:
            return extension.encode(self.extension)
        # Unused table space has to lie in a block, even in an empty one.
        return b"" if isinstance(cut, ByBytes) else None


def encoding_from_arguments(fields: Schema | None, serializer: Encode | None) -> Encoding | None:
    """Return the encoding by the user's arguments, at most one of them given; None if samples are to show it."""
    if serializer is not None:
        return Encoding(
            serializer, {"serializer": serializer}, None, make_extension(serializer=qualified_name(serializer))
        )
    if fields is None:
        return None
    return _schema_encoding(fields)


def encoding_from_schema(shape: Shape, declared: Schema | None = None) -> Encoding:
    """Return the encoding for a schema; the declared fields replace those of their columns."""
    if shape.schema is None:
        return Encoding(encode_plain, {"serializer": encode_plain}, None, None)
    schema = Schema.from_builtins(shape.schema)
    return _schema_encoding(schema if declared is None else Schema(overlay_fields(schema._tree, declared._tree)))


def for_records(encode: Encode) -> Callable[[Any], bytes | memoryview | Pieces]:
    """Return `encode` in the form that `Records.append` calls: for one thread, one sample after the other."""
    # The records of a schema arrive as pieces: they are joined only in the buffer of the chunk.
    if getattr(encode, "__func__", None) is Schema.encode:
        schema: Schema[Any] = encode.__self__  # type: ignore[attr-defined]
        return schema.pieces()

    def flat(sample: Any) -> bytes | memoryview:
        record = encode(sample)
        # Exactly `bytes`, for which `Records` has a short way without the buffer protocol.
        return record if type(record) is bytes else as_bytes(record)

    return flat


def infer_shape(samples: Sequence[Any], declared: Schema | None = None, names: Sequence[str] | None = None) -> Shape:
    """Infer the schema of `samples`, one or more.

    Args:
        samples: one or more.
        declared: fields of some of their columns.
        names: the name of each sample for messages, such as "sample 7"; None if only their order is known.

    Raises:
        TypeError, ValueError: no schema fits them.
    """
    if declared is not None:
        return Shape(Schema(complete_tree(declared._tree, samples, names)).to_builtins())
    plain = all(isinstance(sample, PLAIN) for sample in samples)
    return Shape(None if plain else Schema(infer_tree(samples, names)).to_builtins())


def encode_plain(sample: Any) -> Any:
    """Return a sample of plain bytes as its record.

    Raises:
        TypeError: not bytes, bytearray or memoryview.
    """
    if not isinstance(sample, PLAIN):
        raise TypeError(
            describe_wrong("a sample", sample, "plain bytes, as those before it", "pass fields or serializer")
        )
    return sample


def _schema_encoding(schema: Schema) -> Encoding:
    builtins = schema.to_builtins()
    said = make_extension(schema=builtins)
    return Encoding(schema.encode, {"fields": schema.encode}, builtins, said, schema.record_size)


def make_extension(**facts: Any) -> Extension:
    """Return the extension block of files that this version writes, with these facts."""
    return Extension(writer=f"ffrecord {_version()}", **facts)


@cache
def _version() -> str:
    """Return the version of this package, cached, because the lookup reads files."""
    return version("ffrecord")


def qualified_name(function: Callable[..., Any]) -> str:
    """Return module and name of a function or another callable."""
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"


@dataclass(frozen=True)
class ProbeRequest:
    """Options of probing samples.

    Attributes:
        skips: whether to go on without samples that cannot be read or encoded.
        declared: fields of some columns, if samples are to show the others; None for none.
        exact: whether sizes of records are not needed: then one sample without other columns is enough.
    """

    skips: bool
    declared: Schema | None = None
    exact: bool = False

    def is_enough(self, sample: Any) -> bool:
        """Return whether no other sample has to be read."""
        return self.exact and self.declared is not None and not lacks(self.declared._tree, sample)


class ProbeResult(msgspec.Struct):
    """The schema and records that a few samples show; `schema` is None for records without a schema."""

    schema: dict[str, Any] | None
    probes: list[ProbedRecord]


def infer_encoding(
    dataset: Any,
    probes: list[int],
    fields: Schema | None,
    serializer: Encode | None,
    settings: WorkerSettings,
    *,
    skips: bool = False,
    completes: bool = False,
    exact: bool = False,
) -> Encoding:
    """Return the encoding of a dataset.

    Args:
        probes: indices of the samples to read; may be empty if `fields` or `serializer` is given, or there are no
            samples.
        fields, serializer: arguments of the user, at most one of them. With neither, samples of bytes, bytearray or
            memoryview are written unchanged, and others by the schema they show.
        skips: whether to go on without samples that cannot be read or encoded.
        completes: whether `fields` may leave out columns, which samples then show.
        exact: whether sizes of records are not needed.

    Raises:
        SampleError: a sample could not be read or encoded.
        TypeError, ValueError: no schema fits the samples.
    """
    known = encoding_from_arguments(fields, serializer)
    if not probes:
        return known or encoding_from_schema(Shape(None))
    request = ProbeRequest(skips, fields if completes else None, exact)
    probed = _probe(dataset, probes, None if completes else known, settings, request)
    if completes and probed.schema is not None:
        known = encoding_from_schema(Shape(probed.schema), fields)
    return replace(known or encoding_from_schema(Shape(probed.schema)), probes=probed.probes)


def _probe(
    dataset: Any, indices: list[int], known: Encoding | None, settings: WorkerSettings, request: ProbeRequest
) -> ProbeResult:
    name = sample_names(dataset)
    # Without workers the user expects the dataset to be read in this process.
    if not settings.workers:
        heart = Heart()
        with WithoutProcess(heart, name):
            return _probe_samples(heart, dataset, indices, known.encode if known else None, request)
    # In a process of its own: file handles that the dataset opens here would be shared by forked workers.
    arguments = {"dataset": dataset, "indices": indices, "request": request, **(known.arguments if known else {})}
    pool = WorkerPool(
        probe_in_worker, arguments, 1, start_method=settings.start_method, stuck_after=settings.stuck_after, name=name
    )
    return run_pool(pool, lambda: _receive_result(pool))


def _receive_result(pool: WorkerPool) -> ProbeResult:
    while not (messages := pool.listen()):
        pass
    pool.dismiss()
    return msgspec.msgpack.decode(messages[0][1], type=ProbeResult)


def probe_in_worker(
    link: Link,
    heart: Heart,
    *,
    dataset: Any,
    indices: list[int],
    request: ProbeRequest,
    serializer: Encode | None = None,
    fields: Encode | None = None,
) -> None:
    """Probe a few samples in a worker process, and send the result."""
    link.send(msgspec.msgpack.encode(_probe_samples(heart, dataset, indices, serializer or fields, request)))


def _probe_samples(
    heart: Heart, dataset: Any, indices: list[int], encode: Encode | None, request: ProbeRequest
) -> ProbeResult:
    samples, failure = {}, None
    for index in indices:
        heart.mark(heartbeats.SAMPLE, index)
        try:
            samples[index] = dataset[index]
        # Only samples that may be left out are passed over; the others must name the failure now.
        except Exception as error:
            if not request.skips or isinstance(error, MemoryError):
                raise
            failure = error
        else:
            if request.is_enough(samples[index]):
                break
    schema = None
    # An error from here on is of the columns, not of the sample read last.
    heart.mark(heartbeats.OURS, indices[-1])
    if encode is None:
        if not samples and request.declared is not None:
            return ProbeResult(None, [])
        if not samples:
            what = f"the columns are unknown, because none of the samples {indices} could be read"
            why = "" if failure is None else f", the last one because of {sentence(failure)}"
            raise SampleError(f"{what}{why}; pass `fields` to declare them") from failure
        shape = _infer_shape_of(samples, request.declared)
        schema, encode = shape.schema, encoding_from_schema(shape, request.declared).encode
    # With an exact layout nothing depends on the sizes of records.
    if request.exact and request.declared is not None:
        return ProbeResult(schema, [])
    probes = []
    for index, sample in samples.items():
        heart.mark(heartbeats.SAMPLE, index)
        try:
            record = as_bytes(encode(sample))
        except Exception as error:
            if not request.skips or isinstance(error, MemoryError):
                raise
        else:
            # The checksum lets a resumed write notice that the dataset has changed; see `WriterOptions.request`.
            probes.append(ProbedRecord(index, len(record), crc32(record)))
    return ProbeResult(schema, probes)


def _infer_shape_of(samples: dict[int, Any], declared: Schema | None) -> Shape:
    try:
        return infer_shape(list(samples.values()), declared, [f"sample {index}" for index in samples])
    except (TypeError, ValueError) as error:
        # The type of the exception stays; only its text grows.
        error.args = (f"{error} (looked at: samples {list(samples)})",)
        raise
