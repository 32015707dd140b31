"""Samplers and loaders whose ranks are on nodes: a node has the same part of the dataset in every epoch."""

import json
import os
import socket
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch_builders import WORKERS_ANYWHERE, Ints, as_lists

from ffrecord.order import Cursor, Identity, Placed, Placement, Random
from ffrecord.torch import BatchSampler, DataLoader, IterableDataset, Loader, Sampler

pytestmark = WORKERS_ANYWHERE

NODES, EACH, BATCH = 2, 2, 3
WORLD = NODES * EACH


def own(rank: int, epoch: int = 0, samples: int = 23) -> list[list[int]]:
    """Batches of a rank, by the cursor alone."""
    cursor = Cursor(
        Identity(samples),
        batch_size=BATCH,
        rank=rank,
        world_size=WORLD,
        epoch=epoch,
        placement=Placement.of(rank, WORLD, NODES),
    )
    return [step.indices.tolist() for step in cursor.steps()]


@pytest.mark.parametrize("rank", range(WORLD))
def test_all_ways_to_the_same_samples(path: str, rank: int):
    """Samplers, the iterable and the loaders, in two epochs, within the slice of the node."""
    samples = range(12) if rank < EACH else range(12, 23)
    ranks = {"num_replicas": WORLD, "rank": rank, "placement": NODES}
    batches, iterable = BatchSampler(23, BATCH, **ranks), IterableDataset(Ints(path), BATCH, **ranks)
    with Loader(path, BATCH, rank=rank, world_size=WORLD, placement=NODES) as loader:
        for epoch in range(2):
            expected = own(rank, epoch)
            assert set(chain(*expected)) <= set(samples)
            assert list(batches) == expected
            sampler = Sampler(23, epoch=epoch, **ranks)
            assert (list(sampler), sampler.rank, sampler.order) == ([*chain(*expected)], rank, Placed(NODES))
            values = [[7 * i - 30 for i in batch] for batch in expected]
            iterable.set_epoch(epoch)
            for workers in (0, 2) if rank == 1 else (0,):
                context = "fork" if workers else None
                twin = TorchLoader(iterable, BATCH, num_workers=workers, multiprocessing_context=context)
                assert as_lists(twin) == values
            assert [loader.batch_indices.tolist() for _ in loader] == expected


@given(st.data(), st.integers(1, 4))
def test_a_state_goes_to_other_nodes(data: st.DataObject, steps: int):
    """Of the samplers, the loader and the iterable, through JSON: the epoch is finished in the slices it began with."""
    nodes, each = data.draw(st.sampled_from([(1, 1), (1, 3), (3, 1), (4, 1)]))
    states = []
    for rank in range(WORLD):
        iterator: Any = iter(Sampler(23, WORLD, rank, placement=NODES, policy="uneven"))
        for _ in range(steps):
            next(iterator)
        states.append(iterator.state_dict())
    assert states == states[:1] * WORLD
    state = json.loads(json.dumps(states[0]))
    assert state["order"] == Placed(NODES).to_builtins()
    left = []
    for rank in range(nodes * each):
        sampler = Sampler(23, nodes * each, rank, placement=nodes, policy="uneven")
        sampler.load_state_dict(state)
        assert sampler.state_dict() == state
        left += list(sampler)
        assert sampler.state_dict()["order"] == Placed(nodes).to_builtins()
    assert sorted(left) == sorted(Placed(NODES).indices(range(WORLD * steps, 23), 23, 0, 0).tolist())


def test_a_place_is_in_the_slices_of_its_own_epoch():
    """Whatever the sampler was told since, as where trainers set the epoch before they save."""
    sampler, state = Sampler(23), Sampler(23, 2, 0, placement=2).state_dict() | {"position": 4}
    sampler.load_state_dict(state)
    iterator: Any = iter(sampler)
    first = [next(iterator), next(iterator)]
    sampler.set_epoch(5)
    later = iterator.state_dict()
    assert (later["epoch"], later["position"], later["order"]) == (0, 6, Placed(2).to_builtins())
    again = Sampler(23)
    again.load_state_dict(later)
    assert first + list(again) == Placed(2).indices(range(4, 23), 23, 0, 0).tolist()


