"""Reading by URL: batches and blocks of a server that takes its time, epochs from the cache, opening many shards."""

import argparse
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import coldness
import environment
import numpy as np
import remote_opening
import workloads
from bench_write import grid
from harness import Contestant, Measurement, add_data, add_parts, arguments, timed
from harness import measure as measure_contestants
from program import Program, measure
from remote_figures import describe, figures, groups
from remote_rivals import Fetching, absent, rivals
from remote_server import missing, serving, versions
from remote_ways import Data, epoch, looping, reading

from ffrecord import DatasetWriter, FileReader
from ffrecord.format import manifest

PARTS = ("batches", "blocks", "cache", "opening")
ROOM = 2 << 30
SHARDS = 8
CACHE_LOOK_SECONDS = 1.1  # a reader notices a complete copy after this time
PATIENCE = 60.0  # seconds to wait until all is in the cache


def make_data(work: workloads.RemoteReads | workloads.RemoteBlocks, root: Path) -> Data:
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
                    asked = Fetching(server, data, work, self.directory, self.smoke)
                    self._measure(work, "batches", [reading("iter_batches", reader, data, work)], rivals(asked))

    def blocks(self) -> None:
        for work in workloads.SMOKE_REMOTE_BLOCKS if self.smoke else workloads.REMOTE_BLOCKS:
            data = make_data(work, self.root)
            with self._serving(work.milliseconds) as server:
                url = f"{server.url}/{data.name}"
                ours = looping("blocks", url, data, work, None)
                self._measure(work, "blocks", [ours], [looping("record by record", url, data, work, 0)])

    def cache(self) -> None:
        """Measure the cache once every shard is in it."""
        work = self._reads()[0]
        data = make_data(work, self.root)
        with (
            self._serving(work.milliseconds) as server,
            FileReader(f"{server.url}/{data.name}", cache_dir=self.directory / "cache") as cached,
            FileReader(data.local) as local,
        ):
            self._fill(cached, data, work)
            ours = reading("second epoch, from the cache", cached, data, work)
            before = cached.stats().requests
            self._measure(work, "cache", [ours], [reading("files of this machine", local, data, work)])
            if cached.stats().requests != before:
                raise SystemExit("the cache was not complete: nothing was measured")

    def _fill(self, reader: FileReader, data: Data, work: workloads.RemoteReads) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            epoch(reader, data, work.batch)
            if len(list((self.directory / "cache").glob("*.ffr"))) == SHARDS:  # complete copies are read like files
                time.sleep(CACHE_LOOK_SECONDS)
                epoch(reader, data, work.batch)  # so that the reader finds them
                return
            time.sleep(0.1)
        raise SystemExit(f"not all shards are in the cache after {PATIENCE} seconds")

    def opening(self) -> None:
        work = workloads.SMOKE_REMOTE_OPENS if self.smoke else workloads.REMOTE_OPENS
        directory, name = remote_opening.make(self.root / "many", work.shards), "FileReader"
        asked: list[int] = []
        with self._serving(work.milliseconds) as server:
            url = f"{server.url}/{directory.name}"

            def open_it() -> None:
                with FileReader(url) as reader:
                    reader.locate(len(reader) - 1)

            def check() -> None:
                with FileReader(url) as reader:
                    remote_opening.check(name, reader, work.shards)

            def run() -> float:
                with server.counted() as requests:
                    seconds = timed(open_it)()
                asked.append(len(requests))
                return seconds

            taken = measure_contestants([Contestant(name, run, check)], self.rounds)
        details = {"role": "ours", "part": "opening", "requests": asked}
        size = (directory / manifest.NAME).stat().st_size
        self.add([Measurement(name, work, taken[name], size, work.shards, "hot", details)])

    def _measure(
        self,
        work: workloads.RemoteReads | workloads.RemoteBlocks,
        part: str,
        ours: Sequence[Contestant],
        others: Sequence[Contestant],
    ) -> None:
        taken, size = measure_contestants([*ours, *others], self.rounds), work.mean * work.samples
        found = []
        for each in [*ours, *others]:
            details = {"role": "ours" if each in ours else "peer", "part": part, **each.details}
            found.append(Measurement(each.name, work, taken[each.name], size, work.samples, "hot", details))
        self.add(found)

    def show(self, found: Sequence[Measurement]) -> None:
        for (part, work), group in groups(found).items():
            print(describe(part, work), grid(list(group.of.values())), "", sep="\n", flush=True)


def options_of(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    add_parts(parser, PARTS)


def main() -> None:
    options = arguments(__doc__, options_of)
    if lacking := missing(latency=0.02):
        raise SystemExit(f"{lacking} is not installed: there is nothing to read from")
    coldness.check_disk(options.data, ROOM, options.smoke, "reading from a cache is none from a disk")
    for name, why in absent().items():
        print(f"{name}: not measured, {why}", flush=True)
    used = {**environment.versions("obstore", "fsspec", "aiohttp"), **versions()}
    measure(Remote, "remote", options, used, figures, not_measured=absent())


if __name__ == "__main__":
    main()
