"""torch's DataLoader with batched reads, which can begin at any batch."""

import logging
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset, Sampler
from tqdm import tqdm  # type: ignore[import-untyped]

from ffrecord.errors import ArgumentError, StateError
from ffrecord.system.values import suggest_words
from ffrecord.torch.dataset import Dataset
from ffrecord.torch.iterators import MultiProcessIterator, SingleProcessIterator, WorkersIterator
from ffrecord.torch.loader import Loader
from ffrecord.torch.loading.class_names import check_class_names
from ffrecord.torch.progress import LoaderProgress
from ffrecord.torch.sampler_progress import SamplerProgress, index_source, sampler_of
from ffrecord.torch.sampler_wrappers import SingleIndexSampler, SkipableSampler
from ffrecord.torch.trainer_epoch import ShuffleSampler

__all__ = ["DataLoader", "SkipableSampler", "track"]

logger = logging.getLogger("ffrecord")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class DataLoader(TorchDataLoader[T_co]):
    """torch's DataLoader, in the same order for the same generator. Datasets of this package read each batch at once.

    Args, where they differ from torch's:
        prefetch_factor: also allowed with `num_workers=0`, where it has no effect.
        multiprocessing_context: "fork" by default if the system has fork, so that datasets need not pickle.
        skippable: allow `set_step`, by wrapping the batch sampler. Turn it off for `batch_size=None`, and for
            frameworks that take the batch sampler apart.

    With `batch_size=None` and a dataset of this package, `collate_fn` gets a list: of one sample, or of the samples
    whose indices the sampler yields as a list.

    Raises:
        ValueError (also AssertionError): `batch_size=None` together with `skippable`.
        ValueError, TypeError: torch refuses an argument.
    """

    @suggest_words({})
    def __init__(
        self,
        dataset: TorchDataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = False,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = 2,
        persistent_workers: bool = False,
        skippable: bool = True,
        multiprocessing_context: Any = None,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        check_class_names(dataset)
        if isinstance(dataset, Dataset) and not len(dataset):
            _tell_empty(dataset, shuffled=bool(shuffle) and sampler is None and batch_sampler is None)
        if multiprocessing_context is None and num_workers > 0 and "fork" in multiprocessing.get_all_start_methods():
            multiprocessing_context = "fork"
        # Older releases of torch lack these arguments, so pass only those that were given.
        recent: dict[str, Any] = {}
        if pin_memory_device:
            recent["pin_memory_device"] = pin_memory_device
        if not in_order:
            recent["in_order"] = in_order
        if shuffle and sampler is None and batch_sampler is None and not isinstance(dataset, IterableDataset):
            sampler, shuffle = ShuffleSampler(dataset, generator=generator), False  # type: ignore[arg-type]
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor if num_workers > 0 else None,
            persistent_workers=persistent_workers,
            **recent,
        )
        self.skippable = skippable
        indices, ours = self._wrap_samplers(), None if self._is_iterable() else sampler_of(self)
        self._ffrecord_progress = LoaderProgress(indices) if ours is None else SamplerProgress(indices, ours)

    def _wrap_samplers(self) -> Any:
        """Make the batch sampler skippable, if asked; return the sampler to take indices from."""
        if self.skippable and self.batch_sampler is None:
            raise ArgumentError("batch_size=None leaves no batches to skip: it needs skippable=False")
        if self.skippable and self.batch_sampler is not None and not self._is_iterable():
            # torch's __setattr__ refuses to replace it, although nothing has used it yet.
            vars(self)["batch_sampler"] = SkipableSampler(self.batch_sampler)
        indices: Any = super()._index_sampler
        return (
            SingleIndexSampler(indices) if self.batch_sampler is None and isinstance(self.dataset, Dataset) else indices
        )

    def _is_iterable(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    @property
    def _index_sampler(self) -> Any:
        return super()._index_sampler if self._is_iterable() else self._ffrecord_progress.indices

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return super()._get_iterator() if self._is_iterable() else SingleProcessIterator(self)
        self.check_worker_number_rationality()
        return WorkersIterator(self) if self._is_iterable() else MultiProcessIterator(self)

    def __iter__(self) -> Any:
        if self._is_iterable():
            return super().__iter__()
        return self._ffrecord_progress.iterate(self, super().__iter__)

    def set_step(self, step: int) -> None:
        """Leave out the first `step` batches of each epoch, without reading them, until the next call.

        It takes effect with the next epoch.

        Args:
            step: 0 <= step <= number of batches; that number makes an empty epoch.

        Raises:
            ValueError (also AssertionError): `step` is out of range.
            RuntimeError (also AssertionError): the loader is not skippable, or a loaded state waits for its epoch to
                begin.
        """
        if not isinstance(self.batch_sampler, SkipableSampler):
            why = "an IterableDataset has no indices" if self._is_iterable() else "it was made with skippable=False"
            raise StateError(f"This dataloader is not skippable: {why}")
        if self._ffrecord_progress.loaded is not None:
            raise StateError("set_step would undo load_state_dict: begin the loaded epoch first")
        self.batch_sampler.set_step(step)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the loader, a small dict that JSON can hold, to go on from exactly there.

        It counts batches *yielded*, not batches that workers have prefetched. Within an epoch, the state is a place in
        it. After the last batch, the state says that the epoch is finished, so the next loop is the next epoch.

        Raises:
            RuntimeError (also AssertionError): the dataset is an IterableDataset, or `in_order=False` with workers.
        """
        self._require_order()
        return self._ffrecord_progress.state(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Let the next epoch go on from `state_dict`; epochs after it are whole. See docs/states.md.

        The state takes effect when iteration begins, or with the first batch of an iterator that has yielded none. Only
        then are the generators set. If shuffling draws from torch's default generator, this one is also set to its
        state at the time.

        Args:
            state_dict: from `state_dict` of a loader over the same dataset, with the same batch size and way to
                shuffle. The number of workers may differ.

        Raises:
            ValueError (also AssertionError): it is not such a state; nothing has changed.
            RuntimeError (also AssertionError): the loader has no position; see `state_dict`.
        """
        self._require_order()
        self._ffrecord_progress.load(self, state_dict)

    def _require_order(self) -> None:
        if self._is_iterable():
            raise StateError("the loader of an IterableDataset has no state: only the dataset knows where it is")
        if self.num_workers > 0 and not getattr(self, "in_order", True):
            raise StateError("a loader with in_order=False has no state: its batches come in no fixed order")


def _tell_empty(dataset: Dataset[Any], shuffled: bool) -> None:
    """Log that a dataset has no samples: as with torch's DataLoader, its epochs are empty.

    Raises:
        ValueError: it is to be shuffled, which torch refuses, too.
    """
    try:
        dataset._identity().check_samples()
    except ArgumentError as error:
        if shuffled:
            raise
        logger.warning("DataLoader: %s", error)


class BatchBar(tqdm):  # type: ignore[misc]
    """A bar without tqdm's monitor thread, which would live on in processes that a loader forks."""

    monitor_interval = 0

    def begin_at(self, done: int) -> None:
        """Let the bar begin at `done`, which counts for no speed."""
        self.initial = self.last_print_n = self.n = done
        self.refresh()


def track(loader: Iterable[T], **options: Any) -> Iterator[T]:
    """Yield the batches of a loader beside a progress bar. In an epoch that goes on from a state, it begins there.

    Args:
        loader: a `Loader`, our `DataLoader`, torch's with a sampler of this package, or anything with a length, which
            begins at 0.
        options: arguments of tqdm, such as `desc`.
    """
    batches: Any = iter(loader)
    with BatchBar(total=len(loader), **{"unit": "batch", **options}) as bar:  # type: ignore[arg-type]
        begun = False
        for batch in batches:
            if not begun:
                begun = True
                bar.begin_at(_batches_before(loader, batches))
            yield batch
            bar.update()


def _batches_before(loader: Any, batches: Any) -> int:
    """Return the number of batches before the beginning of a loop that has yielded its first batch."""
    if isinstance(loader, Loader):
        return loader._cursor.whole - len(loader._cursor) - 1
    sampler = sampler_of(loader) if isinstance(loader, TorchDataLoader) and not _is_iterable(loader) else None
    if sampler is not None and sampler._drawn is not None:
        position = sampler._drawn.run.position
        return int(position // (index_source(loader).batch_size * sampler.num_replicas))
    if isinstance(batches, (SingleProcessIterator, MultiProcessIterator)):
        return max(0, len(loader) - len(batches))
    return 0


def _is_iterable(loader: Any) -> bool:
    return isinstance(loader.dataset, IterableDataset)
