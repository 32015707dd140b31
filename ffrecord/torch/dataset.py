"""Datasets that take many indices at once: one batched read for a batch."""

import hashlib
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as TorchDataset

from ffrecord._crc import crc32
from ffrecord.errors import ArgumentError, ArgumentTypeError, ConcatIndexError, SampleIndexError, name_files, plural
from ffrecord.inputs.parts import ChosenSamples, JoinedParts, Parts, WholeStore
from ffrecord.inputs.recognise import is_untouched, parts_of
from ffrecord.order import Epoch, Run, Step, sample_seeds
from ffrecord.order.state import Identity, identity_of
from ffrecord.reader import FileReader
from ffrecord.reading.indices import is_collection
from ffrecord.reading.notebook import samples_html
from ffrecord.reading.paths import PathLike, Source, redact_source
from ffrecord.reading.store import OnError, Store
from ffrecord.system.sample_types import UNTOLD
from ffrecord.system.values import describe, describe_wrong, suggest_words
from ffrecord.torch.argument_words import DATASET_WORDS
from ffrecord.torch.fetching import FetchedSamples, both_message, decode_records, fetch, log_other_count, merge_parts
from ffrecord.torch.images import BoxDecoder, ImageDecoder, MaskDecoder
from ffrecord.torch.indices import (
    Indices,
    KeptIndices,
    MappedFile,
    PlannedBatch,
    SeededIndex,
    as_positions,
    hand_down_seeds,
    is_single,
    keep_indices,
    seeds_of,
    take_at,
    take_range,
)
from ffrecord.torch.loading.class_names import ClassColumns, check_class_names, class_columns
from ffrecord.torch.loading.forecasting import tell_planned
from ffrecord.torch.sample_work import Fields, SampleWork

__all__ = ["ConcatDataset", "Dataset", "ReaderRegistry", "Subset", "seed_indices"]

logger = logging.getLogger("ffrecord")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

FILES_SHOWN = 2
CHUNK = 1 << 16  # indices compared at once
# Methods with which a subclass may give other samples than the records hold.
SAMPLE_METHODS = ("__getitem__", "__getitems__", "__iter__", "__len__", "_fetch")


class ReaderRegistry:
    """Base of objects that can list the readers among their attributes, and the readers of registries among them.

    It needs no `__init__`: only the present values of attributes count. You may assign another reader or None, or
    delete an attribute. Readers inside lists and dicts are not found.
    """

    def ffreaders(self) -> list[Store]:
        """Return the readers: its own in the order they were assigned, then those of each registry among its
        attributes.
        """
        readers = list(_attributes_of(self, Store).values())  # type: ignore[type-abstract]
        for registry in _attributes_of(self, ReaderRegistry).values():
            readers += registry.ffreaders()
        return readers

    if not TYPE_CHECKING:  # else mypy would accept every name

        def __getattr__(self, name: str) -> Any:
            # ffrecord 1.x kept readers in these attributes. Programs may read them, or use the names for themselves.
            if name == "_readers":
                return _attributes_of(self, Store)
            if name == "_resitries":
                return _attributes_of(self, ReaderRegistry)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _attributes_of(owner: object, kind: type[T]) -> dict[str, T]:
    return {name: value for name, value in vars(owner).items() if isinstance(value, kind)}


