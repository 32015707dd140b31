"""How a loader calls the user's functions, and what it is told to do within reason."""

from functools import partial
from typing import Any

import pytest
import torch

from ffrecord.torch.loading.functions import UserFunction
from ffrecord.torch.loading.options import PREFETCH_MOST, LoaderOptions


class Module(torch.nn.Module):
    def forward(self, sample: int, seed: int | None = None) -> tuple[int, int | None]:
        return sample, seed


class Plain(torch.nn.Module):
    def forward(self, sample: int) -> tuple[int, None]:
        return sample, None


def called(sample: int, *, seed: int) -> tuple[int, int]:
    return sample, seed


@pytest.mark.parametrize(
    ("function", "seeded"),
    [
        (Module(), True),
        (Plain(), False),
        (called, True),
        (partial(called), True),
        (lambda sample: (sample, None), False),
    ],
)
def test_the_seed_goes_to_who_has_a_parameter_for_it(function: Any, seeded: bool) -> None:
    made = UserFunction("transform", function, "seed")
    assert made.seeded == seeded
    assert made(3, 7) == (3, 7 if seeded else None)


def test_prefetching_is_bounded() -> None:
    assert LoaderOptions.from_arguments(0, PREFETCH_MOST, 0, None, False, None, None).prefetch == PREFETCH_MOST
    with pytest.raises(ValueError, match=f"prefetch is 1000000000, expected at most {PREFETCH_MOST}"):
        LoaderOptions.from_arguments(0, 10**9, 0, None, False, None, None)
