"""Samples of several datasets side by side, as torch's `StackDataset` makes them: each keeps its bytes."""

import hashlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.fields import Schema
from ffrecord.fields.tree import Node, Tree
from ffrecord.inputs.parts import read_members_once
from ffrecord.inputs.passthrough import retype, tensors_of


class StackedDataset:
    """Samples that consist of a sample of each member. It pickles like the members.

    Args:
        names: name of each member; none for samples that are tuples.
        members: samples of each, with columns; all of one length.
        fields: fields from the user, for all or some of the columns, see `RetypedDataset`; or None.

    Attributes:
        columns: columns of the result.

    Raises:
        As `RetypedDataset`.
    """

    may_be_asked_ahead = True

    def __init__(self, names: Sequence[str], members: Sequence[Any], fields: Any) -> None:
        self._names, self._members = list(names), list(members)
        trees = tuple(member.columns.schema._tree for member in members)
        reading, self.columns = retype(Node("dict" if names else "tuple", tuple(names), trees), fields)
        # Other fields for all of it may be one field, which gets whole samples.
        inner: tuple[Tree, ...] = reading.children if isinstance(reading, Node) else trees
        self._reading = [(Schema(tree), tensors_of(tree)) for tree in inner]

    @property
    def fingerprint(self) -> str:
        """Fingerprint of these samples: 64 hexadecimal digits."""
        texts = [f"{self._names}", *(member.fingerprint for member in self._members)]
        return hashlib.sha256(" ".join(texts).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._members[0])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        columns = [
            [schema.decode(member.columns.schema.encode(sample), tensor) for sample in member.__getitems__(indices)]
            for member, (schema, tensor) in zip(self._members, self._reading, strict=True)
        ]
        rows = zip(*columns, strict=True)
        return [dict(zip(self._names, row, strict=True)) for row in rows] if self._names else list(rows)

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages: with the file that the first member has it from."""
        name: str = self._members[0].sample_name_for_errors(index)
        return name

    def read_once(self) -> AbstractContextManager[None]:
        """Tell the stores that every sample is read once, here and in processes forked meanwhile."""
        return read_members_once(self._members)

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of the first samples one worker should get, see `StoreSamples`."""
        return int(min(member.samples_of_task(indices) for member in self._members))

    def samples_at_once(self, indices: Sequence[int]) -> int:
        """Return how many of the first samples to request together, see `StoreSamples`."""
        counts = [int(member.samples_at_once(indices)) for member in self._members]
        return max(1, min(counts) // len(counts))
