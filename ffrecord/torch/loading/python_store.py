"""Samples that Python makes: lists, Hugging Face datasets, tables, and any other dataset with an index.

`columns_of` has the columns of these and of all other stores.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset

from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    FFRecordError,
    FormatError,
    UserFunctionError,
    describe_error,
    name_files,
    plural,
)
from ffrecord.fields import schema_of
from ffrecord.inputs.huggingface import keep_columns, take_columns
from ffrecord.inputs.tables import Table
from ffrecord.reader import FileReader
from ffrecord.reading.batch_forms import BatchOutcome
from ffrecord.reading.store import Store
from ffrecord.system.values import describe
from ffrecord.torch.indices import SeededIndex, hand_down_seeds
from ffrecord.torch.loading.columns import BatchColumns, Indices, Seeds, tensor_of
from ffrecord.torch.loading.decoded_columns import AnyColumns, DecodedColumns, StoreRecords
from ffrecord.torch.loading.nested import Path, parse_path, pick_columns, picked_path, tree_of, value_at
from ffrecord.torch.loading.ragged import Form, form_rows, is_named
from ffrecord.torch.loading.records import Bytes, Offsets
from ffrecord.torch.loading.stacking import UnevenError, stack_samples
from ffrecord.torch.stop_iteration import describe_batch

__all__ = ["PythonColumns", "PythonStore", "columns_of", "store_of_dataset", "store_of_table"]

NAMES_MOST = 20  # in a message
KINDS = (Mapping, tuple, list)  # structures of samples


class PythonStore(Store[Any]):
    """The samples of any dataset with `__len__` and `__getitem__`, as a store without bytes.

    Its records are empty. They are read at once, and the samples are fetched when the records are decoded: in the
    threads or worker processes of a loader.

    Args:
        dataset: the dataset. A batch is fetched by its `__getitems__` if it has one. The samples and their order must
            not depend on earlier calls. Threads may call it at the same time.
        several: function from indices [k] to samples, in place of both methods; or None.
        name: name for messages; by default that of the dataset's type.
        take: function from indices [k] to the columns of those samples, or None. They are a dict or tuple of new arrays
            and tensors [k, …], and of lists of k values. Batches are made of them, or else of samples.

    Attributes:
        dataset: the argument.
        name: the name.

    Raises:
        TypeError: it has no length, or no `__getitem__`.
    """

    format: ClassVar[str] = "Python samples"

    def __init__(
        self,
        dataset: Any,
        several: Callable[[list[int]], Sequence[Any]] | None = None,
        name: str | None = None,
        take: Callable[[list[int]], Any] | None = None,
    ) -> None:
        self.dataset, self._several, self._take = dataset, several, take
        self.name = name or type(dataset).__name__
        super().__init__([self.name], _count(dataset, self.name, several is not None))

    def __reduce__(self) -> tuple[Any, ...]:
        return PythonStore, (self.dataset, self._several, self.name, self._take)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {plural(self.n, 'sample')} of {self.name}>"

    def fingerprint(self) -> str:
        """Return the name of the dataset's type: nothing else is known about the samples but their number."""
        return self.name

    @property
    def takes_batches(self) -> bool:
        """True if a batch is fetched by one call."""
        return self._several is not None or callable(getattr(self.dataset, "__getitems__", None))

    @property
    def takes_columns(self) -> bool:
        """True if a batch is fetched as columns."""
        return self._take is not None

    @property
    def described(self) -> str:
        """Words for the samples and the way to get them."""
        how = "in columns" if self.takes_columns else "in batches" if self.takes_batches else "one by one"
        return f"{plural(self.n, 'sample')} of {self.name}, made by Python {how}"

    @property
    def seeded(self) -> bool:
        """True if samples of a `Dataset` of this package depend on random seeds, also below torch's own joins."""
        return hand_down_seeds(self.dataset)

    def keep_columns(self, names: Collection[Any]) -> "PythonStore":
        """Return a store of the same samples without columns other than `names`, if the dataset can leave them out."""
        if isinstance(self.dataset, Table):
            table = self.dataset.select(names) if names else self.dataset
            return self if table is self.dataset else store_of_table(table, self.name)
        found = self.dataset if self._several is not None else keep_columns(self.dataset, names)
        return self if found is self.dataset else store_of_dataset(found, self.name)

    def fetch(self, indices: list[int], seeds: list[int] | None = None) -> list[Any]:
        """Return the samples at `indices`, each in [0, n).

        Args:
            indices: [k] ints.
            seeds: [k] ints, for a dataset that is `seeded`; None to let it draw them.

        Raises:
            UserFunctionError: the dataset raised, or it gave another number of samples.
        """
        if seeds is not None:
            indices = [SeededIndex(index, seed) for index, seed in zip(indices, seeds, strict=True)]
        with self._named_errors(indices):
            if self._several is not None:
                samples = list(self._several(indices))
            elif self.takes_batches:
                samples = list(self.dataset.__getitems__(indices))
            else:
                dataset = self.dataset
                samples = [dataset[index] for index in indices]
        if len(samples) != len(indices):
            raise UserFunctionError(
                f"dataset {self.name} failed on {describe_batch(indices)}: __getitems__ gave "
                f"{plural(len(samples), 'sample')}, expected {len(indices)}"
            )
        return samples

    def fetch_columns(self, indices: list[int]) -> Any:
        """Return the columns of the samples at `indices`, as `take` does; None if there is no such function.

        Raises:
            UserFunctionError: it raised.
        """
        if self._take is None:
            return None
        with self._named_errors(indices):
            return self._take(indices)

    @contextmanager
    def _named_errors(self, indices: list[int]) -> Iterator[None]:
        """Raise errors of the dataset again, with its name and the samples."""
        try:
            yield
        except Exception as error:
            raise UserFunctionError(
                f"dataset {self.name} failed on {describe_batch(indices)}: {describe_error(error)}"
            ) from error

    def _begin_packed(self, indices: Any) -> Callable[[], BatchOutcome]:
        outcome = BatchOutcome((np.empty(0, np.uint8), np.zeros(len(indices) + 1, np.int64)), [])
        return lambda: outcome

    def _load(self, positions: Indices) -> list[npt.NDArray[np.uint8] | Exception]:
        return [np.empty(0, np.uint8) for _ in positions]

    def _decode(self, positions: Indices, records: list[Bytes]) -> list[Any]:
        return self.fetch(positions.tolist())


