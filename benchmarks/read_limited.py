"""Cold reads where memory is short: run in a process of its own, inside a control group, by bench_read.py.

Gets a pickled `Task` as its argument, and writes pickled measurements.
"""

import base64
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import cgroup
import fio
import harness
import read_settling
import workloads
from read_data import Files, make_records
from read_peers import random_peers
from read_timing import Cold, usable
from read_ways import cold_ways


@dataclass(frozen=True)
class Task:
    """What the process is to do.

    Attributes:
        directory: of the files, which are there.
        limit: as for cold reads elsewhere.
        with_fio: whether it takes turns with fio.
    """

    directory: str
    work: workloads.Reads
    rounds: int
    limit: float
    with_fio: bool
    group: cgroup.Group


def measure(task: Task) -> list[harness.Measurement]:
    """In a process of its own."""
    sent = base64.b64encode(pickle.dumps(task)).decode()
    result = subprocess.run([sys.executable, __file__, sent], stdout=subprocess.PIPE)
    if result.returncode:
        raise RuntimeError(f"measuring with little memory ended with status {result.returncode}")
    return list(pickle.loads(result.stdout))


def inside(task: Task) -> list[harness.Measurement]:
    """Everything that takes memory once is done before the process joins the group."""
    records = make_records(task.work)
    files = Files.of(Path(task.directory), records)
    job = fio.random_job(task.work.mean) if task.with_fio and fio.installed() else None
    cold = Cold(usable([*cold_ways(), *random_peers()], files), files, records, task.limit, job)
    cold.check()
    task.group.limit(task.work.memory)
    task.group.join()
    return cold.take_turns(task.rounds) + read_settling.measure(task.group, files, records, task.rounds)


def main() -> None:
    # Imported by its name, so that both processes know the classes by the same one.
    from read_limited import inside

    output, sys.stdout = sys.stdout, sys.stderr  # remarks are not measurements
    found = inside(pickle.loads(base64.b64decode(sys.argv[1])))
    output.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
