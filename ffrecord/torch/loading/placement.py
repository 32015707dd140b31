"""Placement of batches in ordinary memory, pinned memory, or memory of a GPU."""

import warnings
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map_only

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.system.values import describe_wrong
from ffrecord.torch.loading.batch_builder import Activity, BuiltBatch

__all__ = ["BatchPlacement", "as_device", "can_pin"]


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
                leaves = tree_flatten(finished.batch)[0]
                # Without images that were decoded on the GPU, whose memory the user may free.
                finished.host = [each for each in leaves if isinstance(each, torch.Tensor) and each.is_cpu]
                finished.batch = tree_map_only(torch.Tensor, self._to_device, finished.batch)
                finished.ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
                finished.ready.record(self._stream)
        return finished

    def _to_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device, non_blocking=True)

    def receive(self, finished: BuiltBatch) -> BuiltBatch:
        """Prepare a batch for the stream that is current in this thread: only its work waits for the copy."""
        if finished.ready is None:
            return finished
        current = torch.cuda.current_stream(self._device)
        current.wait_event(finished.ready)
        for tensor in tree_flatten(finished.batch)[0]:  # torch 2.1 has no tree_leaves
            if isinstance(tensor, torch.Tensor):
                # The memory belongs to the side stream. Tell torch not to reuse it before this stream is done with it.
                tensor.record_stream(current)
        # The host memory must live until its copy has ended.
        while self._copied and self._copied[0][0].query():
            self._copied.popleft()
        self._copied.append((finished.ready, finished.host))
        finished.host = None
        return finished