class PythonColumns(DecodedColumns):
    """The columns of a `PythonStore`. Batches have the structure of the samples, as those of `transform` have."""

    _store: PythonStore

    def __init__(self, store: PythonStore, *arguments: Any) -> None:
        super().__init__(store, *arguments)
        self._seeded = store.seeded
        self._tree = None if self._wanted is None else tree_of(map(parse_path, self._wanted))
        names = {parse_path(name)[0] for name in self._wanted or ()}
        self._source = store.keep_columns(names)  # without names, all of them
        if isinstance(self._source.dataset, Table):
            self._source.dataset.prepare()
        # A batch has all columns of the source, as they are. A table keeps just those wanted, if it has them all.
        chosen = self._source is not store and self._source.takes_columns
        chosen = chosen and all(parse_path(name) == (name,) for name in self._wanted or ())
        self._by_column = not self._decoders and (self._wanted is None or chosen)
        self.decodes = self.decodes or self._seeded

    def __reduce__(self) -> tuple[Any, ...]:
        return PythonColumns, self._recipe

    def values(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        """Return the batch, as a list of one value.

        Raises:
            FormatError: a sample lacks a column, or cannot be decoded.
            UserFunctionError: the dataset raised, or its samples do not make a batch.
        """
        try:
            return self._batch(records, seeds)
        except UnevenError as error:
            raise UserFunctionError(
                f"samples of {self._store.name} do not make a batch: sample {records.indices[error.place]}: {error}. "
                "Give all one structure in transform, name the columns in fields, or make batches in collate_fn"
            ) from error

    def check(self, record: Bytes, index: int, seeds: Seeds | None) -> None:
        """Check that the dataset gives a sample.

        Raises:
            FFRecordError: it does not: errors of this package are raised as they are.
        """
        try:
            super().check(record, index, seeds)
        except UserFunctionError as error:
            if isinstance(error.__cause__, FFRecordError) and not isinstance(error.__cause__, UserFunctionError):
                raise error.__cause__ from None
            raise

    def _batch(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        columns = self._source.fetch_columns(records.indices.tolist()) if self._by_column else None
        if columns is None:
            return super()._batch(records, seeds)
        if isinstance(columns, dict):
            return [{name: _stack_column(column, self._form, f".{name}") for name, column in columns.items()}]
        return [tuple(_stack_column(column, self._form, f"[{i}]") for i, column in enumerate(columns))]

    def _samples_of(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        return self._source.fetch(
            records.indices.tolist(), seeds.tolist() if self._seeded and seeds is not None else None
        )

    def _path(self, name: str, sample: Any) -> Path:
        path = _path_in(name, sample)
        # With `fields`, the sample has only the columns wanted.
        return path if self._tree is None or path == (name,) else picked_path(path, self._tree)

    @staticmethod
    def _is_inside(name: str, wanted: Iterable[str]) -> bool:
        path = parse_path(name)
        return any(path[: len(outer)] == outer for outer in map(parse_path, wanted))

    def _pick(self, sample: Any, wanted: Iterable[str]) -> Any:
        if isinstance(sample, dict) and all(name in sample for name in wanted):
            return super()._pick(sample, wanted)
        return pick_columns(sample, self._tree)

    def _check_column(self, name: str, sample: Any) -> None:
        try:
            value_at(sample, _path_in(name, sample))
        except LookupError:
            raise FormatError(
                f"no column {name!r} in a sample of {self._store.name}, which has {_describe_columns(sample)}"
            ) from None

    def records_from_packed(self, data: Bytes, offsets: Offsets, indices: Indices) -> StoreRecords:
        return StoreRecords(indices)  # their bytes are not needed

    def _stack(self, samples: list[Any]) -> Any:
        # The usual case is decided by a few fast calls. With equal lengths, a dict with other columns lacks one.
        alike = len(set(map(type, samples))) == 1
        if not alike or (isinstance(samples[0], dict) and len(set(map(len, samples))) > 1):
            _check_alike(samples)
        try:
            return stack_samples(samples, self._form)
        except UnevenError:
            _check_alike(samples)
            raise


def store_of_dataset(dataset: Any, name: str | None = None) -> PythonStore:
    """Return a store of a dataset's samples, whose columns are taken where that gives the same batches."""
    return PythonStore(dataset, None, name, take_columns(dataset))


def store_of_table(table: Table, name: str) -> PythonStore:
    """Return a store of the rows of a table."""
    return PythonStore(table, table.copy_samples, name, table.take)


def _stack_column(column: Any, form: Form, path: str) -> Any:
    """Return a column of a batch as `stack_samples` makes it of the values of k samples."""
    tensor = tensor_of(column) if isinstance(column, np.ndarray) else column
    if not isinstance(tensor, Tensor):
        return stack_samples(list(column), form, path)
    name = path.removeprefix(".")
    return form_rows(tensor.unbind(), form, name) if is_named(form, name) and tensor.dim() > 1 else tensor


def columns_of(store: Store[Any], *arguments: Any) -> AnyColumns:
    """Return the columns of a store, whatever its samples are.

    Args:
        store: the store.
        arguments: those of `BatchColumns` after the first.

    Raises:
        ArgumentError, ArgumentTypeError: there are no such columns, or a decoder's column holds no images.
    """
    if isinstance(store, FileReader):
        return BatchColumns(schema_of(store), *arguments)
    if isinstance(store, PythonStore):
        return PythonColumns(store, *arguments)
    return DecodedColumns(store, *arguments)


def _check_alike(samples: list[Any]) -> None:
    """Check that samples have one structure at their top.

    Raises:
        UnevenError: a sample is of another kind, or has other columns, than the first.
    """
    first = samples[0]
    for place, sample in enumerate(samples):
        if any(isinstance(sample, kind) != isinstance(first, kind) for kind in KINDS):
            raise UnevenError(f"it is {describe(sample)}, the first of the batch {describe(first)}", place)
        if isinstance(first, Mapping) and sample.keys() != first.keys():
            name = next(iter(sample.keys() ^ first.keys()))
            here, there = ("has", "lacks") if name in sample else ("lacks", "has")
            raise UnevenError(f"it {here} column {name!r}, which the first of the batch {there}", place)


def _count(dataset: Any, name: str, indexed: bool) -> int:
    """Return the length of a dataset.

    Raises:
        TypeError: it has none, or no samples by index.
        ValueError: it is empty, or its length is below 0 or no int64.
    """
    if not indexed and not hasattr(type(dataset), "__getitem__"):
        raise ArgumentTypeError(
            f"dataset is of type {name}, which has no samples by index: pass files, a store, a list, or a dataset "
            "with __len__ and __getitem__"
        )
    try:
        count = len(dataset)
    except TypeError as error:
        raise ArgumentTypeError(
            f"dataset is of type {name}, without the length that an order needs: give it a __len__ ({error})"
        ) from None
    except (ValueError, OverflowError) as error:
        raise ArgumentError(f"dataset is of type {name}, whose length is out of range: {error}") from None
    if count == 0:
        files = _files_of(dataset)
        told = f" of {name_files(files)}" if files else ""
        raise ArgumentError(f"dataset is of type {name} and has 0 samples{told}, expected at least 1")
    return count


def _files_of(dataset: Any) -> list[str]:
    """Return the files of the readers of a dataset of this package, also inside torch's wrappers, to any depth."""
    if hasattr(dataset, "ffreaders"):
        return [path for reader in dataset.ffreaders() for path in reader.fnames]
    # Subset has one dataset, ConcatDataset and StackDataset have several.
    several = getattr(dataset, "datasets", None) or [getattr(dataset, "dataset", None)]
    members: Iterable[Any] = several.values() if isinstance(several, dict) else several
    return [path for each in members if isinstance(each, TorchDataset) for path in _files_of(each)]


def _path_in(name: str, sample: Any) -> Path:
    """Return the path of a column in a sample. A key may look like a path."""
    return (name,) if isinstance(sample, Mapping) and name in sample else parse_path(name)


def _describe_columns(sample: Any) -> str:
    """Return the names of the columns of a sample, two levels deep, for messages."""
    names: list[str] = []
    for name, value in _children("", sample):
        names.extend([inner for inner, _ in _children(name, value)] or [name])
    return (
        ", ".join(names[:NAMES_MOST]) + (", …" if len(names) > NAMES_MOST else "") or f"none: it is {describe(sample)}"
    )


def _children(path: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(f"{path}.{key}" if path else str(key), inner) for key, inner in value.items()]
    return [(f"{path}[{i}]", inner) for i, inner in enumerate(value)] if isinstance(value, tuple) else []
