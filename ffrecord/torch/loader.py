"""The loader that makes batches for a training loop in threads."""

import contextlib
import logging
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ffrecord.errors import ArgumentError, StateError, plural
from ffrecord.fields import Field
from ffrecord.order import Cursor, Order, Run, Split, balance_classes, identity_of
from ffrecord.reading.indices import as_subset, count_from_start
from ffrecord.reading.paths import PathLike, local_path
from ffrecord.system.atomic_file import PartFile
from ffrecord.system.values import check_flag, suggest_words
from ffrecord.torch.argument_words import LOADER_WORDS
from ffrecord.torch.distributed import Place, Ranks
from ffrecord.torch.images import BoxDecoder, ImageDecoder, MaskDecoder
from ffrecord.torch.images.nvimgcodec import NVImageCodec
from ffrecord.torch.loading.bad_records import ON_ERROR, BatchRows
from ffrecord.torch.loading.batch_builder import BatchWork
from ffrecord.torch.loading.columns import BatchColumns
from ffrecord.torch.loading.functions import UserFunction
from ffrecord.torch.loading.iteration import BatchCounts, BatchIterator, Iteration
from ffrecord.torch.loading.labels import read_labels
from ffrecord.torch.loading.opening import LoaderSource, is_path, open_source
from ffrecord.torch.loading.options import LoaderOptions, check_choice, check_function
from ffrecord.torch.loading.processes import WorkerKeeper
from ffrecord.torch.loading.python_store import columns_of
from ffrecord.torch.loading.ragged import NamedForms, ragged_form
from ffrecord.torch.loading.sampled import SampledCursor, SampledRun, check_ranks, check_seed, find_order
from ffrecord.torch.loading.stats import LoaderStats, Reading
from ffrecord.torch.loading.trace import LoaderTrace
from ffrecord.torch.ordering import OrderArguments

__all__ = ["Loader"]

logger = logging.getLogger("ffrecord")


class EpochSetter:
    """The part of a `Loader` that takes a trainer's epochs."""

    def __init__(self, cursor: Cursor | SampledCursor) -> None:
        self._cursor = cursor

    @property
    def sampler(self) -> "EpochSetter":
        """The object itself: trainers also look for the sampler of a batch sampler."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop: the rest of `epoch` after a state of it was loaded, else all of it."""
        self._cursor.announce(epoch)


