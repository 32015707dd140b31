"""Which rank this is, without asking the others."""

from textwrap import dedent
from typing import Any

import children
import pytest

from ffrecord.order import Placement
from ffrecord.order.environment import LAUNCHERS
from ffrecord.torch.distributed import placement_on, rank_and_size


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for launcher in LAUNCHERS:
        for name in (launcher.rank, launcher.size, launcher.on_node):
            monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("environment", "given", "expected"),
    [
        ({}, (None, None), (0, 1)),
        ({}, (2, 3), (2, 3)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, (None, None), (1, 4)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, (3, None), (3, 4)),
        ({"RANK": "1", "WORLD_SIZE": "4"}, (None, 2), (1, 2)),
        ({"WORLD_SIZE": "4"}, (3, None), (3, 4)),
        ({"WORLD_SIZE": "1"}, (None, None), (0, 1)),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4"}, (None, None), (2, 4)),
        ({"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "RANK": "0"}, (None, None), (0, 1)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (1, None), (1, 4)),
    ],
)
def test_found(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], given: Any, expected: tuple[int, int]):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rank_and_size(*given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0, 0), "world_size is 0, expected 1 or more"),
        ((None, -1), "world_size is -1"),
        ((3, 3), "rank is 3, expected 0 <= rank < 3$"),
        ((-1, 3), "rank is -1, expected 0 <= rank < 3"),
        ((1, None), "rank is 1, expected 0 <= rank < 1; pass world_size, too$"),
        ((None, 2), "world_size is 2, and no rank is given"),
    ],
)
def test_out_of_range(given: Any, message: str):
    for error in (ValueError, AssertionError):
        with pytest.raises(error, match=message):
            rank_and_size(*given)


def test_wrong_environment_and_types(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(ValueError, match="environment variable RANK is 'first', expected an int"):
        rank_and_size()
    assert rank_and_size(0, 2) == (0, 2)
    monkeypatch.setenv("RANK", "0")
    for wrong in (0.5, "0"):
        with pytest.raises(TypeError, match=r"rank is \w+ .*, expected an int"):
            rank_and_size(wrong, 2)  # type: ignore[arg-type]
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="world_size is 4, and no rank is given"):
        rank_and_size()
    monkeypatch.setenv("WORLD_SIZE", "0")
    with pytest.raises(ValueError, match="world_size is 0"):
        rank_and_size(0)


def test_from_a_process_group():
    """Of this process alone, which says what it is asked to."""
    code = """
        import os
        import torch.distributed as dist
        from ffrecord.torch.distributed import rank_and_size
        from ffrecord.torch import Sampler
        sampler = Sampler(10, order="sequential")
        dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
        os.environ.update(RANK="5", WORLD_SIZE="9")
        assert rank_and_size() == (0, 1)
        assert rank_and_size(1, 2) == (1, 2)
        assert list(sampler) == list(range(10))
        dist.destroy_process_group()
        assert rank_and_size() == (5, 9)
    """
    children.run(dedent(code))


def test_placements(monkeypatch: pytest.MonkeyPatch):
    assert placement_on(None, 3, 8) is None
    assert placement_on(4, 3, 8) == Placement(4, 1, 1)
    assert placement_on(Placement(2, 1, 0), 3, 8) == Placement(2, 1, 0)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert placement_on("node", 3, 8) == Placement(4, 1, 1)
    with pytest.raises(ValueError, match=r"how many ranks share a node with rank 1 of 4, .* pass the number of nodes"):
        placement_on("node", 1, 4)  # of data parallel groups, for instance
    with pytest.raises(ValueError, match="placement is 'shard', expected 'node', a number of nodes, or a Placement"):
        placement_on("shard", 3, 8)
    with pytest.raises(ValueError, match="world_size is 8, expected a multiple of 3"):
        placement_on(3, 3, 8)
    for wrong in (2.0, True, [4]):
        with pytest.raises(TypeError, match=r"nodes is .*, expected an int"):
            placement_on(wrong, 3, 8)  # type: ignore[arg-type]
