"""The position of a rank in its epochs, as plain data that goes through JSON and back, and the dataset it belongs to.

The order of an epoch is a pure function, so a position is one integer. A state is equally small for any dataset.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeVar

import msgspec

from ffrecord.errors import ArgumentError, describe_version, name_files, plural
from ffrecord.order.keys import EPOCHS, LENGTH_MAX, SEEDS, check_range
from ffrecord.reader import FileReader
from ffrecord.reading.store import Store
from ffrecord.system.values import describe, describe_wrong

__all__ = ["VERSION", "Contents", "Identity", "State", "convert_state", "identity_of"]


@dataclass(frozen=True)
class Identity:
    """The facts by which a state recognises a dataset.

    Attributes:
        samples: number of samples.
        shards: number of files; 0 if unknown.
        fingerprint: equal only for equal samples in equal shards; empty if unknown.
        prefix: returns the fingerprint of the first k shards alone, 0 <= k <= shards; None if unknown. Comparisons
            ignore it.
        name: name of the dataset for messages, such as its first file; empty if unknown. Comparisons ignore it.
    """

    samples: int
    shards: int = 0
    fingerprint: str = ""
    prefix: Callable[[int], str] | None = field(default=None, compare=False, repr=False)
    name: str = field(default="", compare=False, repr=False)

    def check_samples(self) -> None:
        """Raise ArgumentError if the dataset has no samples, of which no epoch can be made."""
        if self.samples == 0:
            raise ArgumentError(f"{self.name or 'the dataset'} has 0 samples, expected at least 1")

    def difference(self, before: "Identity") -> str | None:
        """Describe the difference from the dataset `before`, with both values; return None if there is none."""
        # Counts first: they say more than two fingerprints.
        counts = [
            f"{plural(then, name)} then, {now} now"
            for name, then, now in (("sample", before.samples, self.samples), ("shard", before.shards, self.shards))
            if then != now
        ]
        if counts:
            return "; ".join(counts)
        if self.fingerprint != before.fingerprint:
            return (
                f"as many samples and shards, {self.samples} and {self.shards}, but other contents: "
                f"fingerprint {before.fingerprint or 'unknown'} then, {self.fingerprint or 'unknown'} now"
            )
        return None

    def extends(self, before: "Identity") -> bool:
        """Tell whether this dataset is `before` with at least one shard appended."""
        # Appending adds shards and never removes samples.
        if self.prefix is None or before.shards >= self.shards or before.samples > self.samples:
            return False
        # Fingerprints tell other contents apart; equal counts would not.
        return self.prefix(before.shards) == before.fingerprint


class IdentifiedReader(Protocol):
    """The part of `FileReader` that an identity needs."""

    @property
    def fnames(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def fingerprint(self, shards: int | None = None) -> str: ...


def identity_of(reader: IdentifiedReader | Store) -> Identity:
    """Return the identity of the samples of a reader. It keeps a `FileReader` alive for `Identity.prefix`."""
    # Only datasets of FFRecord files grow by whole shards.
    prefix = None if isinstance(reader, Store) and not isinstance(reader, FileReader) else reader.fingerprint
    files = reader.fnames
    return Identity(len(reader), len(files), reader.fingerprint(), prefix, name_files(files) if files else "")


VERSION = 1
KEYS_SHOWN = 3  # in a message

S = TypeVar("S", bound=msgspec.Struct)
Count = Annotated[int, msgspec.Meta(ge=0, le=LENGTH_MAX)]
Crc = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]


class Contents(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The saved form of `Identity`."""

    samples: Count
    shards: Count
    fingerprint: str

    @classmethod
    def of(cls, identity: Identity) -> "Contents":
        return cls(identity.samples, identity.shards, identity.fingerprint)

    @property
    def identity(self) -> Identity:
        return Identity(self.samples, self.shards, self.fingerprint)


class State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A position between two batches. It does not depend on ranks, workers or the batch size.

    Attributes:
        version: version of this layout.
        order: the order, as `Order.to_builtins` describes it.
        dataset: identity of the dataset that the epoch runs over.
        indices: CRC-32 of the filter's int64 bytes, None without a filter.
        seed: seed of the order, 0 <= seed < 2**64.
        epoch: number of the epoch, 0 <= epoch < 2**63.
        position: position in the epoch's order; all positions before it were yielded.
    """

    version: int
    order: dict[str, Any]
    dataset: Contents
    indices: Crc | None
    seed: int
    epoch: int
    position: Count

    @classmethod
    def from_builtins(cls, state: Any) -> "State":
        """Return the state that `to_builtins` described.

        Raises:
            ValueError: the version is a later one, or `state` is not a state.
        """
        converted = convert_state(state, cls, VERSION, "an order")
        # msgspec cannot check bounds beyond 63 bits.
        check_range("seed of the state", converted.seed, 0, SEEDS)
        check_range("epoch of the state", converted.epoch, 0, EPOCHS)
        return converted

    def to_builtins(self) -> dict[str, Any]:
        """Return the state as a dict that JSON can hold."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins


def convert_state(state: Any, cls: type[S], version: int, owner: str) -> S:
    """Return a state that went through JSON or not.

    Args:
        state: what the user passes for a state, of any type.
        cls: the state's layout, with a field `version`.
        version: the version that this release reads.
        owner: words for what has such states.

    Raises:
        ArgumentError: the version is another one, or `state` is no such state; the message names the fields that it
            lacks or has besides.
    """
    if not isinstance(state, Mapping):
        advice = "json.loads makes it of text" if isinstance(state, str | bytes) else ""
        raise ArgumentError(describe_wrong("the state", state, "the dict that state_dict() returned", advice))
    # Before it is converted: a later version may have fields that this one does not know.
    if state.get("version", version) != version:
        raise ArgumentError(describe_version("the state", state["version"], version))
    lacks = [each.name for each in msgspec.structs.fields(cls) if each.required and each.name not in state]
    more = [key for key in state if key not in cls.__struct_fields__]
    if lacks or more:
        told = [f"it has no {_name_some(lacks)}"] * bool(lacks) + [f"it has {_name_some(more)}"] * bool(more)
        raise ArgumentError(
            f"this is not the state of {owner}: {', and '.join(told)}; pass the dict that its state_dict() returned"
        )
    try:
        return msgspec.convert(state, cls)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"this is not the state of {owner}: {error}") from None


def _name_some(keys: Sequence[Any]) -> str:
    names = [repr(key) if isinstance(key, str) and len(key) < 40 else describe(key) for key in keys[:KEYS_SHOWN]]
    return ", ".join(names) + (f" and {len(keys) - KEYS_SHOWN} more" if len(keys) > KEYS_SHOWN else "")
