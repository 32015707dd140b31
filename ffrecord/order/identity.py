"""The identity of a dataset, which decides whether a saved position belongs to it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ffrecord.errors import plural
from ffrecord.reader import FileReader
from ffrecord.reading.store import Store

__all__ = ["Identity", "identity_of"]


@dataclass(frozen=True)
class Identity:
    """The facts by which a state recognises a dataset.

    Attributes:
        samples: number of samples.
        shards: number of files; 0 if unknown.
        fingerprint: equal only for equal samples in equal shards; empty if unknown.
        prefix: returns the fingerprint of the first k shards alone, 0 <= k <= shards; None if unknown. Comparisons
            ignore it.
    """

    samples: int
    shards: int = 0
    fingerprint: str = ""
    prefix: Callable[[int], str] | None = field(default=None, compare=False, repr=False)

    def difference(self, before: "Identity") -> str | None:
        """Describe the difference from the dataset `before`, with both values; return None if there is none."""
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
        if self.prefix is None or before.shards >= self.shards or before.samples > self.samples:
            return False
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
    return Identity(len(reader), len(reader.fnames), reader.fingerprint(), prefix)