def test_the_iterable_tells_its_workers_of_the_slices(path: str):
    """That persist, and were told before of others."""
    state = Sampler(Ints(path), WORLD, 0, placement=NODES).state_dict() | {"position": 8}
    for placement in (None, 1):
        dataset = IterableDataset(Ints(path), 4, placement=placement)
        loader = TorchLoader(dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context="fork")
        own_order = Random() if placement is None else Placed(1)
        assert [*chain(*as_lists(loader))] == [7 * i - 30 for i in own_order.indices(range(23), 23, 0, 0)]
        dataset.load_state_dict(json.loads(json.dumps(state)))
        assert dataset.state_dict() == state
        assert [*chain(*as_lists(loader))] == [7 * i - 30 for i in Placed(NODES).indices(range(8, 23), 23, 0, 0)]
        dataset.set_epoch(1)
        assert [*chain(*as_lists(loader))] == [7 * i - 30 for i in own_order.indices(range(23), 23, 0, 1)]
        dataset.load_state_dict(json.loads(json.dumps(state)))
        assert len(as_lists(loader)) == 4
        dataset.set_epoch(1)
        dataset.set_position(4)  # of an epoch in its own slices, which workers that were in others have to hear
        assert [*chain(*as_lists(loader))] == [7 * i - 30 for i in own_order.indices(range(4, 23), 23, 0, 1)]


def test_loaders_go_on_in_the_slices_of_then(path: str):
    """Ours, stopped within an epoch on two nodes and gone on without placement, and back again."""

    def make(**ranks: Any) -> list[Any]:
        sampler = BatchSampler(23, BATCH, **ranks)
        names = {"num_replicas": "world_size"}
        return [
            DataLoader(Ints(path), batch_sampler=sampler, num_workers=0),
            Loader(path, BATCH, **{names.get(name, name): value for name, value in ranks.items()}),
        ]

    for first, then in zip(make(num_replicas=WORLD, rank=0, placement=NODES), make(), strict=True):
        for _ in first:
            break
        state = json.loads(json.dumps(first.state_dict()))
        assert (state["position"], state["order"]) == (BATCH * WORLD, Placed(NODES).to_builtins())
        then.load_state_dict(state)
        assert then.state_dict() == state
        count = 0
        for _ in then:
            count += 1
            if count == 1:
                state = then.state_dict()
                assert (state["position"], state["order"]) == (BATCH * WORLD + BATCH, Placed(NODES).to_builtins())
        assert count == 4
        assert then.state_dict()["order"] == Random().to_builtins()


def test_a_sampler_made_before_its_ranks_are_known(monkeypatch: pytest.MonkeyPatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    sampler = Sampler(23, placement="node")
    assert sampler.order == Placed(1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match="how many ranks share a node with rank 3 of 4"):
        next(iter(sampler))
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert list(sampler) == [*chain(*own(3))]


PROGRAM = """
import json, os, sys
import torch.distributed as dist
from ffrecord.torch import Sampler
dist.init_process_group("gloo")
sampler = Sampler(1000, seed=1, placement="node")
found = {"node": os.environ["GROUP_RANK"], "rank": dist.get_rank(), "epochs": [list(sampler), list(sampler)]}
with open(f"{sys.argv[1]}/{dist.get_rank()}.json", "w") as file:
    json.dump(found, file)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.long
def test_two_nodes_of_torchrun(tmp_path: Path):
    """Two agents of three ranks each, which meet on the loopback: each node has its half, in both epochs."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=3"]
    command += ["--master-addr=127.0.0.1", f"--master-port={port}"]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    agents = [
        subprocess.Popen(
            [*command, f"--node-rank={node}", str(program), str(tmp_path)],
            env=variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for node in range(2)
    ]
    try:
        end = time.monotonic() + 100
        errors = [agent.communicate(timeout=max(1, end - time.monotonic()))[1] for agent in agents]
    finally:
        for agent in agents:
            if agent.poll() is None:
                agent.kill()
                agent.wait()
    assert [agent.returncode for agent in agents] == [0, 0], errors
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(6)]
    for epoch in range(2):
        of_nodes: dict[str, list[int]] = {"0": [], "1": []}
        for each in told:
            of_nodes[each["node"]] += each["epochs"][epoch]
        for samples in of_nodes.values():
            assert len(set(samples)) == len(samples) == 498  # of 1000 samples, 4 are nobody's
        assert max(of_nodes["0"]) < 500 <= min(of_nodes["1"])
