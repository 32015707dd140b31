"""How a batch gets from a worker to the loader: what is large in shared memory, what is small in the message.

torch makes shared memory by fallocate(2) and fills it through a mapping, with a fault for each page. A memfd filled by
pwrite(2) takes half the time, and nothing of /dev/shm, which is small in containers. A column of labels is better
copied into the message.
"""

import threading
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from ffrecord.torch.offering import Offer, can_offer, in_memfd, offer

__all__ = ["carried", "tensor_of"]

COPIED_MOST = 1 << 16  # bytes of a tensor that is copied into the message, as much as a pipe holds

_scratch = threading.local()  # fresh memory of this size would be faulted in page by page, for each batch


def tensor_of(rows: npt.NDArray[np.uint8]) -> torch.Tensor:
    """`rows` copied into a uint8 tensor [rows.size]: of a worker's, large ones into memory that the loader can map."""
    if get_worker_info() is None or rows.size <= COPIED_MOST:
        memory = torch.empty(rows.size, dtype=torch.uint8)
    elif can_offer():
        return _over(in_memfd(_contiguous(rows)))
    else:
        memory = _over(torch.UntypedStorage._new_shared(rows.size))  # type: ignore[no-untyped-call]
    memory.numpy().reshape(rows.shape)[:] = rows
    return memory


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


class CarriedDict(dict[Any, Any]):
    """A batch on its way from a worker: sent to another process, it arrives as a plain dict; so does a copy."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class CarriedList(list[Any]):
    """The same, of a list."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


def carried(batch: Any) -> Any:
    """A batch, a dict or list, in a form that gets quickly to the loader; for others it is equal to what it was."""
    if get_worker_info() is None:
        return batch
    return CarriedDict(batch) if isinstance(batch, dict) else CarriedList(batch)


# What is sent to another process goes through here; what is pickled to stay does not.
ForkingPickler.register(CarriedDict, lambda batch: (_arrived, (_sent(dict(batch)),)))
ForkingPickler.register(CarriedList, lambda batch: (_arrived, (_sent(list(batch)),)))


class Sent(NamedTuple):
    """A tensor in a message: its bytes, or where they are."""

    data: bytes | Offer
    dtype: torch.dtype
    shape: tuple[int, ...]

    def tensor(self) -> torch.Tensor:
        """In this process; only once."""
        if not isinstance(self.data, bytes):
            flat = _over(self.data.accept())
        elif self.data:
            flat = torch.frombuffer(bytearray(self.data), dtype=torch.uint8)
        else:
            flat = torch.empty(0, dtype=torch.uint8)
        return flat.view(self.dtype).view(self.shape)


def _sent(node: Any) -> Any:
    if type(node) is dict:
        return {key: _sent(child) for key, child in node.items()}
    if type(node) is list:
        return [_sent(child) for child in node]
    if type(node) is not torch.Tensor or not _is_plain(node):
        return node
    size = node.numel() * node.element_size()  # torch 2.0 has no nbytes
    if size <= COPIED_MOST:
        data: bytes | Offer | None = node.reshape(-1).view(torch.uint8).numpy().tobytes()
    else:
        storage = node.untyped_storage()
        data = offer(storage) if storage.nbytes() == size else None
    return node if data is None else Sent(data, node.dtype, tuple(node.shape))


def _is_plain(tensor: torch.Tensor) -> bool:
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.requires_grad:
        return False
    return tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg())


def _arrived(node: Any) -> Any:
    if type(node) is dict:
        return {key: _arrived(child) for key, child in node.items()}
    if type(node) is list:
        return [_arrived(child) for child in node]
    return node.tensor() if type(node) is Sent else node
