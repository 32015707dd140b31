"""Samples of several datasets, one after the other or side by side: those of ours keep their bytes."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import MismatchError
from ffrecord.fields import JPEGField, LabelField, RGBImageField, Schema
from ffrecord.fields.field import Field
from ffrecord.fields.images.jpeg_codec import MAGIC
from ffrecord.fields.images.jpeg_values import jpeg_file
from ffrecord.fields.inner import ListField, OptionalField
from ffrecord.fields.tree import Node, Tree, flattener, leaves
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.parts import Positions, describe_columns, read_members_once
from ffrecord.inputs.passthrough import Verbatim, retype, tensors_of
from ffrecord.system.values import describe

FIELDS = "fields= for the columns that differ, or"
MODES = ("RGB", "L")  # of PIL images that a JPEG field takes


class ForeignEncoder:
    """The encoding of samples that are not ours, by the fields of ours.

    What these fields take, but would change, is refused, unless the user declares them: pixels that they would
    compress, and numbers of classes that may have other names.

    Args:
        schema: the fields.
        declared: fields from the user, for all or some of the columns; None for none.
    """

    def __init__(self, schema: Schema, declared: Tree | None) -> None:
        self._schema = schema
        free = set() if declared is None else {path for path, _ in leaves(declared)}
        self._checked = [
            (place, path, field)
            for place, (path, field) in enumerate(leaves(schema._tree))
            if path not in free and _changes_values(field)
        ]

    def __call__(self, sample: Any) -> bytes:
        """Return the record of a sample."""
        record: bytes = self._schema.encode(sample)
        # After the encoding, whose errors are better, if the sample fits no field at all.
        if self._checked:
            values = flattener(self._schema._tree)(sample)
            for place, path, field in self._checked:
                _check_value(path, field, values[place])
        return record


def _innermost(field: Any) -> Field:
    while (inner := getattr(field, "inner", None)) is not None:
        field = inner
    found: Field = field
    return found


def _changes_values(field: Field) -> bool:
    return isinstance(_innermost(field), JPEGField | RGBImageField | LabelField)


def _check_value(path: str, field: Any, value: Any) -> None:
    """Refuse a value that the field would change.

    Raises:
        TypeError: the message names the column.
    """
    if isinstance(field, OptionalField) and value is None:
        return
    if isinstance(field, ListField):
        for item in value:
            _check_value(path, field.inner, item)
        return
    inner = getattr(field, "inner", None)
    if inner is not None:
        _check_value(path, inner, value)
    elif isinstance(field, LabelField):
        if not isinstance(value, str):
            raise TypeError(
                f"{path}: {describe(value)} may be another class there: {field!r} is the field of the files; give the "
                "name of the class, or pass fields= with this field"
            )
    elif jpeg_file(field, value, MODES, views=False) is None and _compresses(field, value):
        raise TypeError(
            f"{path}: {describe(value)} would be compressed: {field!r} is the field of the files; give the JPEG "
            "file, or pass fields= with this field, or with another one, for the column"
        )


def _compresses(field: Any, value: Any) -> bool:
    if isinstance(field, JPEGField):
        return True
    return field.max_resolution is not None or bytes(field.encode(value)[: len(MAGIC)]) == MAGIC


class JoinedDataset:
    """Samples of several datasets, one after the other. It pickles like them.

    Args:
        kind: name of the object that joins them, for messages.
        members: samples of each; those that are not ours have no `columns`.
        declared: fields from the user, for all or some of the columns; None for none.
        positions: places of the samples in the joined datasets, int64; None for all of them.

    Attributes:
        columns: columns of the result, whose samples are records.
        may_be_asked_ahead: whether a thread may ask for samples ahead.

    Raises:
        MismatchError: two members have different columns.
    """

    def __init__(
        self, kind: str, members: Sequence[Any], declared: Tree | None, positions: Positions | None = None
    ) -> None:
        self._kind, self._members, self._positions = kind, list(members), positions
        self._ends = np.cumsum([len(member) for member in members], dtype=np.int64)
        self.may_be_asked_ahead = all(member.may_be_asked_ahead for member in members)
        schema = self._common_schema()
        self.columns = SampleColumns(Verbatim(schema))
        foreign = ForeignEncoder(schema, declared)
        self._encoders: list[Callable[[Any], Any]] = [
            foreign if member.columns is None else member.columns.schema.encode for member in members
        ]

    def _common_schema(self) -> Schema:
        found = [(i, each.columns.schema) for i, each in enumerate(self._members) if each.columns is not None]
        first, schema = found[0]
        for place, other in found[1:]:
            if other != schema:
                alike = other.fields == schema.fields
                raise MismatchError(
                    f"dataset {place} of the {self._kind}: its columns differ from those of dataset {first}"
                    f"{' in their order' if alike else ''}: {describe_columns(other)}, there "
                    f"{describe_columns(schema)}; pass {'a Schema as fields=, or' if alike else FIELDS}"
                    " write one dataset and append the other"
                )
        # Not a `Verbatim` one, which takes records only.
        return Schema(schema._tree)

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of these samples, 64 hexadecimal digits; None if a member has none."""
        texts = [f"{self._ends.tolist()}", *(member.fingerprint for member in self._members)]
        if None in texts:
            return None
        digest = hashlib.sha256(" ".join(texts).encode())
        if self._positions is not None:
            digest.update(self._positions.tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        if self._positions is not None:
            return len(self._positions)
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        owners, local = self._find(indices)
        records: list[Any] = [None] * len(indices)
        # One request for each member, then back into the order of the request.
        for owner in np.unique(owners).tolist():
            places = np.flatnonzero(owners == owner).tolist()
            samples = self._members[owner].__getitems__([int(local[place]) for place in places])
            for place, sample in zip(places, samples, strict=True):
                records[place] = self._encoders[owner](sample)
        return records

    def _find(self, indices: Sequence[int] | Positions) -> tuple[Positions, Positions]:
        """Return the member of each sample, and its index there."""
        wanted = np.asarray(indices, np.int64)
        if self._positions is not None:
            wanted = self._positions[wanted]
        owners = np.searchsorted(self._ends, wanted, side="right")
        starts = np.concatenate([np.zeros(1, np.int64), self._ends[:-1]])
        return owners, wanted - starts[owners]

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages: with its dataset, and its place there."""
        owners, local = self._find([index])
        inner = self._members[owners[0]].sample_name_for_errors(int(local[0]))
        return f"sample {index} ({inner} of dataset {owners[0]} of the {self._kind})"

    def read_once(self) -> AbstractContextManager[None]:
        """Tell the stores that every sample is read once, here and in processes forked meanwhile."""
        return read_members_once(self._members)

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of the first samples one worker should get, see `StoreSamples`."""
        owner, local = self._first_run(indices)
        return int(owner.samples_of_task(local))

    def samples_at_once(self, indices: Sequence[int]) -> int:
        """Return how many of the first samples to request together, see `StoreSamples`."""
        owner, local = self._first_run(indices)
        return int(owner.samples_at_once(local.tolist()))

    def _first_run(self, indices: Sequence[int] | Positions) -> tuple[Any, Positions]:
        """Return the member of the first samples, and the indices in it of those that follow each other there."""
        owners, local = self._find(indices)
        others = np.flatnonzero(owners != owners[0])
        return self._members[owners[0]], local[: others[0] if len(others) else len(local)]


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
