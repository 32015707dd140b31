"""Recognise an object and return its samples, if more is known about them than by `source[i]`: ours, and tables."""

from collections.abc import Sequence
from typing import Any, Protocol, cast

from ffrecord.fields import schema_of
from ffrecord.folders.folder import PackedFolder
from ffrecord.inputs import huggingface, passthrough, stores
from ffrecord.inputs.parts import ChosenSamples, JoinedParts, Parts, SelectedDataset, WholeStore
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
    return huggingface.input_of(source) or table_of(source) if parts is None else StoreInput(parts)


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
    return _join(source.datasets) if type(source) is class_of("torch.utils.data", "ConcatDataset") else None


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
