"""Recognise an object and return its samples, if more is known about them than by `source[i]`: ours, and tables."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

from ffrecord.fields import schema_of
from ffrecord.folders.folder import PackedFolder
from ffrecord.inputs import huggingface, passthrough, stores
from ffrecord.inputs.parts import ChosenSamples, JoinedParts, Parts, SelectedDataset, WholeStore
from ffrecord.inputs.stacks import StackedDataset
from ffrecord.inputs.stores import TFRECORD, StoreDataset, StoreSamples
from ffrecord.inputs.tables import table_of
from ffrecord.reader import FileReader
from ffrecord.reading.indices import SampleSlice
from ffrecord.reading.store import Store
from ffrecord.sources.images.image_folder import ImageFolderReader
from ffrecord.system.values import class_of

# Methods that a subclass may replace: then it makes the samples, and they are not the records.
OVERRIDABLE = ("__getitem__", "__iter__", "__len__", "read", "read_one", "read_packed", "sample", "samples")


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


class StackInput:
    """Samples that consist of samples of several stores, side by side.

    Args:
        names: name of each member; none for samples that are tuples.
        members: parts that each member of a sample comes from; all of one length.
    """

    serializer = None  # they have columns

    def __init__(self, names: Sequence[str], members: Sequence[Parts]) -> None:
        self.names, self.members = tuple(names), [StoreInput(parts) for parts in members]

    def __len__(self) -> int:
        return len(self.members[0])

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the samples."""
        return " ".join([f"{self.names}", *(member.fingerprint for member in self.members)])

    @property
    def directories(self) -> list[str]:
        """Directories in which every file is a sample, also one that comes to be there."""
        return [directory for member in self.members for directory in member.directories]

    def dataset(self, fields: Any, *, skips: bool = False) -> StackedDataset:
        """Return the samples by index; see `Input`."""
        return StackedDataset(self.names, [member.dataset(None, skips=skips) for member in self.members], fields)


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
    return _stack_of(source) or huggingface.input_of(source) or table_of(source)


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
    """Return the samples of torch's stacks of our datasets, of subsets of them and of several; None for others."""
    if type(source) is class_of("torch.utils.data", "Subset"):
        inner = _stack_of(source.dataset)
        if inner is None:
            return None
        return StackInput(inner.names, [ChosenSamples(member.parts, source.indices) for member in inner.members])
    if type(source) is class_of("torch.utils.data", "ConcatDataset"):
        stacks = [found for found in map(_stack_of, source.datasets) if found is not None]
        if len(stacks) < len(source.datasets) or len({(stack.names, len(stack.members)) for stack in stacks}) != 1:
            return None
        columns = zip(*(stack.members for stack in stacks), strict=True)
        return StackInput(stacks[0].names, [JoinedParts([each.parts for each in column]) for column in columns])
    if type(source) is not class_of("torch.utils.data", "StackDataset"):
        return None
    named = isinstance(source.datasets, dict)
    members = [parts_of(each) for each in (source.datasets.values() if named else source.datasets)]
    found = [parts for parts in members if parts is not None]
    # A member that is not ours, or records without columns: then samples are read as they come.
    if len(found) < len(members) or not all(_has_columns(store) for parts in found for store in parts.stores):
        return None
    return StackInput(list(source.datasets) if named else [], found)


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
