"""Workers and nodes of Ray are killed while it writes and reads: every sample is there once, every byte is right.

FFRECORD_RAY_KILLS says how many are killed in all; 200 unless told.
"""

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.data
from ray_builders import numbered, plain, quiet, records
from ray_killing import Killer, left_behind

import ffrecord.ray
from ffrecord import FileReader

KILLS = int(os.environ.get("FFRECORD_RAY_KILLS", "200"))
AT_ONCE = 25  # kills of one write or read
SAMPLES, TASKS = 3000, 60

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3600),
    pytest.mark.unsanitized("Ray does not run under it"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def killer(request: pytest.FixtureRequest) -> Iterator[Killer]:
    directory = tempfile.mkdtemp(prefix="ffr-")
    found = Killer(directory, 3, request.config.getoption("--seed", 0))
    try:
        ray.init(address=found.cluster.address, log_to_driver=False, logging_level="error")
        quiet()
        yield found
    finally:
        ray.shutdown()
        found.stop()
        shutil.rmtree(directory, ignore_errors=True)
        print(f"killed: {found.workers} workers, {found.nodes} nodes")
    assert left_behind() == []


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain(tmp_path_factory.mktemp("source") / "dataset", SAMPLES, per_shard=450)


def slowed(ds: Any, **options: Any) -> Any:
    """It takes its time, so that something is killed in the middle of it."""

    def slowly(batch: dict[str, Any]) -> dict[str, Any]:  # not of this module, which workers cannot import
        time.sleep(0.1)
        return batch

    return ds.map_batches(slowly, batch_size=10, **options)


def dataset(source: Path) -> Any:
    return slowed(ffrecord.ray.read(source, override_num_blocks=TASKS))


def test_writes_and_reads_while_workers_and_nodes_die(killer, source, tmp_path):
    wanted = Counter(numbered(i) for i in range(SAMPLES))
    turn = 0
    while killer.workers + killer.nodes < KILLS:
        target = tmp_path / f"d{turn}"
        most = min(AT_ONCE, KILLS - killer.workers - killer.nodes)
        with killer.at_work(most):
            if turn % 3 < 2:
                # The blocks that are written are made by the same tasks, or by others, whose blocks a node takes along.
                ds = dataset(source)
                found = ds if turn % 3 == 0 else ds.materialize()
                summary = ffrecord.ray.write(found, target, shard_size=3000)
                rows = records(target)
                assert summary.samples == SAMPLES
            else:
                rows = [row["data"] for row in dataset(source).iter_rows()]
        assert Counter(rows) == wanted
        assert rows == [numbered(i) for i in range(SAMPLES)]
        if target.exists():
            check_complete(target)
        assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
        turn += 1
    assert killer.nodes >= KILLS // 20
    assert turn >= 3 or KILLS < 60


def check_complete(target: Path) -> None:
    """Every file of the directory is of the dataset, and matches its checksums."""
    with FileReader(target) as reader:
        listed = {os.path.basename(name) for name in reader.fnames}
        assert list(reader.bad_records()) == []
    assert set(os.listdir(target)) == listed | {"dataset.json"}


@pytest.mark.filterwarnings("ignore:`ray_remote_args` is deprecated")  # which is all there is for retries of a map
def test_a_task_that_is_killed_for_good_leaves_nothing(killer, source, tmp_path):
    """The write fails if it may not be tried again."""
    ds = slowed(ffrecord.ray.read(source, override_num_blocks=TASKS).materialize(), max_retries=0)
    before = killer.workers
    with killer.at_work(3, every_node=1000), pytest.raises(ray.exceptions.RayError) as caught:
        ffrecord.ray.write(ds, tmp_path / "d", ray_remote_args={"max_retries": 0})
    assert killer.workers > before
    assert not isinstance(caught.value, ray.exceptions.RayTaskError)  # which is what a task raises
    assert os.listdir(tmp_path) == []
