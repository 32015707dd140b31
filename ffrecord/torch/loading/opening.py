"""The store, and the samples of it, of whatever a `Loader` is given."""

import os
from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import Subset as TorchSubset
from torch.utils.data import TensorDataset

from ffrecord import sources
from ffrecord.errors import ArgumentTypeError, SampleIndexError, plural
from ffrecord.folders.folder import PackedFolder
from ffrecord.format.extension import Extension
from ffrecord.inputs.parts import Parts, WholeStore
from ffrecord.inputs.recognise import parts_of
from ffrecord.inputs.tables import table_of, take_from, values_of
from ffrecord.reader import FileReader
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.reading.paths import Pinned
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.store import Store
from ffrecord.sources.opening import detect_readable, local_paths
from ffrecord.torch.loading.class_names import check_class_names
from ffrecord.torch.loading.python_store import PythonStore, store_of_dataset, store_of_table

__all__ = ["LoaderSource", "open_source"]

FILES = "ffrecord"  # the format of our own files
# Classes of Hugging Face, which are no classes of torch.
STREAMS = ("IterableDataset", "IterableDatasetDict")
SEVERAL = "DatasetDict"


@dataclass(frozen=True)
class LoaderSource:
    """The samples of a loader.

    Attributes:
        store: store of the samples.
        owned: whether the loader has opened the store, and closes it.
        indices: int64 [m], the samples of the store; None for all.
        described: words for the source and the way to read it.
    """

    store: Store[Any]
    owned: bool
    indices: npt.NDArray[np.int64] | None
    described: str


def open_source(source: Any, check_data: bool, io: str, remote: Mapping[str, Any]) -> LoaderSource:
    """Return the samples that an object has.

    Args:
        source: argument `dataset` of `Loader`.
        check_data, io: options of readers.
        remote: other options of `FileReader`.

    Raises:
        TypeError, ValueError: it has no samples by index, or none at all.
        IndexError: a subset has an index out of range.
        FormatError: datasets that are joined name their classes otherwise.
        Whatever `ffrecord.open` raises.
    """
    if isinstance(source, Store):
        return LoaderSource(source, False, None, describe_store(source))
    source = values_of(source)
    if is_path(source):
        store = _open_path(source, check_data, io, remote)
        return LoaderSource(store, True, None, describe_store(store))
    _refuse_stream(source)
    check_class_names(source)
    parts = parts_of(source)
    if parts is not None:
        found = _from_parts(source, parts)
        if found is not None:
            return found
    _refuse_mixture(source)
    source, indices = _unwrap(source)
    table = table_of(source)
    if type(source) is TensorDataset:  # a subclass may have a `__getitem__` of its own
        take = partial(_take_from_tensors, source.tensors)
        python = PythonStore(source, partial(_rows_of_tensors, source.tensors), take=take)
    else:
        python = store_of_dataset(source) if table is None else store_of_table(table, type(source).__name__)
    chosen = "" if indices is None else f"{plural(len(indices), 'sample')} of "
    return LoaderSource(python, True, indices, chosen + python.described)


def _unwrap(source: Any) -> tuple[Any, npt.NDArray[np.int64] | None]:
    """Return the dataset inside torch's Subset, to any depth, and the samples of it, int64 [m]; None for all.

    Raises:
        IndexError: an index of a subset is out of range.
    """
    indices: npt.NDArray[np.int64] | None = None
    while type(source) is TorchSubset and isinstance(source.dataset, Sized):
        own = _check_subset(as_subset(source.indices), len(source.dataset))
        source, indices = source.dataset, own if indices is None else own[indices]
    return source, indices


def _take_from_tensors(tensors: Sequence[torch.Tensor], indices: list[int]) -> tuple[Any, ...]:
    """Return the rows of each tensor: a tensor [k, …], or a list of k tensors."""
    places = np.asarray(indices, np.int64)
    return tuple(take_from(tensor, places) for tensor in tensors)


def _rows_of_tensors(tensors: Sequence[torch.Tensor], indices: list[int]) -> list[tuple[torch.Tensor, ...]]:
    return list(zip(*_take_from_tensors(tensors, indices), strict=True))


def _check_subset(indices: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.int64]:
    def error(place: int, index: int) -> SampleIndexError:
        return SampleIndexError(f"indices[{place}] of a subset is {index}, expected {-n} <= index < {n}")

    return count_from_start(indices, n, error)


def is_path(source: Any) -> bool:
    """Tell whether a source is a path, or a list of paths."""
    if isinstance(source, str | bytes | os.PathLike | Pinned):
        return True
    if not isinstance(source, list | tuple) or not source or not isinstance(source[0], str | os.PathLike):
        return False
    for place, each in enumerate(source):
        if not isinstance(each, str | os.PathLike):
            raise ArgumentTypeError(
                f"dataset is a list of paths, but item {place} is of type {type(each).__name__}: pass paths only, or "
                "datasets joined by ConcatDataset"
            )
    return True


