"""A look at a few samples of a dataset before it is written, to see what they are like.

It is in a process of its own if there are to be any: a dataset opened here could be broken for those forked afterwards.
"""

from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ffrecord._crc import crc32
from ffrecord.dataset_writer.encoding import Encode, Encoding, Probe, Shape, given, shape_of, shown
from ffrecord.dataset_writer.job import Means
from ffrecord.dataset_writer.sample_sources import sample_names
from ffrecord.errors import SampleError
from ffrecord.fields import Schema
from ffrecord.fields.complete import lacks
from ffrecord.processes import heartbeats
from ffrecord.processes.heartbeats import Heart
from ffrecord.processes.pool import Crew, at_work
from ffrecord.processes.process import Link, WithoutProcess, sentence
from ffrecord.system.buffers import as_bytes


@dataclass(frozen=True)
class Asked:
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


class Probed(msgspec.Struct):
    """What a few samples show; `schema` is None for records without a schema."""

    schema: dict[str, Any] | None
    probes: list[Probe]


def choose(
    dataset: Any,
    probes: list[int],
    fields: Schema | None,
    serializer: Encode | None,
    means: Means,
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
    known = given(fields, serializer)
    if not probes:
        return known or shown(Shape(None))
    asked = Asked(skips, fields if completes else None, exact)
    probed = _probe(dataset, probes, None if completes else known, means, asked)
    if completes and probed.schema is not None:
        known = shown(Shape(probed.schema), fields)
    return replace(known or shown(Shape(probed.schema)), probes=probed.probes)


def _probe(dataset: Any, indices: list[int], known: Encoding | None, means: Means, asked: Asked) -> Probed:
    name = sample_names(dataset)
    if not means.workers:
        heart = Heart()
        with WithoutProcess(heart, name):
            return _look(heart, dataset, indices, known.encode if known else None, asked)
    arguments = {"dataset": dataset, "indices": indices, "asked": asked, **(known.arguments if known else {})}
    crew = Crew(look, arguments, 1, start_method=means.start_method, stuck_after=means.stuck_after, name=name)
    return at_work(crew, lambda: _answer(crew))


def _answer(crew: Crew) -> Probed:
    while not (messages := crew.listen()):
        pass
    crew.dismiss()
    return msgspec.msgpack.decode(messages[0][1], type=Probed)


def look(
    link: Link,
    heart: Heart,
    *,
    dataset: Any,
    indices: list[int],
    asked: Asked,
    serializer: Encode | None = None,
    fields: Encode | None = None,
) -> None:
    """The work of the process that looks at a few samples."""
    link.send(msgspec.msgpack.encode(_look(heart, dataset, indices, serializer or fields, asked)))


def _look(heart: Heart, dataset: Any, indices: list[int], encode: Encode | None, asked: Asked) -> Probed:
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
            return Probed(None, [])
        if not samples:
            what = f"none of the samples {indices} can be had, to see what they are like"
            why = "" if failure is None else f", the last of them because of {sentence(failure)}"
            raise SampleError(f"{what}{why}; with `fields` given, nobody looks") from failure
        shape = _shape_of(samples, asked.declared)
        schema, encode = shape.schema, shown(shape, asked.declared).encode
    if asked.exact and asked.declared is not None:
        return Probed(schema, [])
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
    return Probed(schema, probes)


def _shape_of(samples: dict[int, Any], declared: Schema | None) -> Shape:
    try:
        return shape_of(list(samples.values()), declared)
    except (TypeError, ValueError) as error:
        error.args = (f"{error} (looked at: samples {list(samples)})",)
        raise
