"""What a dataset is, as far as it decides whether a saved place is a place in it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ffrecord.errors import plural
from ffrecord.reader import FileReader
from ffrecord.reading.store import Store

__all__ = ["Identity", "identity_of"]


@dataclass(frozen=True)
class Identity:
    """What a state remembers of a dataset, and recognises it by.

    Attributes:
        samples: how many.
        shards: how many files; 0 where that is not known.
        fingerprint: equal only for equal samples in equal shards; empty where it is not known.
        prefix: the fingerprint that the first k shards alone would have, for 0 <= k <= shards; None where that is not
            known. It takes no part in comparisons.
    """

    samples: int
    shards: int = 0
    fingerprint: str = ""
    prefix: Callable[[int], str] | None = field(default=None, compare=False, repr=False)

    def difference(self, before: "Identity") -> str | None:
        """What distinguishes this dataset from the one of before, in words with both values; None if nothing does."""
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
        """Whether this is the dataset of before with at least one shard appended."""
        if self.prefix is None or before.shards >= self.shards or before.samples > self.samples:
            return False
        return self.prefix(before.shards) == before.fingerprint


class IdentifiedReader(Protocol):
    """The part of `FileReader` that is needed here."""

    @property
    def fnames(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def fingerprint(self, shards: int | None = None) -> str: ...


def identity_of(reader: IdentifiedReader | Store) -> Identity:
    """The identity of the samples of a reader. It keeps a `FileReader`, for `Identity.prefix`."""
    # Other formats are not appended to by shards.
    prefix = None if isinstance(reader, Store) and not isinstance(reader, FileReader) else reader.fingerprint
    return Identity(len(reader), len(reader.fnames), reader.fingerprint(), prefix)
