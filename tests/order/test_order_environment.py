"""Ranks and nodes as launchers say them, in the variables that each of them sets."""

import os
import re

import pytest

from ffrecord.errors import ArgumentError
from ffrecord.order import Placement
from ffrecord.order.environment import LAUNCHERS, placement_of, rank_of

TORCHRUN = {"RANK": "11", "WORLD_SIZE": "16", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8", "GROUP_RANK": "1"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "11",
    "OMPI_COMM_WORLD_SIZE": "16",
    "OMPI_COMM_WORLD_LOCAL_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
}
MVAPICH = {name.replace("OMPI", "MV2"): value for name, value in OPEN_MPI.items()}
MPICH = {"PMI_RANK": "11", "PMI_SIZE": "16", "MPI_LOCALRANKID": "3", "MPI_LOCALNRANKS": "8"}
SLURM = {
    "SLURM_PROCID": "11",
    "SLURM_STEP_NUM_TASKS": "16",
    "SLURM_LOCALID": "3",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
}
EACH = {"torchrun": TORCHRUN, "Open MPI": OPEN_MPI, "MVAPICH": MVAPICH, "MPICH": MPICH, "Slurm": SLURM}
# One rank on each node first: by Slurm with --distribution=cyclic.
CYCLIC = {**SLURM, "SLURM_LOCALID": "5"}
# torchrun as a step of Slurm, one on each node.
UNDER_SLURM = {**SLURM, "SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)"}


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch):
    """A function that sets variables, of which none is set."""
    for name in os.environ:
        if re.match("RANK$|WORLD_SIZE$|LOCAL_|GROUP_|OMPI_|MV2_|PMI_|MPI_|SLURM_", name):
            monkeypatch.delenv(name)
    return lambda variables: [monkeypatch.setenv(name, value) for name, value in variables.items()]


@pytest.mark.parametrize("variables", EACH.values(), ids=EACH)
def test_each_launcher(launched, variables):
    launched(variables)
    assert rank_of() == (11, 16)
    assert placement_of(11, 16) == Placement(2, 1, 3)


def test_nobody_has_launched_it(launched):
    assert rank_of() == (None, None)
    assert placement_of(0, 1) == Placement(1, 0, 0)


def test_a_batch_script_of_slurm_is_no_rank(launched):
    """What sbatch sets there looks like rank 0 of 16."""
    launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "16", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"})
    assert rank_of() == (None, None)


def test_launchers_that_others_start_come_first(launched):
    launched({**UNDER_SLURM, **TORCHRUN})
    assert rank_of() == (11, 16)
    assert placement_of(11, 16) == Placement(2, 1, 3)
    launched({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    assert placement_of(11, 16) == Placement(2, 1, 3)


def test_ranks_told_by_hand_and_nodes_by_slurm(launched):
    """A script that sets RANK and WORLD_SIZE from Slurm's variables."""
    launched({**SLURM, "RANK": "11", "WORLD_SIZE": "16"})
    assert placement_of(11, 16) == Placement(2, 1, 3)


def test_ranks_in_any_order_where_the_node_is_said(launched):
    launched(CYCLIC)
    found = placement_of(11, 16)
    assert (found, found.turn(16)) == (Placement(2, 1, 5), 11)


def test_local_rank_of_torchrun_may_be_0_for_all(launched):
    launched({**TORCHRUN, "LOCAL_RANK": "0"})
    assert placement_of(11, 16) == Placement(2, 1, 3)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {},
            "how many ranks share a node with rank 11 of 16, expected one of LOCAL_WORLD_SIZE, OMPI_COMM_WORLD",
        ),
        ({**TORCHRUN, "RANK": "3"}, "or pass the number of nodes"),
        ({**TORCHRUN, "WORLD_SIZE": "32"}, "or pass the number of nodes"),
        (
            {**TORCHRUN, "LOCAL_WORLD_SIZE": "5"},
            "WORLD_SIZE is 16, expected a multiple of LOCAL_WORLD_SIZE, which is 5",
        ),
        (
            {**TORCHRUN, "LOCAL_WORLD_SIZE": "0"},
            "WORLD_SIZE is 16, expected a multiple of LOCAL_WORLD_SIZE, which is 0",
        ),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "eight"}, "variable LOCAL_WORLD_SIZE is 'eight', expected an int"),
        ({**TORCHRUN, "GROUP_RANK": "0"}, "GROUP_RANK is 0 for RANK 11, expected 1: the 8 ranks of a node must follow"),
        (
            {**TORCHRUN, "GROUP_WORLD_SIZE": "4"},
            "GROUP_WORLD_SIZE is 4, expected 2: WORLD_SIZE is 16 and LOCAL_WORLD_SIZE is 8",
        ),
        (
            {**OPEN_MPI, "OMPI_COMM_WORLD_LOCAL_RANK": "5"},
            "OMPI_COMM_WORLD_LOCAL_RANK is 5 for OMPI_COMM_WORLD_RANK 11, expected 3: the 8 ranks",
        ),
        (
            {**SLURM, "SLURM_STEP_TASKS_PER_NODE": "8,8(x2),4"},
            "variable SLURM_STEP_TASKS_PER_NODE is '8,8(x2),4', expected the same number of ranks on each node",
        ),
        ({**SLURM, "SLURM_STEP_TASKS_PER_NODE": ""}, "variable SLURM_STEP_TASKS_PER_NODE is '', expected an int"),
        ({**SLURM, "SLURM_NODEID": "2"}, "node is 2, expected 0 <= node < 2"),
        ({**SLURM, "SLURM_LOCALID": "8"}, "local is 8, expected 0 <= local < 8"),
        ({**SLURM, "SLURM_STEP_NUM_NODES": "4"}, "SLURM_STEP_NUM_NODES is 4, expected 2"),
    ],
)
def test_contradictions(launched, variables, message):
    launched(variables)
    with pytest.raises(ArgumentError, match=re.escape(message)):
        placement_of(11, 16)


@pytest.mark.parametrize("launcher", LAUNCHERS, ids=lambda launcher: launcher.rank)
def test_ranks_that_are_no_ints(launched, launcher):
    launched({launcher.rank: "first", launcher.size: "2"})
    with pytest.raises(ArgumentError, match=f"environment variable {launcher.rank} is 'first', expected an int"):
        rank_of()