class Loader(Iterable[Any]):
    """Batches of samples as tensors, read ahead, in an order that can go on from any place. See docs/training.md.

    A batch has the structure of the samples: a dict of tensors for samples that are dicts. Ints become int64, floats
    float64, bools bool; arrays and tensors keep their dtype. Text, bytes and other values without a tensor type become
    a list. Batches are yours: they share no memory with each other.

    Each loop over the loader is one epoch, and the next loop is the next epoch. If you `break` out of a loop after its
    first batch, the rest of its epoch is given up; use `state_dict` and `load_state_dict` to go on there. You may leave
    a loop at any time: its threads end, and workers that have not ended after a second are killed.

    Args:
        dataset: anything that has samples.

            * Files of any format of `ffrecord.open`; or a store of it, whose own `on_error` is then ignored. The
              samples are those of its `samples`. If they are dicts, their keys are the columns for `fields` (names
              only) and `decode`. Bytes, and values that vary in shape by their format, follow `ragged` in every batch;
              nested values stay a list.
            * A `Dataset` of this package, and `Subset`, `random_split` or `ConcatDataset` of it, torch's or ours. It is
              as fast as its store, with `indices`, unless a subclass makes the samples.
            * A list, a Hugging Face dataset, a table, any dataset with `__len__` and `__getitem__`. Threads or
              workers call it, with a whole batch if it has `__getitems__`. If several threads must not call it at once,
              take num_threads=1 or num_workers. A state knows it by its length and the name of its type.

            The log says at level INFO which way it is read.
        batch_size: samples in a batch of this rank, >= 1.
        order: "random", "sequential", "block", or an order of `ffrecord.order`; None for "random".
        shuffle: True for order="random", False for "sequential".
        seed: seed of the order and of all augmentation, 0 <= seed < 2**64. A `Sampler` of this package has its own.
        epoch: first epoch, >= 0.
        drop_last: leave out a smaller last batch.
        sampler: iterable of the samples of this rank, in place of an order; read anew in each epoch, after its
            `set_epoch` if it has one. A state counts its samples and skips them. If others come, it is a StateError.
            Of a `Sampler` of this package, the loader takes over order, seed, epoch, position and rank. Its states are
            then those of a loader without a sampler, for any number of ranks.
        batch_sampler: iterable of batches, lists of samples, in place of batch_size, drop_last and an order.
        weights: float [m], the weight of each sample. Samples are drawn with replacement, in `ffrecord.order.Weighted`.
        class_balanced: int [m], the class of each sample, or the column of it: weights with which all classes are drawn
            equally often. A column is read once, now, with all of its records.
        num_threads: number of threads that decode, transform and collate, >= 0. With 0 the training loop waits while
            they are done. The default is the number of usable CPUs, at most 8. Records of fixed size need no threads:
            the reader's own threads put them into the tensors. Ranks of one machine share its CPUs.
        prefetch: batches ahead of the training loop, >= 1; by default 4, or the number of threads if that is more. Up
            to as many again are read meanwhile.
        rank, world_size: by default from torch.distributed, else from the environment (of torchrun, MPI or Slurm), else
            0 and 1. They are looked up again when a loop begins, so a process group may begin later. With a sampler
            they share nothing out: it decides the samples, and they only make the seeds of ranks differ.
        policy: "drop", "pad" or "uneven": treatment of samples that the ranks cannot share evenly; see
            `ffrecord.order.Split`.
        fields: the columns to decode. Names, or a dict of name → field to read the column with (None: as it was
            written), such as {"image": JPEGField(as_bytes=True)}.
        indices: int [m], the samples of `dataset` to use; see `ffrecord.order.Cursor`.
        decode: column of images → decoder of `ffrecord.torch.images`, which makes one tensor of a batch. Masks and
            boxes follow by `crop.mask` and `crop.boxes`.
        decode_with: "nvimgcodec" decodes JPEG files by NVIDIA's nvImageCodec, all of a batch at once, on `device`:
            `transform` and `batch_transform` get images on the GPU, too. Boxes and flips are the same, pixels nearly.
            Other images are left to the CPU and counted in `stats`. None decodes by simplejpeg or Pillow on the CPU.
        ragged: form of arrays that vary in shape: "list" of tensors; "nested" tensor; "padded" with zeros, a `Padded`.
            A dict has the forms of some columns, which they have in every batch. Without one, arrays of Python samples
            are a tensor in a batch where they have one shape.
            Lists of numbers that Python makes are such arrays with "nested" and "padded". With "list" they are not:
            those of one length become a list of tensors of the first, second, … numbers, as with torch; others stay.
        transform: function of one sample, which has the form that a dataset gives; called before samples are collated.
            Where some results have ints and others floats, the batch has float64.
            With a parameter named `seed` it gets an int in [0, 2**64) by keyword. The seed depends only on the loader's
            seed, the epoch and the position of the sample.
        collate_fn: function from the list of samples, after `transform`, to the batch.
        batch_transform: function of one batch. With a parameter named `seeds` it gets the seeds of its samples, uint64
            [k].
        num_workers: number of processes that do all of this instead of threads, >= 0: for functions that hold the GIL.
        worker_init_fn: function that each of these processes calls first, with its number.
        persistent_workers: keep these processes for later loops, until `close`. One loop at a time then.
        timeout: seconds to wait for threads or workers to finish a batch; 0 or None waits for ever. It has no effect
            without threads and workers: with num_threads=0, or for records of fixed size without functions.
        pin_memory: put batches into pinned memory. Without CUDA it warns, and has no effect.
        device: "cuda" copies batches to the GPU, on their own stream. Objects that hold tensors need the methods
            `pin_memory()` and `to(device)`.
        io, check_data, storage_options, cache_dir, cache_limit: arguments of `FileReader`; without effect if you pass a
            reader.
        on_error: action for a sample that cannot be read or decoded. "raise" raises. "skip" leaves it out of its batch.
            "replace" takes another sample of the epoch, which depends on seed, epoch and position only. Errors of
            `transform` always raise.
        multiprocessing_context: start method of the workers; by default "fork" if the system has fork.
        placement: "node", or the number of nodes if ranks of a node follow each other. A node then reads the same part
            of the dataset in every epoch, so its cache needs to hold no more; see `ffrecord.order.Placed`. None deals
            samples to ranks wherever they are.

    Attributes:
        dataset: the argument; of files, their reader.
        reader: reader of the samples.
        batch_size: samples in a batch; None with a batch_sampler.
        num_workers: the argument.

    Raises:
        ValueError, TypeError: arguments are out of range or of another type, or there is nothing to yield.
        As `FileReader`.
    """

    @suggest_words(LOADER_WORDS)
    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        order: str | Order | None = None,
        *,
        shuffle: bool | None = None,
        seed: int = 0,
        epoch: int = 0,
        drop_last: bool = False,
        sampler: Iterable[int] | torch.Tensor | None = None,
        batch_sampler: Iterable[Sequence[int]] | None = None,
        weights: Iterable[float] | torch.Tensor | None = None,
        class_balanced: str | Iterable[int] | torch.Tensor | None = None,
        num_threads: int | None = None,
        prefetch: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        policy: str = "drop",
        fields: Sequence[str] | Mapping[str, Field | None] | None = None,
        indices: Iterable[int] | torch.Tensor | None = None,
        decode: Mapping[str, ImageDecoder | MaskDecoder | BoxDecoder] | None = None,
        decode_with: str | None = None,
        ragged: str | Mapping[str, str] = "list",
        transform: Callable[..., Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        batch_transform: Callable[..., Any] | None = None,
        num_workers: int = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        persistent_workers: bool = False,
        timeout: float | None = None,
        pin_memory: bool = False,
        device: Any = None,
        io: str = "auto",
        check_data: bool = True,
        on_error: str = "raise",
        multiprocessing_context: Any = None,
        placement: Place = None,
        storage_options: Mapping[str, Any] | None = None,
        cache_dir: PathLike | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        self._options = options = LoaderOptions.from_arguments(
            num_threads,
            prefetch,
            num_workers,
            timeout,
            pin_memory,
            device,
            multiprocessing_context,
            worker_init_fn,
            persistent_workers,
            decode_with,
        )
        if decode_with is not None and not decode:
            raise ArgumentError(
                f"decode_with is {decode_with!r}, but decode is missing: give it columns and their crops"
            )
        self._library = None if decode_with is None else NVImageCodec(options.device, options.threads)
        check_choice("on_error", on_error, ON_ERROR)
        form = ragged_form(ragged)
        functions = (
            None if transform is None else UserFunction("transform", transform, "seed"),
            None if batch_transform is None else UserFunction("batch_transform", batch_transform, "seeds"),
            check_function("collate_fn", collate_fn),
        )
        check_alone(weights=weights, class_balanced=class_balanced, sampler=sampler, batch_sampler=batch_sampler)
        self._keeper = WorkerKeeper()
        if options.persistent:
            weakref.finalize(self, self._keeper.stop)
        remote = {"storage_options": storage_options, "cache_dir": cache_dir, "cache_limit": cache_limit}
        source = open_source(dataset, check_flag("check_data", check_data), io, remote)
        self._owned, self.reader = source.owned, source.store
        self.dataset: Any = self.reader if is_path(dataset) else dataset
        self.num_workers = options.workers
        try:
            identity = identity_of(self.reader)
            identity.check_samples()
            # Workers have no GPU, and memory that they pin is not pinned in this process.
            pin = (options.pin or options.device is not None) and not options.workers
            columns = columns_of(self.reader, fields, decode, form, pin, self._library)
            if isinstance(form, NamedForms) and isinstance(columns, BatchColumns) and transform is None:
                form.check_names([column.name for column in columns.columns])
            self._work = BatchWork(columns, form, on_error, *functions)
            chosen = choose_indices(source, indices)
            if class_balanced is not None:
                weights = balance_classes(read_labels(self.reader, class_balanced, chosen, options))
            arguments = OrderArguments(
                order=order,
                shuffle=shuffle,
                weights=weights,
                seed=seed,
                epoch=epoch,
                rank=rank,
                world_size=world_size,
                policy=policy,
                indices=chosen,
                placement=placement,
            )
            self._cursor: Cursor | SampledCursor
            self._batched = batch_sampler is not None
            known = find_order(sampler, batch_sampler, batch_size, drop_last)
            if sampler is None and batch_sampler is None:
                self._cursor, self._ranks = arguments.make(identity, batch_size, drop_last)
            elif known is not None:
                check_sampler(arguments, batch_size, drop_last, batched=self._batched)
                check_seed(seed, known.sampler)
                check_ranks(rank, world_size, known.sampler)
                self._cursor, self._ranks = known.sampler.lend(identity, chosen, known.batch_size, known.drop_last)
                if epoch and epoch != self._cursor.epoch:
                    self._cursor.set_epoch(epoch)
            else:
                check_sampler(arguments, batch_size, drop_last, batched=self._batched)
                check_replacing(on_error, batched=self._batched)
                check_ranks(rank, world_size, sampler if batch_sampler is None else batch_sampler)
                self._ranks = Ranks(rank, world_size, None)
                self._cursor = SampledCursor(
                    identity,
                    sampler if batch_sampler is None else batch_sampler,
                    batched=batch_sampler is not None,
                    batch_size=batch_size,
                    drop_last=drop_last,
                    seed=seed,
                    epoch=epoch,
                    split=Split(self._ranks.first.rank, self._ranks.first.world_size),
                    chosen=chosen,
                )
        except BaseException:
            self.close()
            raise
        by_library = "" if self._library is None else f"; {self._library.described}"
        self._counts = BatchCounts(f"{source.described}; {describe_work(self._work, options)}{by_library}")
        logger.info("Loader: %s", self._counts.source)
        self._read_before = Reading.of(self.reader.stats())

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator of the batches of the next epoch, or of the rest of the epoch of a loaded state."""
        return Iteration(self._cursor, self._begin, self._make, self._counts)

    def _begin(self) -> Run | SampledRun:
        self._ranks.follow(self._cursor)
        return self._cursor.begin()

    def _make(self, run: Run | SampledRun) -> BatchIterator:
        traced = self._counts.trace is not None
        return BatchIterator(run, self.reader, self._work, self._options, traced, self._keeper)

    def __len__(self) -> int:
        """Return the number of batches of this rank in a whole epoch, as trainers expect, also in the middle of one."""
        # While the rank is unknown, any rank will do: all have the same length, except with "uneven".
        self._ranks.follow(self._cursor, provisional=self._cursor.split.policy != "uneven")
        return self._cursor.whole

    # Position

    @property
    def epoch(self) -> int:
        """The epoch of the last yielded batch. After its loop has ended, or a loaded state says so, it is the next
        epoch.
        """
        return self._cursor.epoch

    @property
    def position(self) -> int:
        """The number of samples of the epoch that all ranks together have yielded.

        With a sampler that is not of this package, it is the number of this rank alone.
        """
        return self._cursor.position

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next loop: the current epoch keeps its position, any other begins at its start."""
        self._cursor.set_epoch(epoch)

    @property
    def batch_size(self) -> int | None:
        return None if self._batched else self._cursor.batch_size

    @property
    def sampler(self) -> EpochSetter:
        """The object whose `set_epoch` trainers call, like the samplers of torch's loaders.

        It differs from `set_epoch` of the loader after a loop that has yielded something: setting the same epoch again
        begins it once more. So a validation that is done twice in an epoch is whole each time.
        """
        return EpochSetter(self._cursor)

    @property
    def batch_sampler(self) -> EpochSetter:
        """The object of `sampler`; trainers look at both."""
        return self.sampler

    def state_dict(self) -> dict[str, Any]:
        """Return the position, a small dict that JSON can hold. It counts yielded batches, not batches read ahead.

        Call it when all ranks have yielded equally many batches. With a sampler that is not of this package, each rank
        has its own state.
        """
        self._ranks.follow(self._cursor, provisional=True)
        return self._cursor.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any], appended: str = "refuse") -> None:
        """Go on from a state, in the next loop, or in a loop that has yielded nothing yet.

        Args:
            state_dict: from `state_dict` of a loader over the same dataset, order and `indices`. Ranks, batch size,
                threads and workers may differ; seed, epoch and position come from the state.
            appended: if shards were appended since, "refuse" the state, or "finish" its epoch over the samples of that
                time.

        Raises:
            ValueError: it is not such a state; the message names the difference. Nothing has changed.
        """
        self._cursor.load_state_dict(state_dict, appended)

    # The last batch

    @property
    def batch_indices(self) -> npt.NDArray[np.int64]:
        """The samples of the last yielded batch, int64 [k]."""
        return self._rows.indices

    @property
    def batch_mask(self) -> torch.Tensor:
        """A mask of the last yielded batch, bool [k], False for samples with which policy="pad" filled it up."""
        rows = self._rows
        return torch.arange(len(rows.indices), device="cpu") < len(rows.indices) - rows.padding

    @property
    def _rows(self) -> BatchRows:
        if self._counts.rows is None:
            raise StateError("no batch was yielded yet")
        return self._counts.rows

    def stats(self) -> LoaderStats:
        """Return the counts so far, the time of each stage, and a verdict; cheap."""
        left = 0 if self._library is None else self._library.left
        return self._counts.stats(Reading.of(self.reader.stats()) - self._read_before, left)

    @contextlib.contextmanager
    def trace(self, path: PathLike) -> Iterator[None]:
        """Write a trace of the loops that begin inside this context: the time of each stage of each batch, by thread.

        Open it in Perfetto (https://ui.perfetto.dev) or chrome://tracing. It takes about 1 KB for each batch, and has
        at most 1,000,000 events.

        Args:
            path: JSON file to write when the context ends; an existing one is replaced as a whole.

        Raises:
            TypeError, ValueError: it is no path on this machine.
            StateError: a trace is being made already.
            OSError: the file cannot be written. If the context raises, that is a warning in the log.
        """
        if self._counts.trace is not None:
            raise StateError("a trace of this loader is being made already")
        part = PartFile(local_path("path", path))
        self._counts.trace = trace = LoaderTrace()
        try:
            yield
        except BaseException:
            try:
                trace.save(part)
            except OSError as error:
                logger.warning("Loader.trace: %s", error)
            raise
        else:
            trace.save(part)
        finally:
            self._counts.trace = None
            part.discard()

    # Closing

    def close(self) -> None:
        """Close the reader, unless you passed it, and end persistent workers. May be repeated."""
        self._keeper.stop()
        if self._library is not None:
            self._library.close()
        if self._owned:
            self.reader.close()

    def __enter__(self) -> "Loader":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        cursor = self._cursor
        return (
            f"<{type(self).__name__} of {plural(self.reader.n, 'sample')}, batches of {cursor.batch_size}, "
            f"{cursor.order!r}, "
            f"seed {cursor.seed}, epoch {cursor.epoch}, position {cursor.position} of {cursor.length}>"
        )


