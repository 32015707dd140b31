"""The way of samples to a worker."""

import copy
import errno
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ffrecord.dataset_writer.messages import TaskSlots, WorkerCarrier

pytestmark = pytest.mark.usefixtures("nothing_leaks")


@pytest.fixture
def carrier() -> Iterator[WorkerCarrier]:
    slots = TaskSlots(2)
    yield WorkerCarrier(slots)
    slots.close()


def carried(carrier: WorkerCarrier, items: list[Any], most: int = 100) -> list[Any]:
    pairs, arrived = iter(list(enumerate(items))), []
    for task in itertools.count():
        packed = carrier.pack(task, task % 2, pairs, most)
        if packed is None:
            return arrived
        indices = np.frombuffer(packed.indices, np.int64).tolist()
        assert indices == list(range(len(arrived), len(arrived) + len(indices))) and 1 <= len(indices) <= most
        arrived += copy.deepcopy(list(carrier.unpack(packed)))
    raise AssertionError


ARRAYS = [
    *(np.zeros(3, kind) for kind in np.typecodes["All"]),
    *(np.array([1, 2, 3], kind) for kind in (">i4", ">f8", "<c16", "M8[s]", "m8[ms]", "U3", "S2", object)),
    np.zeros((0, 3), np.int8),
    np.array(5.0),
    np.arange(24).reshape(2, 3, 4),
    np.arange(24).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(24)[::-2],
    np.zeros(3, [("a", "<i4"), ("b", ">f8")]),
    np.ma.masked_array([1, 2], [True, False]),
    np.full((300, 1000), 7.5),
]


def test_arrays_of_every_kind_arrive(carrier: WorkerCarrier) -> None:
    for array, other in zip(ARRAYS, carried(carrier, ARRAYS), strict=True):
        assert type(other) is type(array) and other.dtype == array.dtype and other.shape == array.shape
        assert other.flags.writeable
        assert np.asarray(other).tobytes() == np.asarray(array).tobytes() or array.dtype == object
        assert np.ma.getmaskarray(other).tolist() == np.ma.getmaskarray(array).tolist()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 1000, 3 << 20, (4 << 20) - 20, 5 << 20]), max_size=12), most=st.integers(1, 5)
)
def test_items_of_any_size_arrive(carrier: WorkerCarrier, sizes: list[int], most: int) -> None:
    items = [bytes([number]) * size for number, size in enumerate(sizes)]
    assert carried(carrier, items, most) == items


class Unlucky:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def __reduce__(self) -> Any:
        raise self.error


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.ENOSPC, "no room")], ids=["memory", "disk"])
def test_a_machine_at_its_limits_is_no_fault_of_the_sample(carrier: WorkerCarrier, error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        carrier.pack(0, 0, iter([(0, Unlucky(error))]), 1)
    assert caught.value is error
