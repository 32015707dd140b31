"""Recognise an object and return its samples, if more is known about them than by `source[i]`: ours, and tables."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, cast

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.fields import BytesField, Schema, schema_of
from ffrecord.fields.declare import complete_tree, declare_tree
from ffrecord.fields.infer import infer_tree
from ffrecord.fields.tree import Node
from ffrecord.folders.folder import PackedFolder
from ffrecord.inputs import huggingface, passthrough, stores
from ffrecord.inputs.columns import SampleColumns
from ffrecord.inputs.joins import JoinedDataset, OtherMember, StackedDataset, add_member_to_errors
from ffrecord.inputs.parts import (
    ChosenSamples,
    JoinedParts,
    Parts,
    Positions,
    SelectedDataset,
    WholeStore,
    choose_positions,
)
from ffrecord.inputs.stores import PROBES, TFRECORD, StoreDataset, StoreSamples
from ffrecord.inputs.tables import table_of
from ffrecord.reader import FileReader
from ffrecord.reading.indices import SampleSlice, spread_indices
from ffrecord.reading.store import Store
from ffrecord.sources.images.image_folder import ImageFolderReader
from ffrecord.system.values import class_of, describe_wrong

# Methods that a subclass may replace: then it makes the samples, and they are not the records.
OVERRIDABLE = ("__getitem__", "__iter__", "__len__", "read", "read_one", "read_packed", "sample", "samples")

NOTHING_SHOWN = Schema(BytesField())  # columns of a member without samples

MEMBERS_MOST = 1024  # items of a list that are looked at for datasets

InferColumns = Callable[..., Schema]


class Input(Protocol):
    """Samples that know their columns."""

    def __len__(self) -> int: ...

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the samples; None if unknown."""

    @property
    def serializer(self) -> str | None:
        """Name of the serializer of records without columns; None if unknown."""

    def dataset(self, fields: Any, *, skips: bool = False) -> Any:
        """Return the samples by index, with `columns` of the result; None for records without a schema.

        Args:
            fields: fields from the user: a Schema; or a mapping, of some columns or of all.
            skips: whether samples that cannot be read show no columns, instead of raising.
        """


class StoreInput:
    """The samples of stores.

    Args:
        parts: parts that name the record of each sample.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the samples."""
        # No columns are needed here, so nothing is probed.
        stores = " ".join(StoreFacts(store).fingerprint for store in self.parts.stores)
        return stores if isinstance(self.parts, WholeStore) else f"{stores} {self.parts.digest()}"

    @property
    def directories(self) -> list[str]:
        """Directories in which every file is a sample, also one that comes to be there."""
        return [store.root for store in self.parts.stores if isinstance(store, ImageFolderReader)]

    @property
    def are_records(self) -> bool:
        """True if they are records of `.ffr` files, to be copied."""
        # Records of other formats must be encoded.
        return all(isinstance(store, FileReader) and _keeps_records(store, None) for store in self.parts.stores)

    @property
    def serializer(self) -> str | None:
        """Name of the serializer of records without columns, if all files agree, else None."""
        if not self.are_records:
            return None
        # Files of different serializers have no common name.
        said = {getattr(cast(FileReader, store).extension, "serializer", None) for store in self.parts.stores}
        return said.pop() if len(said) == 1 else None

    def dataset(self, fields: Any, *, skips: bool = False) -> Any:
        """Return the samples by index; see `Input`."""
        members = [open_store_samples(store, fields, skips) for store in self.parts.stores]
        return members[0] if isinstance(self.parts, WholeStore) else SelectedDataset(self.parts, members)


class OtherInput:
    """The samples of a dataset that is not ours, which show their columns.

    Args:
        source: object with `len()` and `[i]`.
    """

    serializer = fingerprint = None

    def __init__(self, source: Any) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)


