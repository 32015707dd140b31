"""How a batch gets from a worker to the loader: what is large in shared memory, what is small in the message.

torch passes each tensor by a file descriptor, over a socket and with a challenge to authenticate: a column of labels is
better copied. It makes shared memory by fallocate(2) and fills it through a mapping, with a fault for each page; a
memfd filled by pwrite(2) takes half the time, and nothing of /dev/shm, which is small in containers.
"""

import os
import threading
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

__all__ = ["carried", "tensor_of"]

_scratch = threading.local()  # fresh memory of this size would be faulted in page by page, for each batch

COPIED_MOST = 1 << 16  # bytes of a tensor that is copied into the message, as much as a pipe holds


def tensor_of(rows: npt.NDArray[np.uint8]) -> torch.Tensor:
    """`rows` copied into a uint8 tensor [rows.size]: of a worker's, large ones into memory that the loader can map."""
    if get_worker_info() is None or rows.size <= COPIED_MOST:
        memory = torch.empty(rows.size, dtype=torch.uint8)
        memory.numpy().reshape(rows.shape)[:] = rows
        return memory
    if torch.multiprocessing.get_sharing_strategy() != "file_descriptor":  # type: ignore[no-untyped-call]
        storage = torch.UntypedStorage._new_shared(rows.size)  # type: ignore[no-untyped-call]
        memory = _over(storage)
        memory.numpy().reshape(rows.shape)[:] = rows
        return memory
    return _over(_in_memfd(_contiguous(rows)))


def _over(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


def _contiguous(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """`rows` one after the other, [rows.size]; where that takes a copy, in memory that the next call uses again."""
    if rows.flags.c_contiguous:
        return rows.reshape(-1)
    memory = getattr(_scratch, "memory", None)
    if memory is None or memory.size < rows.size:
        memory = _scratch.memory = np.empty(rows.size, np.uint8)
    flat: npt.NDArray[np.uint8] = memory[: rows.size]
    flat.reshape(rows.shape)[:] = rows
    return flat


def _in_memfd(rows: npt.NDArray[np.uint8]) -> torch.UntypedStorage:
    fd = os.memfd_create("ffrecord batch", os.MFD_CLOEXEC)
    try:
        data = rows.data
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)
        return torch.UntypedStorage._new_shared_fd_cpu(fd, len(data))  # type: ignore[attr-defined,no-any-return]
    finally:
        os.close(fd)


class Copied(NamedTuple):
    """A small tensor in a message."""

    data: bytes
    dtype: torch.dtype
    shape: tuple[int, ...]


class CarriedDict(dict[Any, Any]):
    """A batch on its way from a worker: pickled as a plain dict whose small tensors are copied."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _arrived, (_packed(dict(self)),)


class CarriedList(list[Any]):
    """The same, of a list."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return _arrived, (_packed(list(self)),)


def carried(batch: Any) -> Any:
    """A batch, a dict or list, in a form that gets quickly to the loader; for others it is equal to what it was."""
    if get_worker_info() is None:
        return batch
    return CarriedDict(batch) if isinstance(batch, dict) else CarriedList(batch)


def _packed(node: Any) -> Any:
    if type(node) is dict:
        return {key: _packed(child) for key, child in node.items()}
    if type(node) is list:
        return [_packed(child) for child in node]
    if type(node) is not torch.Tensor or not _is_copied(node):
        return node
    return Copied(node.reshape(-1).view(torch.uint8).numpy().tobytes(), node.dtype, tuple(node.shape))


def _is_copied(tensor: torch.Tensor) -> bool:
    plain = tensor.layout == torch.strided and tensor.device.type == "cpu" and not tensor.requires_grad
    return (
        plain and tensor.nbytes <= COPIED_MOST and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())
    )


def _arrived(node: Any) -> Any:
    if type(node) is dict:
        return {key: _arrived(child) for key, child in node.items()}
    if type(node) is list:
        return [_arrived(child) for child in node]
    if type(node) is not Copied:
        return node
    if not node.data:
        return torch.empty(node.shape, dtype=node.dtype)
    return torch.frombuffer(bytearray(node.data), dtype=torch.uint8).view(node.dtype).view(node.shape)
