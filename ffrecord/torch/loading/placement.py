"""Placement of batches in ordinary memory, pinned memory, or memory of a GPU."""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_map

from ffrecord.errors import ArgumentError, ArgumentTypeError, UserFunctionError, describe_error
from ffrecord.system.values import describe, describe_wrong
from ffrecord.torch.loading.batch_builder import Activity, BuiltBatch

__all__ = ["BatchPlacement", "as_device", "can_pin", "move"]

PLAIN = (str, bytes, int, float, complex, type(None), np.ndarray, np.generic)  # values without tensors
# A PackedSequence has lengths that stay in host memory: it moves itself. torch 2.0 takes it apart.
WHOLE: dict[str, Any] = (
    {"is_leaf": lambda value: isinstance(value, PackedSequence)} if "is_leaf" in signature(tree_map).parameters else {}
)


def as_device(device: Any) -> torch.device | None:
    """Return the GPU to copy batches to, or None.

    Raises:
        ValueError: there is no such device.
        TypeError: `device` is not a device.
    """
    if device is not None and (isinstance(device, bool) or not isinstance(device, (str, int, torch.device))):
        raise ArgumentTypeError(describe_wrong("device", device, "None or a torch device"))
    try:
        found = None if device is None else torch.device(device)
    except (RuntimeError, ValueError) as error:
        raise ArgumentError(f"device is {device!r}: {error}") from None
    if found is not None and found.type not in ("cpu", "cuda"):
        raise ArgumentError(f"device is {device!r}, expected 'cpu' or 'cuda'")
    if found is None or found.type == "cpu":
        return None
    if not torch.cuda.is_available():
        raise ArgumentError(f"device='cuda', but torch {torch.__version__} finds no CUDA device")
    index = torch.cuda.current_device() if found.index is None else found.index
    if index >= torch.cuda.device_count():
        raise ArgumentError(
            f"device is {device!r}, expected a number below {torch.cuda.device_count()}, that of CUDA devices of torch"
        )
    return torch.device("cuda", index)


def can_pin(pin: bool) -> bool:
    """Return whether to pin memory, if that was asked for. Warn, as torch does, if there is no CUDA to pin it for."""
    if pin and not torch.cuda.is_available():
        warnings.warn(
            f"pin_memory=True, but torch {torch.__version__} finds no CUDA device: memory is not pinned", stacklevel=5
        )
        return False
    return pin


