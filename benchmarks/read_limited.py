"""Cold reads with little memory: bench_read.py runs this in its own process, inside a control group.

The argument is a pickled `Task`; the output is pickled measurements.
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
    """The task of the process.

    Attributes:
        directory: directory of the existing files.
        limit: limit, as for other cold reads.
        with_fio: whether it takes turns with fio.
    """

    directory: str
    work: workloads.Reads
    rounds: int
    limit: float
    with_fio: bool
    group: cgroup.Group


def measure(task: Task) -> list[harness.Measurement]:
    """Measure in a separate process."""
    sent = base64.b64encode(pickle.dumps(task)).decode()
    result = subprocess.run([sys.executable, __file__, sent], stdout=subprocess.PIPE)
    if result.returncode:
        raise RuntimeError(f"measuring with little memory ended with status {result.returncode}")
    return list(pickle.loads(result.stdout))


def inside(task: Task) -> list[harness.Measurement]:
    """Measure inside the group; everything that takes memory once is done before the process joins it."""
    records = make_records(task.work)
    files = Files.of(Path(task.directory), records)
    jobs = [fio.random_job(task.work.mean), fio.batched_job(task.work.mean, task.work.batch)]
    with_fio = task.with_fio and fio.installed()
    cold = Cold(usable([*cold_ways(), *random_peers()], files), files, records, task.limit, jobs if with_fio else ())
    cold.check()
    task.group.limit(task.work.memory)
    task.group.join()
    return cold.take_turns(task.rounds) + read_settling.measure(task.group, files, records, task.rounds)


def main() -> None:
    # Imported by its name, so that both processes pickle the classes under the same module name.
    from read_limited import inside

    output, sys.stdout = sys.stdout, sys.stderr  # remarks are not measurements
    found = inside(pickle.loads(base64.b64decode(sys.argv[1])))
    output.buffer.write(pickle.dumps(found))


if __name__ == "__main__":
    main()
