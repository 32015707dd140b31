"""The way of a batch from a worker to the loader: large tensors in lent memory, small ones in the message."""

import io
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import get_worker_info

from ffrecord.torch.shared_memory import Offer, can_lend, lend, offer
from ffrecord.torch.tensors import is_plain
from ffrecord.torch.worker_queues import Message

__all__ = ["Parcel", "carry", "copy_rows"]

COPIED_MOST = 1 << 16  # bytes of the largest tensor that is copied into the message; a pipe holds as much


def copy_rows(rows: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Copy `rows` into a uint8 tensor [rows.size]. In a worker, large ones go into memory that the loader can map."""
    small = get_worker_info() is None or rows.size <= COPIED_MOST
    if not small and (lent := lend(rows)) is not None:
        return _tensor_over(lent)
    if small or can_lend():
        memory = torch.empty(rows.size, dtype=torch.uint8, device="cpu")
    else:
        memory = _tensor_over(torch.UntypedStorage._new_shared(rows.size))  # type: ignore[no-untyped-call]
    memory.numpy().reshape(rows.shape)[:] = rows
    return memory


def _tensor_over(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage, 0, (storage.nbytes(),), (1,))


class CarriedDict(dict[Any, Any]):
    """A batch on its way from a worker. In another process it arrives as a plain dict, and so does a copy."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class CarriedList(list[Any]):
    """A list on its way from a worker. In another process it arrives as a plain list, and so does a copy."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


def carry(batch: Any) -> Any:
    """Return a batch, a dict or list, in a form that gets quickly to the loader; it stays equal to the batch."""
    if get_worker_info() is None:
        return batch
    return CarriedDict(batch) if isinstance(batch, dict) else CarriedList(batch)


# Only objects that are sent to another process use ForkingPickler. An ordinary pickle does not lend memory.
ForkingPickler.register(CarriedDict, lambda batch: (dict, (_to_message(dict(batch)),)))
ForkingPickler.register(CarriedList, lambda batch: (list, (_to_message(list(batch)),)))


class Parcel(Message):
    """A batch of any structure, which arrives as itself. It can arrive only once, and must be sent.

    Raises:
        Exception: pickling fails; torch's RuntimeError if there is no shared memory; OSError.
    """

    def __init__(self, batch: Any) -> None:
        super().__init__(_to_message(batch))


class SentTensor(NamedTuple):
    """A tensor in a message: its bytes, or their place. It arrives as the tensor."""

    data: bytes | Offer
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __reduce__(self) -> Any:
        return _receive_tensor, tuple(self)


class SavedTensor:
    """A tensor in a message, as torch saves it. It arrives as the tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __reduce__(self) -> Any:
        file = io.BytesIO()
        torch.save(self._tensor, file)
        return _load_tensor, (file.getvalue(),)


def _load_tensor(data: bytes) -> torch.Tensor:
    tensor: torch.Tensor = torch.load(io.BytesIO(data), weights_only=True)
    return tensor


def _receive_tensor(
    data: bytes | Offer, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    """Return the tensor that was sent, in this process; works only once."""
    if not isinstance(data, bytes):
        flat = _tensor_over(data.accept())
    elif data:
        flat = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    else:
        flat = torch.empty(0, dtype=torch.uint8, device="cpu")
    return flat.view(dtype).as_strided(shape, strides)


def _to_message(node: Any) -> Any:
    if type(node) is dict:
        return {key: _to_message(child) for key, child in node.items()}
    if type(node) is list:
        return [_to_message(child) for child in node]
    if type(node) is tuple:
        return tuple(map(_to_message, node))
    if isinstance(node, tuple) and (make := getattr(node, "_make", None)) and not hasattr(node, "__dict__"):
        return make(map(_to_message, node))
    if type(node) is torch.Tensor and (node.is_conj() or node.is_neg()):
        node = node.resolve_conj().resolve_neg()  # pickles of torch lose these flags
    if type(node) is torch.Tensor and node.is_quantized:
        return SavedTensor(node)  # pickles of torch between processes lose the scale
    if type(node) is not torch.Tensor or not is_plain(node):
        return node
    dense, strides = _flatten_dense(node)
    size = node.numel() * node.element_size()  # torch 2.0 has no nbytes
    data: bytes | Offer | None = _offer_tensor(dense, size) if size > COPIED_MOST else None
    # If there is no memory to lend now, torch's way would lack memory or descriptors too: send the bytes themselves.
    if data is None and (size <= COPIED_MOST or (can_lend() and not node.untyped_storage().is_shared())):
        data = _bytes(dense).tobytes()
    return node if data is None else SentTensor(data, node.dtype, tuple(node.shape), strides)


def _flatten_dense(tensor: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...]]:
    """Return the values [n] as they lie in memory, and the strides there; copied, in C order, if there are gaps."""
    ordered = tensor.permute(sorted(range(tensor.dim()), key=tensor.stride, reverse=True))
    if not ordered.is_contiguous():
        tensor = ordered = tensor.contiguous()
    return ordered.view(-1), tensor.stride()


def _offer_tensor(tensor: torch.Tensor, size: int) -> Offer | None:
    """Return the offer of a large tensor in lent memory, copied if it is elsewhere; None if there is none, or it is
    shared.
    """
    storage = tensor.untyped_storage()
    offered = offer(storage) if storage.nbytes() == size else None
    if offered is not None or storage.is_shared():
        return offered
    lent = lend(_bytes(tensor))
    return None if lent is None else offer(lent)


def _bytes(tensor: torch.Tensor) -> npt.NDArray[np.uint8]:
    found: npt.NDArray[np.uint8] = tensor.view(torch.uint8).numpy()
    return found
