"""Reading records: ours, the original's way, other packages, and the limit of the machine; cached and cold."""

import argparse
import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import cgroup
import coldness
import environment
import fio
import read_limit
import read_open
import read_original
import read_single
import read_start
import workloads
from harness import Measurement, Report, add_data, add_parts, arguments, table
from human import three
from program import Program, measure
from read_data import Files, Records, make_files, make_records
from read_figures import figures, size_name
from read_limited import Task
from read_limited import measure as measure_limited
from read_peers import random_peers, sequential_peers
from read_timing import Cold, measure_hot, usable
from read_ways import Way, cold_ways, hot_ways, sequential_ways

PARTS = ("hot", "one", "cold", "start", "sequential", "limited", "open")
PEERS = ("lmdb", "array_record", "bagz")
COLD_SECONDS = 2.0
ROOM = 4 << 30
UNTIL_THE_END = float("inf")


class Reading(Program):
    """One run of the benchmark."""

    def __init__(self, options: argparse.Namespace, directory: Path, report: Report) -> None:
        super().__init__(options, directory, report)
        self.cold_seconds = 0.05 if self.smoke else COLD_SECONDS
        self.means = options.mean

    def run(self) -> None:
        loops = read_limit.compile_loops(self.directory)
        for work in workloads.SMOKE_READS if self.smoke else workloads.READS:
            if self.means and work.mean not in self.means:
                continue
            if {"hot", "cold", "start", "sequential", "limited"} & self.options.part:
                with self.files(work) as (files, records):
                    self.of_size(loops, files, records)
        if "one" in self.options.part:
            for single in workloads.SMOKE_SINGLES if self.smoke else workloads.SINGLES:
                if not self.means or single.mean in self.means:
                    self.add(read_single.measure_single(self.directory, single, self.rounds))
        if "open" in self.options.part:
            self.opens()

    @contextmanager
    def files(self, work: workloads.Reads) -> Iterator[tuple[Files, Records]]:
        """Yield the files of one size at a time, because they take gigabytes."""
        records = make_records(work)
        files = make_files(self.directory, records)
        try:
            yield files, records
        finally:
            files.delete()

    def of_size(self, loops: read_limit.Loops, files: Files, records: Records) -> None:
        if "hot" in self.options.part:
            self.hot(loops, files, records)
        if "cold" in self.options.part:
            self.cold([*cold_ways(), *random_peers()], files, records, self.jobs(fio.random_job(records.work.mean)))
        if "start" in self.options.part and (self.smoke or records.work.mean in workloads.LIMITED_MEANS):
            self.add(read_start.measure(files, records, self.rounds))
        if "sequential" in self.options.part:
            self.sequential(loops, files, records)
        if "limited" in self.options.part and records.work.mean in workloads.LIMITED_MEANS[: 1 if self.smoke else None]:
            self.limited(files, records.work)

    def jobs(self, job: fio.Job) -> list[fio.Job]:
        """Return a list of the job of fio, or of none: its start takes a third of a second, too long for a smoke
        run.
        """
        return [job] if fio.installed() and (not self.smoke or job.size == workloads.LIMITED_MEANS[0]) else []

    def hot(self, loops: read_limit.Loops, files: Files, records: Records) -> None:
        ways = [*hot_ways(), *read_original.originals(loops), *random_peers(), *read_limit.random_limits(loops)]
        self.add(measure_hot(usable(ways, files), files, records, self.rounds))

    def cold(
        self, ways: Sequence[Way], files: Files, records: Records, jobs: Sequence[fio.Job], limit: float | None = None
    ) -> None:
        self.add(Cold(usable(ways, files), files, records, limit or self.cold_seconds, jobs).measure(self.rounds))

    def sequential(self, loops: read_limit.Loops, files: Files, records: Records) -> None:
        batch = max(1, workloads.MIB // records.work.mean)
        work = dataclasses.replace(records.work, batch=batch, order="sequential")
        ordered = dataclasses.replace(records, work=work)
        ways = [*sequential_ways(), *sequential_peers()]
        limits = read_limit.sequential_limits(loops)
        self.add(measure_hot(usable([*ways, *limits], files), files, ordered, self.rounds))
        self.cold(ways, files, ordered, self.jobs(fio.SEQUENTIAL), UNTIL_THE_END)

    def limited(self, files: Files, work: workloads.Reads) -> None:
        memory = workloads.SMOKE_MEMORY if self.smoke else workloads.LIMITED_MEMORY
        work = dataclasses.replace(work, memory=memory)
        with cgroup.group() as group:
            if group is None:
                print("NOT MEASURED: cold reads with little memory. No control group with a limit can be made here.")
                return
            task = Task(str(self.directory), work, self.rounds, self.cold_seconds, not self.smoke, group)
            self.add(measure_limited(task))

    def opens(self) -> None:
        works = workloads.SMOKE_OPENS if self.smoke else workloads.OPENS
        for work in works:
            with read_open.made(self.directory, work) as path:
                self.add(read_open.measure_open(path, work, self.rounds, work is works[-1]))
                self.add([read_open.measure_forked(path, work, 1 if self.smoke else read_open.FORKED_ROUNDS)])

    def show(self, found: Sequence[Measurement]) -> None:
        if isinstance(found[0].workload, workloads.Reads):
            work = found[0].workload
            reads = [m for m in found if m.workload == work]
            print(describe(work, found[0].cache), grid(reads), "", sep="\n", flush=True)


def describe(work: workloads.Reads, cache: str) -> str:
    memory = f", {work.memory // workloads.MIB} MiB of memory" if work.memory else ""
    kind = "sequential" if work.order == "sequential" else f"random, batches of {work.batch}"
    return f"{size_name(work.mean)}, {work.total / 1e6:g} MB, {kind}, {'cold' if cache == 'cold' else 'cached'}{memory}"


def grid(found: Sequence[Measurement]) -> str:
    rows = []
    for m in found:
        low, high = (m.size / seconds / 1e9 for seconds in (max(m.seconds), min(m.seconds)))
        rows.append(
            [
                m.contestant,
                f"{three(m.gigabytes_per_second)} ({three(low)}..{three(high)})",
                f"{m.count / m.median:,.0f}",
            ]
        )
    return table(["", "GB/s, median (min..max)", "records/s"], rows)


def options_of(parser: argparse.ArgumentParser) -> None:
    add_parts(parser, PARTS)
    parser.add_argument("--mean", type=int, action="append", help="only records of this mean size; may be repeated")
    add_data(parser, "directory for up to 4 GB of files")


def main() -> None:
    options = arguments(__doc__, options_of)
    coldness.check_disk(options.data, 2 * ROOM, options.smoke, "nothing can be cold, those parts are left out")
    if options.smoke and not coldness.on_disk(options.data):
        options.part -= {"cold", "start", "sequential", "limited"}
    if not fio.installed():
        print("NOT MEASURED: fio, which is what the storage can give. It is not installed (Debian: apt install fio).")
    versions = {**environment.versions(*PEERS), "fio": fio.version(), **environment.libraries("libz")}
    measure(Reading, "read", options, versions, figures, read_ahead_kb=environment.read_ahead())


if __name__ == "__main__":
    main()
