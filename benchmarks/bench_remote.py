"""Reading by URL: batches of a server that takes its time, epochs from the cache, and opening many shards."""

import argparse
import os
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import coldness
import environment
import numpy as np
import workloads
from bench_write import grid
from harness import Contestant, Measurement, add_parts, arguments, timed
from harness import measure as measure_contestants
from program import Program, measure
from read_figures import size_name
from remote_figures import figures
from remote_server import Nginx, missing, serving
from remote_ways import Data, curl, epoch, fsspec_one_by_one, reading, wrk

from ffrecord import DatasetWriter, FileReader, manifest

PARTS = ("batches", "cache", "opening")
ROOM = 2 << 30
SHARDS = 8
CACHE_LOOK_SECONDS = 1.1  # after which a reader sees that a copy is complete
PATIENCE = 60.0  # seconds until all is in the cache


def make_data(work: workloads.RemoteReads, root: Path) -> Data:
    """Write the dataset."""
    random = np.random.default_rng(work.seed)
    records = [random.bytes(work.mean) for _ in range(work.samples)]
    name = f"set-{work.samples}"
    local = root / name
    if not local.exists():
        DatasetWriter(local, num_workers=0, num_shards=SHARDS, progress=False).from_indexed_dataset(records)
    spans: list[tuple[str, int, int]] = []
    with FileReader(local) as reader:
        for number, path in enumerate(reader.fnames):
            offsets = reader.get_offsets(number).tolist()
            spans += [(Path(path).name, start, stop - 1) for start, stop in pairwise(offsets)]
    return Data(name, local, records, spans, random.permutation(work.samples))


class Remote(Program):
    """One run of the benchmark."""

    parts = PARTS

    def __init__(self, *of_program: Any) -> None:
        super().__init__(*of_program)
        self.root = self.directory / "root"
        self.root.mkdir()
        self._servers = 0

    def _serving(self, milliseconds: int) -> Any:
        self._servers += 1
        return serving(self.root, milliseconds / 1000, directory=self.directory / f"nginx-{self._servers}")

    def _reads(self) -> list[workloads.RemoteReads]:
        return workloads.SMOKE_REMOTE_READS if self.smoke else workloads.REMOTE_READS

    def batches(self) -> None:
        for work in self._reads():
            data = make_data(work, self.root)
            with self._serving(work.milliseconds) as server:
                options = {"max_requests": work.requests}
                with FileReader(f"{server.url}/{data.name}", storage_options=options) as reader:
                    self._measure(work, self._contestants(server, data, work, reader))

    def _contestants(
        self, server: Nginx, data: Data, work: workloads.RemoteReads, reader: FileReader
    ) -> list[Contestant]:
        others = {
            "wrk": wrk(server, data, work, self.directory, smoke=self.smoke),
            "curl": curl(server, data, work, self.directory),
            "fsspec and aiohttp": fsspec_one_by_one(server, data, work, smoke=self.smoke),
        }
        for name, contestant in others.items():
            if contestant is None:
                print(f"{name}: not installed, not measured", flush=True)
        return [reading("iter_batches", reader, data, work), *(each for each in others.values() if each is not None)]

    def cache(self) -> None:
        """From when every shard is in it."""
        work = self._reads()[0]
        data = make_data(work, self.root)
        with (
            self._serving(work.milliseconds) as server,
            FileReader(f"{server.url}/{data.name}", cache_dir=self.directory / "cache") as cached,
            FileReader(data.local) as local,
        ):
            self._fill(cached, data, work)
            contestants = [
                reading("second epoch, from the cache", cached, data, work),
                reading("files of this machine", local, data, work),
            ]
            before = cached.stats().requests
            self._measure(work, contestants)
            if cached.stats().requests != before:
                raise SystemExit("the cache was not complete: nothing was measured")

    def _fill(self, reader: FileReader, data: Data, work: workloads.RemoteReads) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            epoch(reader, data, work.batch)
            if len(list((self.directory / "cache").glob("*.ffr"))) == SHARDS:  # complete copies, read as files are
                time.sleep(CACHE_LOOK_SECONDS)
                epoch(reader, data, work.batch)  # which finds them
                return
            time.sleep(0.1)
        raise SystemExit(f"not all shards are in the cache after {PATIENCE} seconds")

    def opening(self) -> None:
        work = workloads.SMOKE_REMOTE_OPENS if self.smoke else workloads.REMOTE_OPENS
        directory = many_shards(self.root / "many", work.shards)
        asked: list[float] = []
        with self._serving(work.milliseconds) as server:

            def open_it() -> None:
                with FileReader(f"{server.url}/{directory.name}") as reader:
                    reader.locate(len(reader) - 1)

            clock = timed(open_it)

            def run() -> float:
                with server.counted() as requests:
                    seconds = clock()
                asked.append(len(requests))
                return seconds

            taken = measure_contestants([Contestant("FileReader", run, open_it)], self.rounds)
        details = {"role": "ours", "requests": asked}
        size = (directory / manifest.NAME).stat().st_size
        self.add([Measurement("FileReader", work, taken["FileReader"], size, work.shards, "hot", details)])

    def _measure(self, work: workloads.RemoteReads, contestants: Sequence[Contestant]) -> None:
        taken = measure_contestants(contestants, self.rounds)
        size = work.mean * work.samples
        self.add(
            [
                Measurement(name, work, seconds, size, work.samples, "hot", {"role": role_of(name)})
                for name, seconds in taken.items()
            ]
        )

    def show(self, found: Sequence[Measurement]) -> None:
        work = found[0].workload
        does = (
            f"{size_name(work.mean)}, {work.milliseconds} ms, {work.requests} requests"
            if isinstance(work, workloads.RemoteReads)
            else f"opening {work.shards:,} shards, {work.milliseconds} ms"
        )
        print(does, grid(found), "", sep="\n", flush=True)


def role_of(name: str) -> str:
    return "ours" if name in ("iter_batches", "second epoch, from the cache") else "peer"


def many_shards(directory: Path, count: int) -> Path:
    """A dataset of so many, of which most are other names of a few files."""
    directory.mkdir()
    few = min(count, 10)
    DatasetWriter(directory / "few", num_workers=0, samples_per_shard=1, progress=False).from_indexed_dataset(
        [bytes([i]) * 100 for i in range(few)]
    )
    listed = manifest.load(str(directory / "few"))
    assert listed is not None
    shards = []
    for number in range(count):
        shard = listed.shards[number % few]
        name = f"part-{number:06}.ffr"
        os.link(directory / "few" / shard.name, directory / name)
        shards.append(manifest.Shard(name, shard.samples, shard.size, shard.crc))
    manifest.save(str(directory), manifest.build(shards, listed.schema))
    return directory


def options_of(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", type=Path, default=Path("."), help="directory to write in; the current one unless told"
    )
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    absent = missing(latency=0.02)
    if absent:
        raise SystemExit(f"{absent} is not installed: there is nothing to read from")
    coldness.check_disk(options.data, ROOM, options.smoke, "reading from a cache is none from a disk")
    measure(Remote, "remote", options, environment.versions(), figures)


if __name__ == "__main__":
    main()
