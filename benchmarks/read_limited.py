"""Cold reads where memory is short: run in a process of its own, inside a control group, by bench_read.py.

Reads a `Task` as JSON from its input and prints measurements as JSON lines.
"""

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cgroup
import fio
import harness
import read_settling
import workloads
from read_data import Files, Records, make_records
from read_peers import random_peers
from read_timing import Sizes, cold_contestants, fio_contestant, fio_measurement, measurements, usable
from read_ways import cold_ways


@dataclass(frozen=True)
class Task:
    """What the process is to do.

    Attributes:
        directory: of the files, which are there.
        work: fields of `workloads.Reads`.
        rounds, limit, fio_seconds: as for cold reads elsewhere.
        group, limit_file: of `cgroup.Group`.
    """

    directory: str
    work: dict[str, Any]
    rounds: int
    limit: float
    fio_seconds: float
    group: str
    limit_file: str


def measure(task: Task, work: workloads.Reads) -> list[harness.Measurement]:
    """In a process of its own."""
    sent = json.dumps(dataclasses.asdict(task))
    result = subprocess.run([sys.executable, __file__], input=sent, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        raise RuntimeError(f"measuring with little memory ended with status {result.returncode}")
    found = map(json.loads, result.stdout.splitlines())
    return [harness.Measurement(**{**fields, "workload": workload_of(fields, work)}) for fields in found]


def workload_of(fields: dict[str, Any], work: workloads.Reads) -> Any:
    return workloads.Settling(work, fields["workload"]["change"]) if "change" in fields["workload"] else work


def inside(task: Task, files: Files, records: Records) -> list[harness.Measurement]:
    group = cgroup.Group(Path(task.group), task.limit_file)
    ways = usable([*cold_ways(), *random_peers()], files)
    contestants = cold_contestants(ways, files, records, task.limit)
    if fio.installed():
        job = fio.random_job(records.work.mean)
        contestants.append(fio_contestant(job, files.ffr, task.fio_seconds))
    group.limit(records.work.memory)
    group.join()
    taken = harness.take_turns(contestants, task.rounds)
    found = measurements(ways, records, Sizes(records, records.batches()), taken, "cold")
    if fio.installed():
        found.append(fio_measurement(job, records, taken[job.name]))
    return found + read_settling.measure(group, files, records, task.rounds)


def show(found: Sequence[harness.Measurement]) -> None:
    for measurement in found:
        print(json.dumps(dataclasses.asdict(measurement)))


def main() -> None:
    task = Task(**json.load(sys.stdin))
    records = make_records(workloads.Reads(**task.work))
    files = Files.of(Path(task.directory), records)
    with_output = sys.stdout
    sys.stdout = sys.stderr  # remarks are not measurements
    found = inside(task, files, records)
    sys.stdout = with_output
    show(found)


if __name__ == "__main__":
    main()
