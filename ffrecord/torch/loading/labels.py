"""The classes of all samples, read for balanced draws."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils._pytree import tree_flatten

from ffrecord.errors import ArgumentError, ArgumentTypeError, plural
from ffrecord.order import Cursor, identity_of
from ffrecord.reading.store import Store
from ffrecord.system.values import describe_wrong
from ffrecord.torch.loading.batch_builder import BatchWork
from ffrecord.torch.loading.iteration import BatchIterator
from ffrecord.torch.loading.options import LoaderOptions, usable_cpus
from ffrecord.torch.loading.python_store import columns_of
from ffrecord.torch.loading.ragged import as_list

__all__ = ["read_labels"]

AT_ONCE = 1024  # samples


def read_labels(
    reader: Store[Any], labels: Any, indices: npt.NDArray[np.int64] | None, options: LoaderOptions
) -> npt.NDArray[Any]:
    """Return the class of each sample, of the order of `indices`.

    Args:
        reader: store of the samples.
        labels: the column that holds the classes, which is read; or the classes themselves, of the samples that
            `indices` choose.
        indices: int64 [m], the samples; None for all n.
        options: threads to read with.

    Raises:
        TypeError: the column does not hold ints, or `labels` is neither.
        ValueError: there is no such column, or there are not as many classes as samples.
    """
    if not isinstance(labels, Iterable):
        raise ArgumentTypeError(describe_wrong("class_balanced", labels, "a column, or an int for each sample"))
    if not isinstance(labels, str):
        try:
            classes = np.asarray(labels if hasattr(labels, "__array__") else list(labels))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ArgumentTypeError(
                describe_wrong("class_balanced", labels, "a column, or an int for each sample", str(error))
            ) from None
        count = reader.n if indices is None else len(indices)
        if classes.ndim == 1 and len(classes) != count:
            raise ArgumentError(
                f"class_balanced has {plural(len(classes), 'label')}, expected {count}, one for each sample"
            )
        return classes
    try:
        columns = columns_of(reader, [labels])
    except ArgumentError as error:
        reason = str(error).removeprefix(f"fields has {labels!r}, ")
        raise ArgumentError(f"class_balanced is {labels!r}, {reason}") from None
    cursor = Cursor(identity_of(reader), order="sequential", batch_size=AT_ONCE, indices=indices)
    threads = replace(options, workers=0, threads=options.threads or usable_cpus(), pin=False, device=None)
    batches = BatchIterator(cursor.begin(), reader, BatchWork(columns, as_list), threads)
    found: list[npt.NDArray[Any]] = []
    try:
        while True:
            found.append(_as_classes(labels, next(batches).batch))
    except StopIteration:
        return np.concatenate(found)
    finally:
        batches.stop()


def _as_classes(name: str, batch: Any) -> npt.NDArray[Any]:
    values = tree_flatten(batch)[0]
    if len(values) != 1 or not isinstance(values[0], torch.Tensor) or values[0].dim() != 1:
        raise ArgumentTypeError(f"class_balanced={name!r}: the column does not hold an int for each sample")
    classes: npt.NDArray[Any] = values[0].numpy()
    return classes
