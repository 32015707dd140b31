"""One contestant of bench_loader.py in its own process: `python loader_host.py NAME DIRECTORY WORKLOAD`.

It has as many CPUs as the workload has workers. A line on its standard input starts each epoch. It prints JSON objects,
one on each line. The first is {"version": of its package}, once a whole epoch was compared with the packed samples, or
{"missing": reason why its package cannot be imported}. Then follows, for each epoch, {"seconds", "count": samples,
"sum": of the labels, "waits": nanoseconds of each batch; none of a limit that has no batches}. A line that is another
workload takes the place of the first one, and is answered in the same way.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import environment
import loader_parts
import workloads
from loader_ways import Opened
from waits import Waits


class Answers:
    """Standard output for the answers of this program alone, because some packages print."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, **answer: Any) -> None:
        print(json.dumps(answer), file=self.file, flush=True)


def main(name: str, directory: Path, work: Any, answers: Answers) -> None:
    if work.workers:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: work.workers])
    opened = open_way(name, directory, work, answers)
    for line in sys.stdin:
        if line.startswith("{"):
            opened = None  # its workers end before the next ones begin
            work = workloads.from_fields(json.loads(line))
            opened = open_way(name, directory, work, answers)
            continue
        assert opened is not None
        waits = Waits(work.files if isinstance(work, workloads.Crops) else work.samples)
        opened.prepare()
        start = time.perf_counter()
        count, total = opened.epoch(waits)
        seconds = time.perf_counter() - start
        answers.say(seconds=seconds, count=count, sum=total, waits=waits.rounds[0].tolist() if waits.rounds else [])


def open_way(name: str, directory: Path, work: Any, answers: Answers) -> Opened | None:
    """Open a contestant and check an epoch; None if its package is missing."""
    part = loader_parts.of_work(work)
    way = part.ways[name]
    try:
        opened = way.open(directory, work)
    except ImportError as error:
        answers.say(missing=f"{type(error).__name__}: {error}")
        return None
    part.check(name, opened.batches(), directory, work)
    answers.say(version=environment.versions(way.package)[way.package])
    return opened


if __name__ == "__main__":
    name, directory, work = sys.argv[1:]
    main(name, Path(directory), workloads.from_fields(json.loads(work)), Answers())
