"""Private memory of readers, each in its own process: prints one JSON object."""

import json
import os
import subprocess
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ffrecord import FileReader

BATCHES, BATCH = 20, 512


def private(process: int | str = "self") -> dict[str, int]:
    """Return the bytes that no other process has mapped; "dirty" are those that are not simply cached file.

    "proportional" is this process's share of dirty memory that several processes map (Linux 6.0 reports it).
    """
    lines = (line.split() for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:])
    kib = {name: int(value) for name, value, *_ in lines}
    return {
        "private": 1024 * (kib["Private_Clean:"] + kib["Private_Dirty:"]),
        "dirty": 1024 * kib["Private_Dirty:"],
        "proportional": 1024 * kib.get("Pss_Dirty:", kib["Private_Dirty:"]),
    }


def less(after: dict[str, int], before: dict[str, int]) -> dict[str, int]:
    return {name: after[name] - before[name] for name in after}


def of_open(path: str, check: bool) -> dict[str, int]:
    """Return the memory that opening adds."""
    before = private()
    with FileReader(path, check):
        return less(private(), before)


def read_forked(reader: FileReader, seed: int, here: Any) -> None:
    """Read the file, and wait until all processes have, so that shared memory is counted as shared."""
    random = np.random.default_rng(seed)
    for _ in range(BATCHES):
        reader.read(random.integers(0, reader.n, BATCH))
    here.barrier.wait()
    here.found.put(private())
    here.barrier.wait()


class Meeting:
    """The state that forked processes share."""

    def __init__(self, processes: int) -> None:
        context = get_context("fork")
        self.barrier, self.found = context.Barrier(processes), context.SimpleQueue()


def of_forked(path: str, processes: int) -> dict[str, int]:
    """Return the mean over processes forked from one that has the file open."""
    here = Meeting(processes)
    with FileReader(path) as reader:
        context = get_context("fork")
        children = [context.Process(target=read_forked, args=(reader, seed, here)) for seed in range(processes)]
        for child in children:
            child.start()
        found = [here.found.get() for _ in children]
        for child in children:
            child.join()
    return {name: round(sum(each[name] for each in found) / processes) for name in found[0]}


def ask(what: str, path: Path, argument: int) -> dict[str, int]:
    """Run one of the functions above in a fresh process."""
    command = [sys.executable, __file__, what, os.fspath(path), str(argument)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(output))


if __name__ == "__main__":
    what, path, argument = sys.argv[1:]
    print(json.dumps(of_open(path, bool(int(argument))) if what == "open" else of_forked(path, int(argument))))
