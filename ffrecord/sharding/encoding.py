"""How the samples of a dataset become records: as the user says, or as a few of them show."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Literal, NamedTuple

import msgspec

from ffrecord._crc import crc32
from ffrecord.buffers import as_bytes
from ffrecord.extension import Extension
from ffrecord.fields import Schema
from ffrecord.sharding.job import Means
from ffrecord.sharding.packing import Encode
from ffrecord.workers import heartbeats, interrupts
from ffrecord.workers.crew import Crew
from ffrecord.workers.heartbeats import Heart
from ffrecord.workers.process import Link, without_process

PLAIN = (bytes, bytearray, memoryview)


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


@dataclass(frozen=True)
class Encoding:
    """How samples become records.

    Attributes:
        role: what `encode` is to the user.
        encode: sample → buffer.
        schema: the columns as plain builtins; None for records without a schema.
        extension: what every file should say about itself; None for nothing.
        probes: what the records of a few samples were like; empty where nobody asked.
    """

    role: Literal["serializer", "fields"]
    encode: Encode
    schema: dict[str, Any] | None
    extension: Extension | None
    probes: Sequence[Probe] = ()


class Probed(msgspec.Struct):
    """What a few samples show; `schema` is None for records without a schema."""

    schema: dict[str, Any] | None
    probes: list[Probe]


def choose(dataset: Any, probes: list[int], fields: Schema | None, serializer: Encode | None, means: Means) -> Encoding:
    """The encoding of a dataset.

    Args:
        probes: indices of the samples to look at; may be empty if `fields` or `serializer` is given or there are none.
        fields, serializer: what the user gave, at most one of them. With neither, samples of bytes, bytearray or
            memoryview are written as they are, and others by the schema they show.

    Raises:
        WorkerError: a sample could not be had or encoded.
        TypeError, ValueError: no schema fits the samples.
    """
    probed = _probe(dataset, probes, fields, serializer, means) if probes else Probed(None, [])
    writer = f"ffrecord {version('ffrecord')}"
    if serializer is not None:
        extension = Extension(serializer=_name(serializer), writer=writer)
        return Encoding("serializer", serializer, None, extension, probed.probes)
    if fields is None and probed.schema is None:
        return Encoding("serializer", as_it_is, None, None, probed.probes)
    schema = Schema.from_builtins(probed.schema) if fields is None and probed.schema is not None else fields
    if schema is None:
        raise TypeError("neither fields nor samples to infer them from")
    builtins = schema.to_builtins()
    return Encoding("fields", schema.encode, builtins, Extension(schema=builtins, writer=writer), probed.probes)


def as_it_is(sample: Any) -> Any:
    """A plain sample: its bytes are the record.

    Raises:
        TypeError: not bytes, bytearray or memoryview.
    """
    if not isinstance(sample, PLAIN):
        raise TypeError(f"{type(sample).__name__} among samples of plain bytes; give fields or serializer")
    return sample


def _name(serializer: Encode) -> str:
    name = getattr(serializer, "__qualname__", type(serializer).__qualname__)
    return f"{getattr(serializer, '__module__', None) or type(serializer).__module__}.{name}"


def _probe(dataset: Any, indices: list[int], fields: Schema | None, serializer: Encode | None, means: Means) -> Probed:
    """Look at a few samples, in a process of its own if there are to be any.

    A dataset opened here could be broken for the workers forked afterwards.
    """
    encode = fields.encode if fields is not None else serializer
    if not means.workers:
        return _look_here(dataset, indices, encode)
    arguments = {"dataset": dataset, "fields" if fields is not None else "serializer": encode, "indices": indices}
    crew = Crew(look, arguments, 1, start_method=means.start_method, stuck_after=means.stuck_after)
    try:
        crew.start()
        while not (messages := crew.listen()):
            pass
        crew.dismiss()
        return msgspec.msgpack.decode(messages[0][1], type=Probed)
    finally:
        with interrupts.undisturbed():
            crew.end()


def _look_here(dataset: Any, indices: list[int], encode: Encode | None) -> Probed:
    heart = Heart()
    with without_process(heart):
        return _look(heart, dataset, indices, encode)


def look(
    link: Link,
    heart: Heart,
    *,
    dataset: Any,
    indices: list[int],
    serializer: Encode | None = None,
    fields: Encode | None = None,
) -> None:
    """The work of the process that looks at a few samples."""
    link.send(msgspec.msgpack.encode(_look(heart, dataset, indices, serializer or fields)))


def _look(heart: Heart, dataset: Any, indices: list[int], encode: Encode | None) -> Probed:
    samples, schema = [], None
    for index in indices:
        heart.at(heartbeats.SAMPLE, index)
        samples.append(dataset[index])
    if encode is None:
        heart.at(heartbeats.OURS, indices[-1])
        schema = None if all(isinstance(sample, PLAIN) for sample in samples) else Schema.infer(samples)
        encode = as_it_is if schema is None else schema.encode
    probes = []
    for index, sample in zip(indices, samples, strict=True):
        heart.at(heartbeats.SAMPLE, index)
        record = as_bytes(encode(sample))
        probes.append(Probe(index, len(record), crc32(record)))
    return Probed(None if schema is None else schema.to_builtins(), probes)
