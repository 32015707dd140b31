"""Workers and nodes of Ray are killed while it writes and reads: every sample is there once, every byte is right.

FFRECORD_RAY_KILLS says how many are killed while they write, half of them to a URL; 200 unless told.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import ray.data
from documents import ROOT
from ray_builders import numbered, plain, quiet, records
from ray_killing import Killer, left_behind

import ffrecord.ray
from ffrecord import FileReader
from ffrecord.remote.connecting import connect

KILLS = int(os.environ.get("FFRECORD_RAY_KILLS", "200"))
AT_ONCE = 25  # kills of one write or read
SAMPLES, TASKS = 3000, 60
WANTED = [numbered(i) for i in range(SAMPLES)]

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
        print(f"killed: {found.workers} workers, {found.nodes} nodes; {found.writing} of them while they wrote")
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


def blocks_of(source: Path, turn: int) -> Any:
    """To be made by the tasks that write them; or by others before, and then a node that dies takes some along."""
    return dataset(source) if turn % 2 == 0 else dataset(source).materialize()


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An S3 API server."""
    pytest.importorskip("moto", reason="an S3 API on this machine")
    pytest.importorskip("obstore", reason="obstore is not installed")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(str(ROOT / "tests" / "remote"))
        from servers import moto

        with moto(tmp_path_factory.mktemp("storage") / "moto") as running:
            yield running


def test_writes_to_directories_while_workers_and_nodes_die(killer, source, tmp_path):
    turn, before, nodes = 0, killer.writing, killer.nodes
    while killer.writing - before < KILLS // 2 or turn < 2:
        target = tmp_path / f"d{turn}"
        ds = blocks_of(source, turn)
        with killer.at_work(AT_ONCE):
            already = killer.writing
            summary = ffrecord.ray.write(ds, target, shard_size=3000)
        assert killer.writing > already
        assert summary.samples == SAMPLES
        assert records(target) == WANTED
        check_complete(target)
        assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []
        turn += 1
    print(f"killed while they wrote to directories: {killer.writing - before}, nodes: {killer.nodes - nodes}")
    assert killer.nodes > nodes


def test_writes_to_a_url_while_workers_and_nodes_die(killer, source, storage):
    turn, before, nodes = 0, killer.writing, killer.nodes
    while killer.writing - before < KILLS - KILLS // 2 or turn < 2:
        url = storage.url(f"d{turn}")
        ds = blocks_of(source, turn)
        with killer.at_work(AT_ONCE):
            already = killer.writing
            summary = ffrecord.ray.write(ds, url, shard_size=3000, storage_options=storage.storage_options)
        assert killer.writing > already
        assert summary.samples == SAMPLES
        with FileReader(url, storage_options=storage.storage_options) as reader:
            assert [record.tobytes() for record in reader] == WANTED
            listed = {os.path.basename(name) for name in reader.fnames}
        client, root = connect(url, storage.storage_options)
        assert {path[len(root) + 1 :] for path, _, _ in client.list(root)} == listed | {"dataset.json"}
        turn += 1
    print(f"killed while they wrote to a URL: {killer.writing - before}, nodes: {killer.nodes - nodes}")
    assert killer.nodes > nodes


def test_reads_while_workers_and_nodes_die(killer, source):
    before = killer.workers + killer.nodes
    while killer.workers + killer.nodes - before < KILLS // 8:
        with killer.at_work(AT_ONCE):
            rows = [row["data"] for row in dataset(source).iter_rows()]
        assert rows == WANTED


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