def _open_path(source: Any, check_data: bool, io: str, remote: Mapping[str, Any]) -> Store[Any]:
    known = FILES if isinstance(source, Pinned) else detect_readable(local_paths(source))
    if known == FILES:
        return FileReader(source, check_data, io=io, **remote)
    given = {name: value for name, value in remote.items() if value is not None}
    return sources.open(source, known, check_data=check_data, io=io, **given)  # pyright: ignore[reportArgumentType]


def _refuse_stream(source: Any) -> None:
    """Raise if an object yields samples only in its own order, or is several datasets.

    Raises:
        TypeError: it is an iterable dataset, or a dict of datasets.
    """
    name = type(source).__name__
    if name == SEVERAL:
        raise ArgumentTypeError(f"dataset is of type {name}: pass one of {', '.join(map(repr, source))}")
    if isinstance(source, TorchIterableDataset) or name in STREAMS:
        inner = " (of an ffrecord.torch.IterableDataset: its .dataset)" if hasattr(source, "_parts_of_dataset") else ""
        raise ArgumentTypeError(
            f"dataset is of type {name}, which has no samples by index, as an order needs them: pass a dataset with "
            f"__len__ and __getitem__{inner}, write it once with ffrecord.DatasetWriter, or take torch's DataLoader"
        )


def _refuse_mixture(source: Any) -> None:
    """Raise if a list holds datasets, or a tuple the columns of a table: no item of them is a sample.

    Raises:
        TypeError: it does.
    """
    if type(source) not in (list, tuple) or not source:
        return
    name = type(source).__name__
    sets = [isinstance(each, Store | TorchDataset) for each in source]
    if any(sets):
        other = (
            "" if all(sets) else f", and item {sets.index(False)} is of type {type(source[sets.index(False)]).__name__}"
        )
        raise ArgumentTypeError(
            f"dataset is a {name}, whose item {sets.index(True)} is of type {type(source[sets.index(True)]).__name__}"
            f"{other}: only files of one kind, each once, are joined this way; pass torch's ConcatDataset of datasets"
        )
    arrays = [each.shape for each in source if isinstance(each, np.ndarray | torch.Tensor) and each.ndim]
    if name == "tuple" and len(arrays) == len(source) and len({shape[0] for shape in arrays}) == 1 < len(set(arrays)):
        raise ArgumentTypeError(
            f"dataset is a tuple of {len(arrays)} arrays of {arrays[0][0]} rows: pass a dict of them, such as "
            "{'x': x, 'y': y}, for a sample of each row"
        )


def _from_parts(source: Any, parts: Parts) -> LoaderSource | None:
    """Return the samples that are records of stores; None if the stores do not make one."""
    if len(parts.stores) == 1:
        store, owned, starts = parts.stores[0], isinstance(source, PackedFolder), np.zeros(1, np.int64)
    else:
        joined = _join(parts.stores)
        if joined is None:
            return None
        store, owned = joined, True
        starts = np.cumsum([0, *(each.n for each in parts.stores[:-1])], dtype=np.int64)
    if isinstance(parts, WholeStore):
        return LoaderSource(store, owned, None, describe_store(store))
    try:
        found = parts.find(np.arange(len(parts), dtype=np.int64))
    except BaseException:
        if owned:
            store.close()
        raise
    indices = found.indices if len(parts.stores) == 1 else starts[found.stores] + found.indices
    whole = len(indices) == store.n and bool((indices == np.arange(store.n)).all())
    chosen = "" if whole else f"{plural(len(indices), 'sample')} of "
    return LoaderSource(store, owned, None if whole else indices, chosen + describe_store(store))


def _join(stores: Sequence[Store[Any]]) -> FileReader[Any] | None:
    """Return one reader of the files of several; None unless they are local `.ffr` files of one schema, read alike."""
    readers = [store for store in stores if type(store) is FileReader and store._remote is None]
    if len(readers) < len(stores):
        return None
    first = readers[0]
    names = [name for reader in readers for name in reader.fnames]
    schema, options = first.extension or Extension(), {**first._options(), "on_error": "raise"}
    alike = all(
        (reader.extension or Extension()).has_same_schema(schema)
        and {**reader._options(), "on_error": "raise"} == options
        and reader.check_data == first.check_data
        for reader in readers
    )
    if not alike or len(set(names)) < len(names):
        return None
    return FileReader(names, first.check_data, **options)


def describe_store(store: Store[Any]) -> str:
    """Return words for a store and the way to read it."""
    how = "read by the engine" if isinstance(store, RecordReader) else "read by Python"
    return f"{plural(store.n, 'record')} of {store.format}, {how}"
