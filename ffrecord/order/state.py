"""The position of a rank in its epochs, as plain data that goes through JSON and back.

The order of an epoch is a pure function, so a position is one integer. A state is equally small for any dataset.
"""

from typing import Annotated, Any

import msgspec

from ffrecord.errors import ArgumentError, describe_version
from ffrecord.order.identity import Identity
from ffrecord.order.keys import EPOCHS, LENGTH_MAX, SEEDS, check_range

__all__ = ["VERSION", "Contents", "State"]

VERSION = 1

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
        if isinstance(state, dict) and "version" in state and state["version"] != VERSION:
            raise ArgumentError(describe_version("the state", state["version"], VERSION))
        try:
            converted = msgspec.convert(state, cls)
        except msgspec.ValidationError as error:
            raise ArgumentError(f"this is not the state of an order: {error}") from None
        # msgspec cannot check bounds beyond 63 bits.
        check_range("seed of the state", converted.seed, 0, SEEDS)
        check_range("epoch of the state", converted.epoch, 0, EPOCHS)
        return converted

    def to_builtins(self) -> dict[str, Any]:
        """Return the state as a dict that JSON can hold."""
        builtins: dict[str, Any] = msgspec.to_builtins(self)
        return builtins
