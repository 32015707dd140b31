"""A writer to object storage is killed: nothing is visible, or all; the same call goes on and sends what is missing."""

import contextlib
import itertools
import json
import os
import random
import signal
import time
from collections.abc import Iterable
from pathlib import Path

import children
import pytest
from faulty import Faulty
from servers import Storage, faulty
from written import Bucket, sent
from written_datasets import Samples, files_in

from ffrecord import DatasetWriter
from ffrecord.dataset_writer import Summary

pytest.importorskip("obstore", reason="obstore is not installed")

GIVEN = Samples.of_sizes([(i * 7919) % 5000 for i in range(120)])
MORE = Samples.of_sizes([(i * 104729) % 3000 for i in range(50)])
WHOLE = ("before", "after")  # the request in which the writer is killed is lost, or done and not answered


class Writer:
    """Writes one dataset, in a process of its own that is killed, or here.

    Args:
        place: in the bucket.
        local: a directory for what a local writer writes.
        workers: of the one that is killed.
        appends: whether to a dataset that is there.
        once: whether of an iterable.
    """

    def __init__(
        self, bucket: Bucket, local: Path, workers: int = 0, appends: bool = False, once: bool = False
    ) -> None:
        self.bucket, self.workers, self.once = bucket, workers, once
        self.options = {"samples_per_shard": 20, "mode": "append" if appends else "create"}
        if appends:
            for path, more in ((bucket.url, bucket.options), (str(local), {})):
                DatasetWriter(path, num_workers=0, samples_per_shard=20, **more).from_indexed_dataset(MORE.samples)
        self.before = bucket.files()
        DatasetWriter(local, num_workers=0, **self.options).from_indexed_dataset(GIVEN.samples)
        self.after = files_in(local)

    def write(self, workers: int = 0) -> Summary:
        writer = DatasetWriter(self.bucket.url, num_workers=workers, **self.options, **self.bucket.options)
        if self.once:
            return writer.from_iterable(iter(GIVEN.samples), chunksize=10)
        return writer.from_indexed_dataset(GIVEN.samples, chunksize=10)

    def begin(self) -> int:
        return children.begin(lambda: self.write(self.workers).samples == len(GIVEN.samples))

    def check(self, proxy: Faulty) -> Summary | None:
        """That what is there is as before or as it is to be, and that the same call makes it so.

        Returns:
            what that call says; None if the one before came to its end.
        """
        found = {name: data for name, data in self.bucket.files().items() if name != ".dataset.part"}
        changed = found.get("dataset.json") != self.before.get("dataset.json")
        assert not changed or found == self.after
        assert {name: found[name] for name in self.before if name != "dataset.json"}.items() <= self.before.items()
        ledger = next(self.bucket.staging.rglob("ledger"), None)
        lines = [] if ledger is None else [line for line in ledger.read_bytes().split(b"\n") if b'"uploaded"' in line]
        noted = {json.loads(line)["name"] for line in lines}
        proxy.requests.clear()
        try:
            summary = self.write()
        except FileExistsError:
            assert changed
            assert ledger is None or self.once
            summary = None
        assert self.bucket.files() == self.after
        assert self.bucket.staged() == []
        if not self.once:
            assert not noted & set(sent(proxy))
        return summary


def killed_at(writer: Writer, proxy: Faulty, number: int, when: str) -> bool:
    """Whether there was a request of this number, in which the writer was killed."""
    count, victim = itertools.count(), [0]
    hit: list[str] = []

    def watch(moment: str, request: str) -> None:
        if moment == when and next(count) == number:
            while not victim[0]:
                time.sleep(0.001)
            os.kill(victim[0], signal.SIGKILL)
            hit.append(request)
            raise ConnectionError("the writer is dead")

    proxy.watch = watch
    try:
        victim[0] = writer.begin()
        status = os.waitstatus_to_exitcode(os.waitpid(victim[0], 0)[1])
    finally:
        proxy.watch = lambda moment, request: None
    assert status in (0, -signal.SIGKILL)
    return bool(hit)


def kills(storage: Storage, tmp_path: Path, numbers: Iterable[int], **options: bool) -> int:
    """How many times a writer was killed, in requests of these numbers until there are no such."""
    done = 0
    with faulty(storage.endpoint, kinds=()) as proxy:
        for number, when in ((number, when) for number in numbers for when in WHOLE):
            place = tmp_path / f"{number}{when}"
            bucket = Bucket(storage, f"{tmp_path.name}/{number} {when}/set", place / "staging", proxy)
            writer = Writer(bucket, place / "set", **options)
            if not killed_at(writer, proxy, number, when):
                break
            done += 1
            writer.check(proxy)
    return done


def test_killed_in_some_requests(storage: Storage, tmp_path: Path) -> None:
    assert kills(storage, tmp_path, [12]) == 2


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("options", [{}, {"appends": True}, {"once": True}], ids=["create", "append", "iterable"])
def test_killed_in_every_request(options: dict[str, bool], storage: Storage, tmp_path: Path) -> None:
    assert kills(storage, tmp_path, itertools.count(), **options) > 30


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("workers", [0, 2])
def test_killed_at_random(workers: int, storage: Storage, tmp_path: Path) -> None:
    chance, killed = random.Random(workers), 0
    with faulty(storage.endpoint, kinds=()) as proxy:
        for number in range(40):
            bucket = Bucket(storage, f"random {workers}/{number}/set", tmp_path / f"{number}" / "staging", proxy)
            writer = Writer(bucket, tmp_path / f"{number}" / "set", workers)
            while True:
                victim = writer.begin()
                time.sleep(chance.uniform(0.01, 0.7))
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
                code = os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1])
                assert code in (0, -signal.SIGKILL)
                killed += code != 0
                if code == 0 or chance.random() < 0.5:
                    break
            writer.check(proxy)
    print(f"killed: {killed}")
    assert killed >= 20


@pytest.mark.long
def test_ctrl_c_and_sigterm_leave_what_the_same_call_goes_on_from(storage: Storage, tmp_path: Path) -> None:
    for number, end in enumerate((signal.SIGINT, signal.SIGTERM)):
        with faulty(storage.endpoint, kinds=()) as proxy:
            bucket = Bucket(storage, f"ended {number}/set", tmp_path / f"{number}" / "staging", proxy)
            writer = Writer(bucket, tmp_path / f"{number}" / "set")
            victim = [0]

            def interrupt(moment: str, request: str, victim: list[int] = victim, end: int = end) -> None:
                if moment == "after" and request.startswith("PUT ") and "PART_00002" in request:
                    while not victim[0]:
                        time.sleep(0.001)
                    os.kill(victim[0], end)

            proxy.watch = interrupt
            victim[0] = writer.begin()
            assert os.waitstatus_to_exitcode(os.waitpid(victim[0], 0)[1]) != 0
            proxy.watch = lambda moment, request: None
            assert "dataset.json" not in bucket.files()
            assert not [name for name in bucket.staged() if "open-" in name]
            summary = writer.check(proxy)
            assert summary is not None
            assert summary.kept_shards >= 1