class StackInput:
    """Samples that consist of samples of several datasets, side by side.

    Args:
        names: name of each member; none for samples that are tuples.
        members: samples that each member of a sample comes from; all of one length.

    Attributes:
        names, members: the arguments.
        infer: function that returns the columns that the samples of a dataset show, for members that are not ours.
    """

    serializer = None  # they have columns

    def __init__(self, names: Sequence[str], members: Sequence[Any]) -> None:
        self.names, self.members = tuple(names), list(members)
        self.infer: InferColumns = infer_columns

    def __len__(self) -> int:
        return len(self.members[0])

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the samples; None if that of a member is unknown."""
        texts = [f"{self.names}", *(member.fingerprint for member in self.members)]
        return None if None in texts else " ".join(texts)

    @property
    def directories(self) -> list[str]:
        """Directories in which every file is a sample, also one that comes to be there."""
        return [directory for member in self.members for directory in getattr(member, "directories", [])]

    def dataset(self, fields: Any, *, skips: bool = False) -> StackedDataset:
        """Return the samples by index; see `Input`."""
        members = [self._open(place, declared, skips) for place, declared in enumerate(self._declared(fields))]
        return StackedDataset(self.names, members, fields)

    def _declared(self, fields: Any) -> list[Schema | None]:
        """Return the fields from the user for each member; None where there are none."""
        tree = fields._tree if isinstance(fields, Schema) else declare_tree(fields) if fields else None
        if not isinstance(tree, Node):  # one field for whole samples, or none
            return [None] * len(self.members)
        trees = dict(zip(tree.keys or range(len(tree.children)), tree.children, strict=True))
        keys: Iterable[Any] = self.names or range(len(self.members))
        return [Schema(trees[key]) if key in trees else None for key in keys]

    def _open(self, place: int, declared: Schema | None, skips: bool) -> Any:
        """Return the samples of the member at `place`; for the other arguments see `_declared` and `Input.dataset`."""
        member = self.members[place]
        if isinstance(member, OtherInput):
            with add_member_to_errors(self.names, place):
                return OtherMember(member.source, SampleColumns(self.infer(member.source, declared)))
        if isinstance(member, StackInput | JoinInput):
            member.infer = self.infer
        if isinstance(member, JoinInput):
            return member.dataset(None, skips=skips, declared=declared)
        found = member.dataset(None, skips=skips)
        if isinstance(member, StoreInput | StackInput):
            return found
        return OtherMember(found, found.columns or SampleColumns(NOTHING_SHOWN))  # without rows there are no columns


class JoinInput:
    """Samples of several datasets one after the other, of which some are ours.

    Args:
        kind: name of the object that joins them, for messages.
        members: samples of each.
        positions: places of the samples in the joined datasets; None for all of them.

    Attributes:
        infer: function that returns the columns that the samples of a dataset show, for members that are stacks.
    """

    serializer = None  # they have columns

    def __init__(self, kind: str, members: Sequence[Any], positions: Positions | None = None) -> None:
        self._kind, self._members, self._positions = kind, list(members), positions
        self.infer: InferColumns = infer_columns

    def __len__(self) -> int:
        return sum(map(len, self._members)) if self._positions is None else len(self._positions)

    def choose(self, indices: Any) -> "JoinInput":
        """Return some of these samples, for a subset."""
        chosen = choose_positions(indices, len(self))
        return JoinInput(self._kind, self._members, chosen if self._positions is None else self._positions[chosen])

    @property
    def fingerprint(self) -> str | None:
        """Fingerprint of the samples; None if that of a member is unknown."""
        texts = [f"{[len(member) for member in self._members]}", *(member.fingerprint for member in self._members)]
        if self._positions is not None:
            texts.append(hashlib.sha256(self._positions.tobytes()).hexdigest())
        return None if None in texts else " ".join(texts)

    @property
    def directories(self) -> list[str]:
        """Directories in which every file is a sample, also one that comes to be there."""
        return [directory for member in self._members for directory in getattr(member, "directories", [])]

    def dataset(self, fields: Any, *, skips: bool = False, declared: Schema | None = None) -> JoinedDataset:
        """Return the samples by index; see `Input`.

        Args:
            declared: fields from the user that are given to the samples later, by a stack that has them as a member.
        """
        ours = [self._open(member, fields, skips) for member in self._members]
        schema = next(each.columns.schema for each in ours if each is not None)
        members = [
            _open_foreign(member, schema) if found is None else found
            for member, found in zip(self._members, ours, strict=True)
        ]
        tree = fields._tree if isinstance(fields, Schema) else declare_tree(fields) if fields else None
        return JoinedDataset(self._kind, members, declared._tree if declared else tree, self._positions)

    def _open(self, member: Any, fields: Any, skips: bool) -> Any:
        """Return the samples of a member of ours; None for another one."""
        if isinstance(member, StackInput | JoinInput):
            # Indices that were chosen are those of the whole.
            member.infer = partial(self.infer, chosen=None)
        return (
            None
            if isinstance(member, OtherInput | huggingface.HuggingFaceInput)
            else member.dataset(fields, skips=skips)
        )


def _open_foreign(member: Any, schema: Schema) -> OtherMember:
    """Return the samples of a dataset that is not ours, which get the columns of ours."""
    if isinstance(member, OtherInput):
        return OtherMember(member.source, None)
    # Rows know their classes, which are matched by name.
    rows = member.dataset(Schema(schema._tree))
    return OtherMember(rows, rows.columns)


def infer_columns(dataset: Any, declared: Schema | None, chosen: Any = None) -> Schema:
    """Return the columns that some samples of a dataset show.

    Args:
        dataset: object with `len()` and `[i]`.
        declared: fields of some of the columns, or of all.
        chosen: has no effect here.

    Raises:
        TypeError, ValueError: no fields hold the samples.
    """
    indices = spread_indices(len(dataset), PROBES)
    if not indices:
        return declared or NOTHING_SHOWN
    samples, names = [dataset[index] for index in indices], [f"sample {index}" for index in indices]
    return Schema(infer_tree(samples, names) if declared is None else complete_tree(declared._tree, samples, names))


class StoreFacts(StoreSamples):
    """A store for its fingerprint only."""

    columns = None

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        raise NotImplementedError


def input_of(source: Any) -> Input | None:
    """Return the samples of an object of ours, of several in a list, of a Hugging Face dataset, or of a table.

    None for anything else.

    Ours are open stores, their slices, packed folders, and torch datasets over them, unless a subclass or a wrapper
    other than torch's changes them. With a `process` of the user, that method makes the samples, so the result is None.

    Raises:
        ValueError: a table whose columns differ in length; several Hugging Face datasets, by name.
    """
    parts = parts_of(source)
    if parts is not None:
        return StoreInput(parts)
    found: Input | None = _first_found(source, _stack_of, huggingface.input_of, table_of, _join_of)
    return found


def _first_found(source: Any, *ways: Callable[[Any], Any]) -> Any:
    """Return the first result that is not None; one without samples counts, though it is false."""
    return next((found for found in (recognise(source) for recognise in ways) if found is not None), None)


def parts_of(source: Any) -> Parts | None:
    """Return the records that the samples of an object are; None if they are no records of ours."""
    if isinstance(source, Store):
        # A subclass that changes samples is read by its own methods.
        return WholeStore(source) if is_untouched(source, OVERRIDABLE) else None
    if isinstance(source, SampleSlice):
        inner = parts_of(source._reader)
        return None if inner is None else ChosenSamples(inner, source._indices)
    if isinstance(source, PackedFolder):
        from ffrecord.sources.packed_folder import PackedFolderReader

        return WholeStore(PackedFolderReader(source.reader.fnames, source.reader.check_data))
    told = getattr(type(source), "_parts_of_dataset", None)
    if told is not None:
        found: Parts | None = told(source)
        return found
    if type(source) in (list, tuple):  # exact types: a subclass may make its own items
        # A list of plain values is cheap to refuse, without a look at all items.
        return _join(source) if source and not isinstance(source[0], str | bytes | int | float | dict) else None
    return _parts_of_torch(source)


def _parts_of_torch(source: Any) -> Parts | None:
    """Return the parts of torch's own wrappers of our datasets; None if torch is not imported."""
    if type(source) is class_of("torch.utils.data", "Subset"):
        inner = parts_of(source.dataset)
        # Exactly torch's: subclasses may do anything.
        return None if inner is None else ChosenSamples(inner, source.indices)
    if type(source) is class_of("torch.utils.data", "ConcatDataset"):
        return _join(source.datasets)
    # An iterator of datasets is read once, by the write itself.
    chained = type(source) is class_of("torch.utils.data", "ChainDataset") and type(source.datasets) in (list, tuple)
    return _join(source.datasets) if chained else None


