"""Samples of several datasets side by side, as torch's `StackDataset` makes them: those of ours keep their bytes."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.fields import Schema
from ffrecord.fields.tree import Node, Tree
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.parts import read_members_once
from ffrecord.inputs.passthrough import retype, tensors_of


@contextmanager
def add_member_to_errors(names: Sequence[str], place: int) -> Iterator[None]:
    """Context manager that adds the member of a stack to an error about a value in its samples."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.args = (f"{names[place] if names else f'[{place}]'}: {error}",)  # its type stays
        raise


class OtherMember:
    """Samples of a dataset that is not ours, as a member of a stack. It pickles like the dataset.

    Args:
        dataset: object with `len()` and `[i]`; several samples are asked for by its `__getitems__` if it has one.
        columns: columns of its samples; None if they get those of other datasets.

    Attributes:
        columns: the argument.
        may_be_asked_ahead: whether a thread may ask for samples ahead.
    """

    fingerprint = None  # nothing is known about its samples

    def __init__(self, dataset: Any, columns: SampleColumns | None) -> None:
        self._dataset, self.columns = dataset, columns
        self.may_be_asked_ahead: bool = getattr(dataset, "may_be_asked_ahead", False) is True

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at `indices`."""
        together = getattr(self._dataset, "__getitems__", None)
        return [self._dataset[index] for index in indices] if together is None else list(together(list(indices)))

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages."""
        return f"sample {index}"

    def read_once(self) -> AbstractContextManager[None]:
        """Return a context without effect."""
        return nullcontext()

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of the first samples one worker should get: all of them."""
        return len(indices)

    def samples_at_once(self, indices: Sequence[int]) -> int:
        """Return how many of the first samples to request together: all of them."""
        return len(indices)


class StackedDataset:
    """Samples that consist of a sample of each member. It pickles like the members.

    Args:
        names: name of each member; none for samples that are tuples.
        members: samples of each, with columns; all of one length.
        fields: fields from the user, for all or some of the columns, see `RetypedDataset`; or None.

    Attributes:
        columns: columns of the result.
        may_be_asked_ahead: whether a thread may ask for samples ahead.

    Raises:
        As `RetypedDataset`.
    """

    def __init__(self, names: Sequence[str], members: Sequence[Any], fields: Any) -> None:
        self._names, self._members = list(names), list(members)
        self.may_be_asked_ahead = all(member.may_be_asked_ahead for member in members)
        # A member that is not ours has no names for its samples.
        self._naming = next((member for member in members if not isinstance(member, OtherMember)), members[0])
        trees = tuple(member.columns.schema._tree for member in members)
        reading, self.columns = retype(Node("dict" if names else "tuple", tuple(names), trees), fields)
        # Other fields for all of it may be one field, which gets whole samples.
        inner: tuple[Tree, ...] = reading.children if isinstance(reading, Node) else trees
        self._reading = [(Schema(tree), tensors_of(tree)) for tree in inner]

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of these samples, 64 hexadecimal digits; None if a member has none."""
        texts = [f"{self._names}", *(member.fingerprint for member in self._members)]
        if None in texts:
            return None
        return hashlib.sha256(" ".join(texts).encode()).hexdigest()

    def __len__(self) -> int:
        return len(self._members[0])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        columns = []
        for place, (member, (schema, tensor)) in enumerate(zip(self._members, self._reading, strict=True)):
            records = [self._encode(place, sample) for sample in member.__getitems__(indices)]
            columns.append([schema.decode(record, tensor) for record in records])
        rows = zip(*columns, strict=True)
        return [dict(zip(self._names, row, strict=True)) for row in rows] if self._names else list(rows)

    def _encode(self, place: int, sample: Any) -> bytes:
        """Return the record of a sample of a member."""
        with add_member_to_errors(self._names, place):
            record: bytes = self._members[place].columns.schema.encode(sample)
        return record

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages, with its file in the first member that is one of our stores."""
        name: str = self._naming.sample_name_for_errors(index)
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
