"""How a batch gets from a worker to the loader: what is large in memory that is lent, what is small in the message."""

from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from ffrecord.torch.lending import Offer, lend, offer
from ffrecord.torch.tensors import is_plain

__all__ = ["carried", "tensor_of"]

COPIED_MOST = 1 << 16  # bytes of a tensor that is copied into the message, as much as a pipe holds


def tensor_of(rows: npt.NDArray[np.uint8]) -> torch.Tensor:
    """`rows` copied into a uint8 tensor [rows.size]: of a worker's, large ones into memory that the loader can map."""
    if get_worker_info() is None or rows.size <= COPIED_MOST:
        memory = torch.empty(rows.size, dtype=torch.uint8)
    elif (lent := lend(rows)) is not None:
        return _over(lent)
    else:
        memory = _over(torch.UntypedStorage._new_shared(rows.size))  # type: ignore[no-untyped-call]
    memory.numpy().reshape(rows.shape)[:] = rows
    return memory


def _over(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))


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
    if type(node) is not torch.Tensor or not is_plain(node) or not node.is_contiguous():
        return node
    size = node.numel() * node.element_size()  # torch 2.0 has no nbytes
    data = _bytes(node).tobytes() if size <= COPIED_MOST else _offered(node, size)
    return node if data is None else Sent(data, node.dtype, tuple(node.shape))


def _offered(tensor: torch.Tensor, size: int) -> Offer | None:
    """A large tensor in lent memory, copied if it is elsewhere; None where none is to be had or it is shared."""
    storage = tensor.untyped_storage()
    offered = offer(storage) if storage.nbytes() == size else None
    if offered is not None or storage.is_shared():
        return offered
    lent = lend(_bytes(tensor))
    return None if lent is None else offer(lent)


def _bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = tensor.reshape(-1).view(torch.uint8).numpy()
    return found


def _arrived(node: Any) -> Any:
    if type(node) is dict:
        return {key: _arrived(child) for key, child in node.items()}
    if type(node) is list:
        return [_arrived(child) for child in node]
    return node.tensor() if type(node) is Sent else node
