"""Options of a `DatasetWriter`: every argument checked, and the settings that follow from them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsIndex, overload

from ffrecord.dataset_writer import resume
from ffrecord.dataset_writer.encoding import Encoding, make_extension
from ffrecord.dataset_writer.layout import ByBytes, ByCount, split_evenly
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.sample_sources import Indices
from ffrecord.dataset_writer.target import Base, Target
from ffrecord.dataset_writer.tasks import WorkerSettings
from ffrecord.dataset_writer.write_log import Request
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import Schema
from ffrecord.processes.pool import usable_workers
from ffrecord.system import urls
from ffrecord.system.sizes import Size, parse_limit
from ffrecord.system.values import check_flag, describe_wrong, is_word, path_text, whole_number

MAX_SKIPPED = 1000


def check_path(path: Any, argument: str = "path") -> str:
    """Return the path of a dataset as str; `argument` is its name for messages."""
    name = path_text(argument, path)
    # `pathlib` makes s3:/bucket of s3://bucket; without this check, a directory named "s3:" would appear here.
    if urls.is_mistaken(name) and not os.path.isdir(name.partition("/")[0]):
        raise urls.mistaken_url_error(name)
    return name


def schema_of_fields(fields: Any, serializer: Callable[[Any], Any] | None) -> Schema | None:
    """Return the schema that `fields` stand for, or None."""
    if fields is not None and serializer is not None:
        raise ArgumentError("pass fields or serializer, not both")
    if serializer is not None and not callable(serializer):
        raise ArgumentTypeError(describe_wrong("serializer", serializer, "a callable"))
    return fields if fields is None or isinstance(fields, Schema) else Schema.of(fields)


def check_cuts(**cuts: Size | None) -> dict[str, int | None]:
    """Check the arguments that cut into shards, by name; at most one of them may be given."""
    found = {name: _cut(name, value) for name, value in cuts.items()}
    given = [f"{name}={value}" for name, value in found.items() if value is not None]
    if len(given) > 1:
        raise ArgumentError(f"{' and '.join(given)} exclude each other: pass only one of them")
    return found


def _cut(name: str, value: Any) -> int | None:
    """Return a number of samples or shards, or of bytes, which may be text."""
    return parse_limit(name, value) if name == "shard_size" else check_positive(name, value)


def check_mode(mode: str) -> bool:
    """Return whether `mode` is "append"."""
    if not is_word(mode, ("create", "append")):
        raise ArgumentError(f"mode is {mode!r}, expected 'create' or 'append'")
    return mode == "append"


def check_max_skipped(on_error: str, max_skipped: SupportsIndex | None) -> int | None:
    """Return the largest number of samples that may be skipped; None if the first failure is an error."""
    if not is_word(on_error, ("raise", "skip")):
        raise ArgumentError(f"on_error is {on_error!r}, expected 'raise' or 'skip'")
    most = check_count("max_skipped", max_skipped)
    if on_error == "skip":
        return MAX_SKIPPED if most is None else most
    if most is not None:
        raise ArgumentError(f"max_skipped={most} needs on_error='skip'")
    return None


def check_stuck_after(seconds: float | None) -> float | None:
    """Return the seconds after which a worker counts as stuck, or None."""
    if seconds is None:
        return None
    # `bool` is an `int` in Python: True would be one second.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ArgumentTypeError(describe_wrong("stuck_after", seconds, "a number of seconds or None"))
    if not 0 < seconds < float("inf"):
        raise ArgumentError(f"stuck_after is {seconds}, expected > 0 and finite")
    return float(seconds)


def check_num_workers(number: SupportsIndex) -> int:
    """Return the number of processes to use."""
    found = whole_number("num_workers", number)
    if found < -1:
        raise ArgumentError(f"num_workers is {found}, expected -1 (one per usable CPU) or >= 0")
    return usable_workers() if found == -1 else found


def check_optional_flag(name: str, value: Any) -> bool | None:
    """Return a bool or None."""
    return None if value is None else check_flag(name, value)


def check_count(name: str, value: SupportsIndex | None) -> int | None:
    """Return an int >= 0, or None."""
    number = None if value is None else whole_number(name, value)
    if number is not None and number < 0:
        raise ArgumentError(f"{name} is {number}, expected >= 0")
    return number


@overload
def check_positive(name: str, value: SupportsIndex) -> int: ...
@overload
def check_positive(name: str, value: SupportsIndex | None) -> int | None: ...
def check_positive(name: str, value: SupportsIndex | None) -> int | None:
    """Return an int > 0, or None."""
    number = None if value is None else whole_number(name, value)
    if number is not None and number <= 0:
        raise ArgumentError(f"{name} is {number}, expected > 0")
    return number


SHARD_SIZE = 256 << 20
PROBES = 8


@dataclass(frozen=True)
class WriterOptions:
    """The checked arguments of a `DatasetWriter`.

    Attributes:
        target: target of the dataset.
        fields, serializer: at most one of them is set.
        completes: whether `fields` may leave out columns, which samples then show.
        shard_size, samples_per_shard, num_shards: at most one of them is set; None for all: shards of SHARD_SIZE bytes.
        workers: number of processes, >= 0.
        start_method, progress, stuck_after: values for `WorkerSettings`.
        max_skipped: largest number of samples that may be skipped; None if the first failure is an error.
        appends: whether to add to a dataset.
        resumes: whether to resume an interrupted write.
    """

    target: Target
    fields: Schema | None
    serializer: Callable[[Any], Any] | None
    completes: bool
    shard_size: int | None
    samples_per_shard: int | None
    num_shards: int | None
    workers: int
    start_method: str | None
    progress: bool | None
    stuck_after: float | None
    max_skipped: int | None
    appends: bool
    resumes: bool

    def check_target(self) -> None:
        """Raise FileNotFoundError if there is nothing to append to, or FileExistsError if something is in the way."""
        self.target.check(appends=self.appends)

    @property
    def path(self) -> str:
        """Name of the target for messages."""
        return self.target.label

    def part(self) -> PartDirectory:
        """Return the part directory, which holds the shards until they are published."""
        return self.target.part(appends=self.appends)

    def settings(self, chunksize: SupportsIndex) -> WorkerSettings:
        """Return the worker settings of a call."""
        size = check_positive("chunksize", whole_number("chunksize", chunksize))
        return WorkerSettings(self.workers, size, self.start_method, self.stuck_after, self.progress)

    def cut(self, total: int | None) -> ByCount | ByBytes:
        """Return the division of `total` samples into shards; `total` is None if unknown."""
        if self.samples_per_shard is not None:
            return ByCount(self.samples_per_shard)
        if self.num_shards is not None:
            if total is None:
                raise ArgumentError(
                    f"num_shards={self.num_shards} needs the number of samples: pass a length (from_iterable), or use "
                    "samples_per_shard or shard_size"
                )
            return split_evenly(total, self.num_shards)
        # One empty shard needs no room for tables of unknown size.
        return ByCount(1) if total == 0 else ByBytes(self.shard_size or SHARD_SIZE)

    def probes(self, indices: Indices, fields: Schema | None) -> list[int]:
        """Return indices of the samples to read beforehand; none if nothing depends on them.

        Args:
            fields: fields of the columns, if known.
        """
        known = (fields is not None and not self.declares(fields)) or self.serializer is not None
        exact = self.samples_per_shard is not None or self.num_shards is not None
        if (known and exact) or not len(indices):
            return []
        # First and last sample included: sorted datasets begin with their smallest samples, or with one class.
        spread = sorted({k * (len(indices) - 1) // (PROBES - 1) for k in range(PROBES)})
        return [int(indices[position]) for position in spread]

    def declares(self, fields: Schema | None) -> Schema | None:
        """Return these fields if samples have to show whether there are other columns, else None."""
        return fields if self.completes and fields is self.fields else None

    def request(self, encoding: Encoding | None, found: Base | None) -> Request:
        """Return the part of a request that the options decide; a resumed write must match it.

        Args:
            encoding: encoding of the samples; None if the first ones are to show it.
            found: dataset that is appended to.
        """
        # Without an encoding, only the version of the writer is compared.
        said = encoding.extension if encoding else make_extension()
        declared = self.declares(self.fields)
        shown = "as the first samples show it" if declared is None else declared.to_builtins()
        cut = {"samples_per_shard": self.samples_per_shard, "num_shards": self.num_shards}
        # The default counts as given, so that a resumed call may name it.
        if cut == dict.fromkeys(cut):
            cut = {"shard_size": self.shard_size or SHARD_SIZE}
        return {
            "mode": "append" if self.appends else "create",
            resume.BASE: None if found is None else found.listing.fingerprint,
            **cut,
            "schema": encoding.schema if encoding else shown,
            "serializer": None if said is None else said.serializer,
            "writer": None if said is None else said.writer,
            # Sizes and checksums of a few samples notice a dataset that has changed since.
            resume.LOOKED: {
                str(probe.sample): [probe.size, probe.crc] for probe in (encoding.probes if encoding else ())
            },
        }