def check_alone(**given: Any) -> None:
    """Refuse more than one of the arguments that say which samples come.

    Raises:
        ValueError: there are two.
    """
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise ArgumentError(f"{names[0]} and {names[1]} both say which samples come: leave one of them out")


def check_sampler(arguments: OrderArguments, batch_size: int, drop_last: bool, *, batched: bool) -> None:
    """Refuse arguments that have no meaning beside a sampler.

    Raises:
        ValueError: there is one.
    """
    word = "batch_sampler" if batched else "sampler"
    others: dict[str, tuple[Any, Any]] = {
        "order": (arguments.order, None),
        "shuffle": (arguments.shuffle, None),
        "policy": (arguments.policy, "drop"),
        "placement": (arguments.placement, None),
    }
    if batched:
        others |= {"batch_size": (batch_size, 1), "drop_last": (bool(drop_last), False)}
    for name, (value, default) in others.items():
        if value != default:
            raise ArgumentError(f"{name} is {value!r}, but {word} decides that: leave one of them out")


def check_replacing(on_error: str, *, batched: bool) -> None:
    """Refuse on_error="replace" beside a sampler of the user.

    Raises:
        ValueError: it is that.
    """
    if on_error == "replace":
        word = "batch_sampler" if batched else "sampler"
        raise ArgumentError(
            f"on_error='replace' takes another sample of the order, but a {word} has no order: pass 'skip'"
        )


def choose_indices(source: LoaderSource, indices: Any) -> npt.NDArray[np.int64] | None:
    """Return the samples of the store that a loader uses: those of the source, or `indices` of them."""
    chosen = None if indices is None else as_subset(indices)
    if source.indices is None or chosen is None:
        return source.indices if chosen is None else chosen
    return source.indices[count_from_start(chosen, len(source.indices))]


def describe_work(work: BatchWork, options: LoaderOptions) -> str:
    """Return words for the Python work on the samples of a loader."""
    if work.effortless:
        return "no Python for each sample"
    if options.workers:
        return f"Python work in {plural(options.workers, 'worker')}"
    return f"Python work in {plural(options.threads, 'thread')}" if options.threads else "Python work in the loop"
