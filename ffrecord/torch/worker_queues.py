"""Queues between a loader and its workers that pickle at once, while an error can still be reported.

Queues of multiprocessing pickle in their own thread, which prints an error and drops the message. The loader then waits
for ever.
"""

import builtins
import pickle
from multiprocessing import queues
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info

from ffrecord.errors import UserFunctionError, describe_error

__all__ = ["LoaderView", "Message"]


class Message:
    """An object that is pickled at once, and arrives as itself.

    So an error of pickling is raised here. The thread of torch's queue would lose it.

    Raises:
        Exception: whatever pickling raises.
    """

    def __init__(self, content: Any) -> None:
        self._pickled = bytes(ForkingPickler.dumps(content))

    def __reduce__(self) -> Any:
        return _unpickle, (self._pickled,)


def _unpickle(pickled: bytes) -> Any:
    try:
        return pickle.loads(pickled)
    except (OSError, EOFError, RuntimeError, MemoryError):  # missing descriptors, or a dead worker
        raise
    except Exception as error:
        raise UserFunctionError(f"data from a worker cannot be unpickled: {describe_error(error)}") from error


class PicklingQueue(queues.Queue):  # type: ignore[type-arg]
    """A queue whose `put` pickles. If a worker's object does not pickle, an error arrives in its place."""

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        super().put(_make_message(obj), block, timeout)


def _make_message(content: Any) -> Message:
    try:
        if isinstance(content, tuple) and len(content) == 2 and isinstance(content[1], ExceptionWrapper):
            content = content[0], _make_sendable(content[1])
        return Message(content)
    except Exception as error:
        sentence = describe_error(error)
        if get_worker_info() is None:
            raise UserFunctionError(f"indices cannot be sent to a worker: {sentence}") from error
        return Message((content[0], _wrap_failure(f"a batch cannot be sent from a worker: {sentence}", error)))


def _make_sendable(failure: ExceptionWrapper) -> ExceptionWrapper:
    """Return an error that pickles, and that ends no loop; its text stays."""
    kind: Any = failure.exc_type
    # Python 3.11 and newer have groups. torch makes an error anew of its text alone, which a group does not allow.
    if issubclass(kind, getattr(builtins, "BaseExceptionGroup", ())):
        return _replace_type(failure, f"{kind.__qualname__} cannot be made anew of its text")
    if issubclass(kind, StopIteration):
        return _replace_type(failure, "StopIteration would end the loop as if there were no more samples")
    try:
        ForkingPickler.dumps(kind)
    except Exception as error:
        return _replace_type(failure, f"{kind.__qualname__} cannot be sent from a worker: {describe_error(error)}")
    return failure


def _replace_type(failure: ExceptionWrapper, why: str) -> ExceptionWrapper:
    failure.exc_type = UserFunctionError
    failure.exc_msg = f"{failure.exc_msg}\n{why}"
    return failure


def _wrap_failure(sentence: str, cause: Exception) -> ExceptionWrapper:
    info = get_worker_info()
    number = "" if info is None else f" {info.id}"
    error = UserFunctionError(sentence).with_traceback(cause.__traceback__)
    wrapper: Any = ExceptionWrapper
    made: ExceptionWrapper = wrapper((type(error), error, error.__traceback__), f"in DataLoader worker process{number}")
    return made


class QueueContext:
    """A context of multiprocessing that makes queues of this module."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def Queue(self, maxsize: int = 0) -> PicklingQueue:  # noqa: N802
        """Return a queue."""
        return PicklingQueue(maxsize, ctx=self._context.get_context())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class LoaderView:
    """A loader for torch's iterators, with another multiprocessing context.

    Attributes:
        loader: the loader.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader
        context = loader.multiprocessing_context
        self.multiprocessing_context = QueueContext(torch.multiprocessing if context is None else context)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)
