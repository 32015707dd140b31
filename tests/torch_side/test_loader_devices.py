"""The copies of batches to a device, of objects of any class; without a GPU, on torch's device "meta"."""

import dataclasses
from collections import UserDict, namedtuple
from contextlib import nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ffrecord.errors import UserFunctionError
from ffrecord.torch.loading.bad_records import BatchRows
from ffrecord.torch.loading.batch_builder import BuiltBatch
from ffrecord.torch.loading.placement import BatchPlacement, move
from ffrecord.torch.loading.stats import Seconds

META = torch.device("meta")
Pair = namedtuple("Pair", ["x", "y"])


class Further(Pair):
    """A tuple with names that torch's pytree does not know."""


class Named(dict[str, Any]):
    """A dict with an attribute."""

    def __init__(self, extra: str, **items: Any) -> None:
        super().__init__(items)
        self.extra = extra


class Items(list[Any]):
    pass


@dataclasses.dataclass
class Moving:
    """An object that moves itself."""

    x: torch.Tensor

    def to(self, device: Any, non_blocking: bool = False) -> "Moving":
        assert non_blocking
        return Moving(self.x.to(device))


class Blocking(Moving):
    def to(self, device: Any) -> None:  # type: ignore[override]
        """In place, as `torch.nn.Module` does it, and without a second argument."""
        self.x = self.x.to(device)


@dataclasses.dataclass
class Staying:
    x: torch.Tensor


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


def ones() -> torch.Tensor:
    return torch.ones(2)


@pytest.fixture
def placement(monkeypatch: pytest.MonkeyPatch) -> BatchPlacement:
    """Copies to the device "meta", whose streams do nothing."""
    stream = SimpleNamespace(wait_event=lambda event: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", lambda: SimpleNamespace(record=lambda stream: None, query=lambda: True))
    return BatchPlacement(False, META)


def moved(placement: BatchPlacement, batch: Any) -> Any:
    rows = BatchRows(np.arange(2), np.arange(2), 0)
    return placement.receive(placement.copy(BuiltBatch(None, rows, batch, Seconds()))).batch  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("batch", "inside"),
    [
        ({"a": [ones()]}, lambda batch: batch["a"][0]),
        (UserDict(a=ones()), lambda batch: batch["a"]),
        ({"b": Named("more", a=ones())}, lambda batch: batch["b"]["a"]),
        (MappingProxyType({"a": ones()}), lambda batch: batch["a"]),
        (Items([ones()]), lambda batch: batch[0]),
        (Further(1, UserDict(a=ones())), lambda batch: batch.y["a"]),
        ([Moving(ones())], lambda batch: batch[0].x),
        (Blocking(ones()), lambda batch: batch.x),
        (torch.nn.utils.rnn.pack_sequence([ones()]), lambda batch: batch.data),
    ],
    ids=lambda value: type(value).__name__,
)
def test_objects_of_any_class_are_moved(placement: BatchPlacement, batch: Any, inside: Any) -> None:
    """As by torch's pin_memory; all but the first stayed in host memory, without a word."""
    found = moved(placement, batch)
    assert inside(found).device == META and type(found) is type(batch)
    if isinstance(batch, dict) and "b" in batch:
        assert found["b"].extra == "more" and batch["b"]["a"].device.type == "cpu"


@pytest.mark.parametrize("kind", [Staying, Slotted])
def test_objects_that_cannot_move_are_told_once(placement: BatchPlacement, kind: Any) -> None:
    batch = {"a": kind(ones()), "b": ones()}
    with pytest.warns(UserWarning, match=r"device is 'meta', but tensors in .* stay in host memory: give"):
        found = moved(placement, batch)
    assert found["a"].x.device.type == "cpu" and found["b"].device == META
    moved(placement, batch)  # a warning would be an error here


def test_objects_without_tensors_are_left_alone(placement: BatchPlacement) -> None:
    batch = ["text", b"x", 1, None, np.ones(2), np.float32(1), SimpleNamespace(a=1), object(), int]
    assert all(found is each for found, each in zip(moved(placement, batch), batch, strict=True))


def test_an_object_that_fails_to_move() -> None:
    class Failing:
        def to(self, device: Any) -> None:
            raise OSError("no room")

    with pytest.raises(UserFunctionError, match=r"batch has .*Failing.*, whose to\('meta'\) failed: OSError: no room"):
        move(Failing(), META, print)