def _stack_of(source: Any) -> StackInput | None:
    """Return the samples of torch's stacks, of subsets of them and of several; None if no member is ours."""
    found = _members_of(source)
    if found is None:
        return None
    names, members = found
    inputs = [_member_input(member) for member in members]
    return None if all(isinstance(each, OtherInput) for each in inputs) else StackInput(names, inputs)


def _members_of(source: Any) -> tuple[list[str], list[Any]] | None:
    """Return the names and datasets of torch's stacks, of subsets of them and of several; None for anything else."""
    if type(source) is class_of("torch.utils.data", "Subset"):
        inner = _members_of(source.dataset)
        return None if inner is None else (inner[0], [type(source)(member, source.indices) for member in inner[1]])
    if type(source) is class_of("torch.utils.data", "ConcatDataset"):
        stacks = [found for found in map(_members_of, source.datasets) if found is not None]
        if len(stacks) < len(source.datasets) or len({(*names, len(members)) for names, members in stacks}) != 1:
            return None
        columns = zip(*(members for _, members in stacks), strict=True)
        return stacks[0][0], [type(source)(column) for column in columns]
    if type(source) is not class_of("torch.utils.data", "StackDataset"):
        return None
    named = isinstance(source.datasets, dict)
    return (list(source.datasets), list(source.datasets.values())) if named else ([], list(source.datasets))


def _member_input(source: Any) -> Any:
    found = _first_found(source, _parts_input, _stack_of, huggingface.input_of, _join_of)
    return OtherInput(source) if found is None else found