class Dataset(ReaderRegistry, TorchDataset[T_co]):
    """Samples of `.ffr` files for torch. `dataset[indices]` reads a batch at once.

    If the files carry a schema, use the class as it is: samples come back as they were written, tensors as tensors.
    Otherwise subclass it, in one of two ways:

    * override `process`, which converts the bytes of a batch to samples;
    * override `__init__`, `__len__` and `__getitem__`, which every loader gives a list, and keep readers of your own.
      You need not call `super().__init__()`.

    Indices in the brackets may be (the second kind of subclass decides for itself):

    * a list or tuple of ints, a range, a 1-D integer array or tensor: a list of samples in that order, with repeats;
      a bool of Python in a list counts as 0 or 1, as in ffrecord 1.x;
    * an int (numpy ints too): one sample;
    * a slice: a dataset of those samples. Nothing is read, and no list is made.

    Negative indices count from the end. torch's own DataLoader, Subset and random_split read whole batches too, through
    `__getitems__`; only torch 2.0's Subset reads one by one. You can fork a dataset, and pickle it: its pickle holds
    the names of its files.

    Random choices of `decode` and `transform` follow from one seed for each sample. Indices of a `Sampler` or
    `BatchSampler` of this package bring it: it depends on their seed, the epoch and the position, as in `Loader`. Other
    indices have none. Then each batch draws a number from torch's default generator, which torch seeds anew for each
    worker and epoch. So epochs differ, and `torch.manual_seed` repeats them with as many workers. torch's own Subset
    drops seeds; a slice of a dataset keeps them.

    Args:
        fnames: files for `FileReader`: a file, a list of files, a directory, a glob pattern, URLs. Or a reader of any
            format, whose `samples` are then the samples, also for type checkers; the other arguments of `FileReader`
            have no effect then.
        check_data: compare CRC-32 of tables when opening, and of every sample when reading.
        io: way to read, see `FileReader`.
        on_error: action for a sample that cannot be read, see `FileReader`. "raise" raises. "skip" leaves it out of
            lists of samples, and `process` gets only the other indices and data. A callable returns bytes to use
            instead. "skip" also raises for one sample alone, and for a batch of a loader of which nothing is left. With
            `decode` or `transform`, it also leaves out samples that cannot be decoded.
        storage_options, cache_dir, cache_limit: options for URLs, see `FileReader`.
        fields: the columns of the samples. Names, or a dict of name → field to read the column with (None: as it was
            written), such as {"image": JPEGField(as_bytes=True)}; other formats take names only.
        decode: column of images → decoder of `ffrecord.torch.images`, which makes a tensor of each. The images of a
            batch are decoded into one tensor. Masks and boxes follow by `crop.mask` and `crop.boxes`.
        transform: function of one sample, which returns the sample to use instead. With a parameter named `seed` it
            gets an int in [0, 2**64) by keyword. If the files carry no schema, it gets the uint8 array of a record.

    Attributes:
        fnames: the argument, with URLs without secrets; the files of a reader.
        reader: reader of the samples.

    Raises:
        As `FileReader`.
        ValueError: there is no such column, or it holds no images; `fields` or `decode` beside a `process`.
        TypeError: `fields`, `decode` or `transform` is something else.
    """

    __orig_class__ = UNTOLD
    _below: type[IndexError] = SampleIndexError  # error for an index below -len
    _sample_work: SampleWork | None = None  # a subclass may leave out our __init__

    @suggest_words(DATASET_WORDS)
    def __init__(
        self,
        fnames: Source | Store[T_co],
        check_data: bool = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: PathLike | None = None,
        cache_limit: int | str | None = None,
        fields: Fields | None = None,
        decode: Mapping[str, ImageDecoder | MaskDecoder | BoxDecoder] | None = None,
        transform: Callable[..., Any] | None = None,
    ) -> None:
        self.fnames: Source = fnames.fnames if isinstance(fnames, Store) else redact_source(fnames)
        self.reader: Store
        if isinstance(fnames, Store):
            self.reader = fnames
        else:
            self.reader = FileReader(
                fnames,
                check_data,
                io=io,
                on_error=on_error,
                storage_options=storage_options,
                cache_dir=cache_dir,
                cache_limit=cache_limit,
            )
        if fields is not None or decode is not None or transform is not None:
            try:
                self._sample_work = self._check_work(SampleWork(fields, decode, transform))
            except BaseException:
                if not isinstance(fnames, Store):
                    self.reader.close()
                raise
        if not self.reader.n:
            # A log, not an error: a validation set may be empty. torch's shuffling refuses it, and names no file.
            files = self.reader.fnames
            logger.warning("Dataset: %s has 0 samples", name_files(files) if files else describe(self.reader))

    def _check_work(self, work: SampleWork) -> SampleWork:
        """Return `work`, if it suits the records and the methods."""
        if self._is_processed():
            if work.decodes:
                raise ArgumentError(both_message(self))
        else:
            work.columns(self.reader)
        return work

    def process(self, indices: list[int], data: list[npt.NDArray[np.uint8]]) -> list[T_co]:
        """Convert the bytes of a batch to samples; override it.

        Args:
            indices: [k] ints in [0, number of samples).
            data: k 1-D uint8 arrays, the bytes of each sample; writable unless io="mmap".

        Returns:
            The samples. The default decodes `data` if the files carry a schema.

        Raises:
            NotImplementedError: the method is not overridden, and the files carry no schema.
        """
        return decode_records(self, indices, data)

    def __len__(self) -> int:
        return self.reader.n

    # Overloads, because torch's Dataset declares one sample for any index.
    @overload
    def __getitem__(self, indices: slice) -> "Dataset[T_co]": ...
    @overload  # an array is no index, though a type checker may take it for one
    def __getitem__(self, indices: Indices) -> list[T_co]: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def __getitem__(self, indices: int) -> T_co: ...

    def __getitem__(self, indices: Any) -> Any:
        """Return a list of samples for several indices, one sample for an int, or a dataset for a slice.

        Raises:
            TypeError: `indices` are not indices.
            IndexError: an index is out of range; nothing was read.
            Whatever `FileReader.read` and `process` raise.
        """
        if isinstance(indices, slice):
            return self.subset(range(len(self))[indices])
        if not is_single(indices):
            if not is_collection(indices):
                raise ArgumentTypeError(describe_wrong("index", indices, "an int, a slice or a list of ints"))
            return self._fetch(self._positions(indices), seeds=seeds_of(indices)).samples
        fetched = self._fetch(self._positions([indices]), seeds=seeds_of([indices]))
        if fetched.error is not None:
            raise fetched.error
        return fetched.samples[0]

    def __getitems__(self, indices: Indices) -> list[T_co]:
        """Return the samples at `indices`; torch calls it with the indices of a batch.

        The result is a list that decodes samples when something looks at it. If default_collate or
        `ffrecord.torch.collate` gets it before, columns of fixed size become tensors at once.
        """
        if isinstance(indices, PlannedBatch) and self._foresees():
            tell_planned(self.reader, indices)
        if self._is_indexed_by_lists():
            # A subclass with a __getitem__ of its own expects a list.
            return list(self._call_own_getitem(indices if isinstance(indices, list) else self._positions(indices)))
        fetched = self._fetch(self._positions(indices), lazily=True, seeds=seeds_of(indices))
        if fetched.error is not None and not fetched.samples:
            raise fetched.error
        return fetched.samples

    def subset(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> "Subset[T_co]":
        """Return a dataset of the samples at `indices`, in that order.

        Args:
            indices: [n] ints in [-len, len), see `Subset`.
        """
        return Subset(self, indices)

    def _positions(self, indices: Indices) -> list[int]:
        return as_positions(self, indices, len(self), below=self._below)

    def _is_indexed_by_lists(self) -> bool:
        return type(self).__getitem__ is not Dataset.__getitem__

    def _call_own_getitem(self, indices: list[int]) -> Any:
        """Return the result of a subclass's own `__getitem__`."""
        found = self[indices]
        log_other_count(self, "__getitem__", found, len(indices))
        return found

    def _is_processed(self) -> bool:
        return getattr(self.process, "__func__", None) is not Dataset.process

    def _foresees(self) -> bool:
        """Tell whether the indices are those of a reader that wants to know which come next."""
        reader = vars(self).get("reader")
        return isinstance(reader, Store) and reader._foresees and not self._is_indexed_by_lists()

    def _is_seeded(self) -> bool:
        """Tell whether samples depend on seeds, so that a sampler should give them."""
        return self._sample_work is not None and self._sample_work.seeded

    def _get(self, positions: list[int], *, lazily: bool, seeds: list[int] | None) -> FetchedSamples:
        """Return the samples at `positions`, each in [0, len(self)), for a dataset that contains this one."""
        if self._is_indexed_by_lists():
            return FetchedSamples(self._call_own_getitem(positions))
        return self._fetch(positions, lazily=lazily, seeds=seeds)

    def _fetch(self, positions: list[int], *, lazily: bool = False, seeds: list[int] | None = None) -> FetchedSamples:
        """Return the samples at `positions`, each in [0, len(self)), by one batched read.

        Args:
            positions: [k] indices.
            lazily: allow lists that make samples when something looks at them.
            seeds: [k] random seeds of the samples; None to draw them if they are needed.
        """
        process = self.process if self._is_processed() else None
        return fetch(self.reader, positions, process, self, lazily=lazily, work=self._sample_work, seeds=seeds)

    def _parts_of_dataset(self) -> Parts | None:
        """Return the records that the samples come from; None if a subclass makes other samples.

        A `DatasetWriter` copies these records instead of the samples.
        """
        reader = self._source_of_samples()
        return None if reader is None or self._sample_work is not None else WholeStore(reader)

    def _source_of_samples(self) -> Store | None:
        """Return the reader; None if a subclass makes other samples than those that it decodes."""
        reader = vars(self).get("reader")
        return reader if isinstance(reader, Store) and is_untouched(self, ("process", *SAMPLE_METHODS)) else None

    def _identity(self) -> Identity:
        """Return the identity of the dataset, for saved positions."""
        readers = self.ffreaders()
        if len(readers) == 1 and readers[0].n == len(self):
            return identity_of(readers[0])
        return _combine_identities(len(self), [identity_of(reader) for reader in readers])

    def __iter__(self) -> Iterator[T_co]:
        """Yield all samples in order, read one by one; a DataLoader is faster."""
        for index in range(len(self)):
            yield from self[[index]]

    def __add__(self, other: TorchDataset[T_co]) -> "ConcatDataset[T_co]":  # type: ignore[override]
        return ConcatDataset([self, other])

    def close(self) -> None:
        """Close all readers; may be repeated."""
        for reader in self.ffreaders():
            reader.close()

    def __enter__(self) -> "Dataset[T_co]":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        names = [name for reader in self.ffreaders() for name in reader.fnames]
        shown = names if len(names) <= FILES_SHOWN else [names[0], "...", names[-1]]
        count = f"{plural(len(self), 'sample')} in {plural(len(names), 'file')}"
        return f"<{type(self).__name__} of {count}: {', '.join(shown)}>"

    def _repr_html_(self) -> str:
        """Return a table of the columns and of three samples, for notebooks. It never raises."""
        return samples_html(self, lambda: len(self), self._sample_to_show, self._column_types)

    def _sample_to_show(self, index: int) -> Any:
        with torch.random.fork_rng(devices=[]):  # a look at a dataset changes no random numbers of the program
            # The other kind of subclass takes lists only.
            return self[[index]][0] if self._is_indexed_by_lists() else self[SeededIndex(index, index)]

    def _column_types(self) -> Mapping[str, str]:
        """Return the declared types of columns, by name, as text for people."""
        reader = vars(self).get("reader")
        if not isinstance(reader, Store) or self._is_processed() or self._is_indexed_by_lists():
            return {}
        types = reader._column_types()
        return types if self._sample_work is None else self._sample_work.column_types(types)

    def _class_columns(self) -> list[ClassColumns]:
        """Return the columns of classes of each file set; none if a subclass makes other samples."""
        reader = self._source_of_samples()
        if reader is None:
            return []
        return [class_columns(reader, None if self._sample_work is None else self._sample_work.fields)]


class Subset(Dataset[T_co]):
    """Some samples of a dataset, in their own order.

    Args:
        dataset: a dataset of this package.
        indices: [n] ints into `dataset`, a sequence or 1-D array; repeats are allowed. A range or integer array is kept
            as it is. A mapped array stays mapped, and its pickle holds the name of its file. Other sequences are also
            copied into an int64 array, so that workers hold no Python object per sample.

    Attributes:
        dataset, indices: the arguments.

    Raises:
        TypeError: `indices` are not ints.
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> None:
        self.dataset = dataset
        self.indices = indices
        self._kept = keep_indices(indices)

    def __len__(self) -> int:
        return len(self._kept)

    def subset(self, indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> "Subset[T_co]":
        """Return a dataset of the samples at `indices`, in that order. A range gives a piece of this subset, not a
        nested one.

        Args:
            indices: [n] ints in [-len, len), see `Subset`.
        """
        if type(self) is not Subset or not isinstance(indices, range) or not _is_inside(indices, len(self)):
            return super().subset(indices)
        return Subset(self.dataset, take_range(self._kept, indices))

    def _is_seeded(self) -> bool:
        return self.dataset._is_seeded()

    def _column_types(self) -> Mapping[str, str]:
        return self.dataset._column_types()

    def _class_columns(self) -> list[ClassColumns]:
        return self.dataset._class_columns() if is_untouched(self, SAMPLE_METHODS) else []

    def _fetch(self, positions: list[int], *, lazily: bool = False, seeds: list[int] | None = None) -> FetchedSamples:
        own = self.dataset._positions(take_at(self._kept, positions))
        return self.dataset._get(own, lazily=lazily, seeds=seeds)

    def _parts_of_dataset(self) -> Parts | None:
        inner = parts_of(self.dataset) if is_untouched(self, SAMPLE_METHODS) else None
        return None if inner is None else ChosenSamples(inner, self._kept)

    def _identity(self) -> Identity:
        inside, text = self.dataset._identity(), _describe_indices(self._kept)
        fingerprint = _digest(f"{inside.samples}", inside.fingerprint, text)
        return Identity(len(self), inside.shards, fingerprint, name=f"a subset of {inside.name}" if inside.name else "")

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name != "_kept"}
        return {**state, "indices": MappedFile.of(self.indices) or self.indices}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if isinstance(self.indices, MappedFile):
            self.indices = self.indices.open()
        self._kept = keep_indices(self.indices)


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other. A batch needs one batched read for each member with samples in it.

    Args:
        datasets: one or more datasets of this package.

    Attributes:
        datasets: list of the members.
        cumulative_sizes: list of ints, the number of samples up to the end of each member.

    Raises:
        ValueError (also AssertionError): there are no datasets.
        TypeError (also AssertionError): a member is not a dataset of this package.
        FormatError: the class names of a column differ in two members, so that one number would mean two classes.
    """

    _below = ConcatIndexError

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: list[Dataset[T_co]] = list(datasets)
        if not self.datasets:
            raise ArgumentError("datasets should not be an empty iterable")
        for i, member in enumerate(self.datasets):
            if not isinstance(member, Dataset):
                raise ArgumentTypeError(describe_wrong(f"datasets[{i}]", member, "an ffrecord.torch.Dataset"))
        check_class_names(self)
        self.cumulative_sizes = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Sized]) -> list[int]:
        """Return the running total of the lengths in `sequence`."""
        sizes: list[int] = []
        for member in sequence:
            sizes.append(len(member) + (sizes[-1] if sizes else 0))
        return sizes

    def ffreaders(self) -> list[Store]:
        """Return its own readers, if any, then the readers of each member."""
        return super().ffreaders() + [reader for member in self.datasets for reader in member.ffreaders()]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def _is_seeded(self) -> bool:
        return any(member._is_seeded() for member in self.datasets)

    def _column_types(self) -> Mapping[str, str]:
        return self.datasets[0]._column_types()

    def _class_columns(self) -> list[ClassColumns]:
        members = self.datasets if is_untouched(self, SAMPLE_METHODS) else []
        return [each for member in members for each in member._class_columns()]

    def _fetch(self, positions: list[int], *, lazily: bool = False, seeds: list[int] | None = None) -> FetchedSamples:
        parts, places = [], []
        for member, own in self._by_member(positions).items():
            start = self.cumulative_sizes[member - 1] if member else 0
            given = None if seeds is None else [seeds[place] for place in own]
            fetched = self.datasets[member]._get(
                [positions[place] - start for place in own], lazily=lazily, seeds=given
            )
            if len(fetched.samples) != len(own) and fetched.kept is None:
                raise ArgumentError(
                    f"datasets[{member}] gave {plural(len(fetched.samples), 'sample')} for {len(own)} indices: "
                    "a sample for each is needed"
                )
            parts.append(fetched)
            places.append(own)
        return merge_parts(parts, places, len(positions))

    def _parts_of_dataset(self) -> Parts | None:
        members = [parts_of(member) for member in self.datasets] if is_untouched(self, SAMPLE_METHODS) else [None]
        known = [member for member in members if member is not None]
        return JoinedParts(known) if len(known) == len(members) else None

    def _identity(self) -> Identity:
        return _combine_identities(len(self), [member._identity() for member in self.datasets])

    def _by_member(self, positions: list[int]) -> dict[int, list[int]]:
        """Return member → places in `positions` that belong to it, in order."""
        places: dict[int, list[int]] = {}
        for place, position in enumerate(positions):
            places.setdefault(bisect_right(self.cumulative_sizes, position), []).append(place)
        return places