class BatchPlacement:
    """The copies of finished batches to pinned memory or a GPU.

    Args:
        pin: copy to pinned memory.
        device: copy to that GPU, through pinned memory, on a stream beside the one that computes.
    """

    def __init__(self, pin: bool, device: torch.device | None) -> None:
        self._pin, self._device = pin or device is not None, device
        self._stream = None if device is None else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._left: set[type] = set()  # of objects that were told to stay in host memory
        self._copied: deque[tuple[Any, Any]] = deque()  # (event at the end of a copy, its tensors in host memory)

    @property
    def effortless(self) -> bool:
        """True if batches stay where they are."""
        return not self._pin

    def stream(self) -> AbstractContextManager[Any]:
        """Return a context whose work on the GPU goes to the stream of the copies, which `receive` waits for."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def send(self, finished: BuiltBatch, activity: Activity) -> BuiltBatch:
        """Begin to copy a batch to its place; may be called in any thread."""
        if self.effortless:
            return finished
        activity.stage, activity.index = "copying", None
        return self.copy(finished.pin_memory())

    def copy(self, finished: BuiltBatch) -> BuiltBatch:
        """Begin to copy a batch from pinned memory to the GPU, if there is one."""
        if self._device is not None:
            with torch.cuda.stream(self._stream):
                leaves = tree_flatten(finished.batch, **WHOLE)[0]
                # Without images that were decoded on the GPU, whose memory the user may free.
                finished.host = [each for each in leaves if isinstance(each, torch.Tensor) and each.is_cpu]
                finished.batch = tree_map(self._to_device, finished.batch, **WHOLE)
                finished.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
                finished.ready.record(self._stream)
        return finished

    def _to_device(self, value: Any) -> Any:
        return value.to(self._device, non_blocking=True) if isinstance(value, torch.Tensor) else value

    def receive(self, finished: BuiltBatch) -> BuiltBatch:
        """Prepare a batch for the stream that is current in this thread: only its work waits for the copy."""
        if finished.ready is None:
            return finished
        current = torch.cuda.current_stream(self._device)
        current.wait_event(finished.ready)
        leaves = tree_flatten(finished.batch, **WHOLE)[0]  # torch 2.1 has no tree_leaves
        for tensor in (inside for each in leaves for inside in tensors_in(each)):
            if tensor.is_cuda:
                # The memory belongs to the side stream. Tell torch not to reuse it before this stream is done with it.
                tensor.record_stream(current)
        # Of other objects torch does not know the tensors, so their copies are made here, on the stream of the user.
        if self._device is not None and not all(isinstance(each, (torch.Tensor, *PLAIN)) for each in leaves):
            moving = partial(move, device=self._device, tell=self._tell_left)
            finished.batch = tree_map(moving, finished.batch, **WHOLE)
        # The host memory must live until its copy has ended.
        while self._copied and self._copied[0][0].query():
            self._copied.popleft()
        self._copied.append((finished.ready, finished.host))
        finished.host = None
        return finished

    def _tell_left(self, value: Any) -> None:
        """Warn once of each type whose tensors stay in host memory."""
        if type(value) not in self._left:
            self._left.add(type(value))
            warnings.warn(
                f"device is {str(self._device)!r}, but tensors in {describe(value)} stay in host memory: give its "
                "class the methods pin_memory() and to(device), or return a dict",
                stacklevel=2,
            )


def move(value: Any, device: torch.device, tell: Callable[[Any], None]) -> Any:
    """Return a value with its tensors on a device.

    It finds what torch's `pin_memory` finds: mappings and sequences of any class too, and objects that do it
    themselves, by their method `to`.

    Args:
        value: a leaf of a batch.
        device: the device.
        tell: called with an object whose tensors stay where they are.

    Raises:
        UserFunctionError: a method `to` raised.
    """
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=True)
    if callable(getattr(value, "to", None)) and not isinstance(value, type):
        return _call_to(value, device)
    inside = partial(move, device=device, tell=tell)
    if isinstance(value, Mapping):
        moved = {key: inside(each) for key, each in value.items()}
        if isinstance(value, MutableMapping):
            value = copy(value)  # with other attributes that its class may have
            value.update(moved)
            return value
        return _make(type(value), moved)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(inside, value))
    if isinstance(value, list | tuple):
        return _make(type(value), list(map(inside, value)))
    if any(each.device != device for each in tensors_in(value)):
        tell(value)
    return value


def _call_to(value: Any, device: torch.device) -> Any:
    try:
        try:
            moved = value.to(device, non_blocking=True)
        except TypeError:  # without that argument
            moved = value.to(device)
    except Exception as error:
        raise UserFunctionError(
            f"a batch has {describe(value)}, whose to({str(device)!r}) failed: {describe_error(error)}"
        ) from error
    return value if moved is None else moved


def _make(kind: type, values: Any) -> Any:
    try:
        return kind(values)
    except TypeError:  # a class with other arguments; torch's `pin_memory` gives a dict or list then, too
        return values


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return a tensor, or the tensors that are attributes of an object or items of a mapping."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, PLAIN):
        return []
    names = [name for each in type(value).__mro__ for name in as_names(getattr(each, "__slots__", ()))]
    found = [*getattr(value, "__dict__", {}).values(), *(getattr(value, name, None) for name in names)]
    if isinstance(value, Mapping | tuple | list):
        found += value.values() if isinstance(value, Mapping) else value
    return [each for each in tree_flatten(found)[0] if isinstance(each, torch.Tensor)]


def as_names(slots: Any) -> Iterable[str]:
    """Return the names of `__slots__`, which may be a single one."""
    return [slots] if isinstance(slots, str) else slots