def _parts_input(source: Any) -> "StoreInput | OtherInput | None":
    """Return the samples of records of ours, as their own columns or as they come; None for anything else."""
    parts = parts_of(source)
    if parts is None:
        return None
    return StoreInput(parts) if all(map(_has_columns, parts.stores)) else OtherInput(source)


def _join_of(source: Any) -> "JoinInput | None":
    """Return the samples of datasets that a list or a ConcatDataset joins, or of a subset of them, if some are ours.

    None for anything else, also if all of them are ours, or none is.

    Raises:
        TypeError: a list has something else than datasets beside ours.
        ValueError: a ChainDataset joins ours and others, which come one sample after the other.
    """
    if type(source) is class_of("torch.utils.data", "Subset"):
        inner = _join_of(source.dataset)
        return None if inner is None else inner.choose(source.indices)
    members = _joined_members(source)
    if members is None or all(parts_of(member) is not None for member in members):
        return None
    if type(source) is class_of("torch.utils.data", "ChainDataset"):
        if any(isinstance(_parts_input(member), StoreInput) for member in members):
            raise ArgumentError(
                "the ChainDataset joins datasets of files and others, whose samples would lose the fields of the "
                "files: write one dataset, and append the other with mode='append'"
            )
        return None
    kind = type(source).__name__
    inputs = [_member_input(member) for member in members]
    if all(isinstance(each, OtherInput | huggingface.HuggingFaceInput) for each in inputs):
        return None
    for place, member in enumerate(members):
        if not (hasattr(member, "__len__") and hasattr(member, "__getitem__")) or isinstance(
            member, dict | str | bytes
        ):
            what = describe_wrong(f"dataset {place} of the {kind}", member, "a dataset, as others are of it")
            raise ArgumentTypeError(what)
    return JoinInput(kind, inputs)


def _joined_members(source: Any) -> Sequence[Any] | None:
    """Return the datasets that an object joins; None if it joins none."""
    kinds = [class_of("torch.utils.data", name) for name in ("ConcatDataset", "ChainDataset")]
    if type(source) in kinds:
        # Those of a ChainDataset may come from an iterator, which is read once, by the write itself.
        return source.datasets if type(source.datasets) in (list, tuple) else None
    if type(source) in (list, tuple):
        # Datasets of ours are no samples. Lists of samples may be long, so only the first items are looked at.
        return source if any(map(_is_ours, source[:MEMBERS_MOST])) else None
    concat = class_of("ffrecord.torch.dataset", "ConcatDataset")
    ours = bool(concat) and isinstance(source, concat) and is_untouched(source, (*OVERRIDABLE, "__getitems__"))
    return source.datasets if ours else None


def _is_ours(source: Any) -> bool:
    """Return whether an object is a dataset of ours, or one of torch's that may hold some: no sample is one."""
    wrappers = [class_of("torch.utils.data", name) for name in ("Subset", "ConcatDataset", "StackDataset")]
    if type(source) in wrappers:
        return True
    return isinstance(source, Store | SampleSlice | PackedFolder) or hasattr(type(source), "_parts_of_dataset")


def _has_columns(store: Store) -> bool:
    return not isinstance(store, FileReader) or (_keeps_records(store, None) and schema_of(store) is not None)


def _join(members: Sequence[Any]) -> Parts | None:
    found: list[Parts] = []
    for member in members:
        parts = parts_of(member)
        if parts is None:
            # One member that is not ours: then the whole is read as a list.
            return None
        found.append(parts)
    return JoinedParts(found)


def is_untouched(source: Any, names: Sequence[str]) -> bool:
    """Return whether the methods of these names are ours, none replaced by a subclass or on the object."""
    ours = (getattr(getattr(type(source), name, None), "__module__", None) or "ffrecord." for name in names)
    # Methods of other modules are the user's.
    return all(module.startswith("ffrecord.") for module in ours) and not any(name in vars(source) for name in names)


def open_store_samples(store: Store, fields: Any, skips: bool = False) -> StoreSamples:
    """Return the samples of a store: unchanged records if they have a schema, or are bytes that stay bytes.

    Args:
        fields: fields from the user, see `columns.choose_columns`.
        skips: whether samples that cannot be read show no columns, instead of raising.
    """
    if isinstance(store, FileReader) and _keeps_records(store, fields):
        return passthrough.open_records(store, fields)
    # Only without a parser, which has decided about the columns already.
    if store.format == TFRECORD and fields is None and getattr(store, "parser", None) is None:
        found = stores.open_examples(store, skips)
        if found is not None:
            return found
    return StoreDataset(store, fields, skips=skips)


def _keeps_records(store: FileReader, fields: Any) -> bool:
    """Return whether the samples follow the schema of the files, or are bytes that stay bytes."""
    # A `_decode` of a subclass makes other samples of the records.
    return type(store)._decode is FileReader._decode and (not fields or schema_of(store) is not None)