def plan_indices(dataset: object, run: Run, number: int, step: Step) -> list[int]:
    """Return the indices of a step of a run, as `seed_indices` does, by the number of the step too.

    They are a `PlannedBatch` if the reader of `dataset` wants to know what comes next.
    """
    indices = seed_indices(dataset, run.epoch, step)
    if not run.epoch.order.window_length or not isinstance(dataset, Dataset) or not dataset._foresees():
        return indices
    return PlannedBatch(indices, run, number)


def seed_indices(dataset: object, epoch: Epoch, step: Step) -> list[int]:
    """Return the indices of a planned batch, with seeds if samples of `dataset` depend on them."""
    indices: list[int] = step.indices.tolist()
    if not hand_down_seeds(dataset):
        return indices
    seeds = sample_seeds(epoch.seed, step.epoch, step.positions).tolist()
    return [SeededIndex(index, seed) for index, seed in zip(indices, seeds, strict=True)]


def _is_inside(places: range, n: int) -> bool:
    return not places or (0 <= places[0] < n and 0 <= places[-1] < n)


def _combine_identities(samples: int, parts: list[Identity]) -> Identity:
    """Return the identity of a dataset of `samples` that come from these parts."""
    texts = [f"{part.samples} {part.fingerprint}" for part in parts]
    name = name_files([part.name for part in parts]) if parts else ""
    return Identity(samples, sum(part.shards for part in parts), _digest(*texts), name=name)


def _describe_indices(indices: KeptIndices) -> str:
    """Return a short text that is equal for equal indices, whatever holds them, and differs for others."""
    progression = _as_range(indices)
    if progression is not None:
        return repr(progression)
    return f"{crc32(np.ascontiguousarray(indices, np.int64).data):#010x}"


def _as_range(indices: KeptIndices) -> range | None:
    """Return the range of the same ints, in one canonical form; None if there is none."""
    if not len(indices):
        return range(0)
    first, last = int(indices[0]), int(indices[-1])
    step = int(indices[1]) - first if len(indices) > 1 else 1
    if step == 0 or last != first + step * (len(indices) - 1):
        return None
    if not isinstance(indices, range):
        for start in range(0, len(indices) - 1, CHUNK):
            if (np.diff(indices[start : start + CHUNK + 1].astype(np.int64, copy=False)) != step).any():
                return None
    return range(first, last + (1 if step > 0 else -1), step)


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()
