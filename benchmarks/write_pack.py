"""One way to pack, once: `python write_pack.py NAME DATA OUT SAMPLES WORKERS`, in the environment that has its package.

Prints one JSON object: {"seconds": until all is on the disk, "returned": until the package said that it is done,
"version": its}, or {"missing": why the package cannot be imported}. What was written is read back and compared, after
the time was taken.
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import environment
from write_cifar import Cifar
from write_packers import PACKERS, Packer

FEW = 200  # packed beforehand: importing a package takes seconds, and is not what is measured


def to_disk(directory: Path) -> None:
    """All of a directory, its names too."""
    for path in (directory, *directory.rglob("*")):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def timed(packer: Packer, data: Cifar, out: Path, workers: int) -> dict[str, float]:
    start = time.perf_counter()
    packer.pack(data, str(out), workers)
    returned = time.perf_counter() - start
    to_disk(out)
    return {"returned": returned, "seconds": time.perf_counter() - start}


def pack(name: str, directory: Path, out: Path, samples: int, workers: int) -> dict[str, Any]:
    packer = PACKERS[name]
    try:
        few = Cifar(directory, min(samples, FEW))
        packer.pack(few, str(out / "few"), workers)
    except ImportError as error:
        return {"missing": f"{type(error).__name__}: {error}"}
    few.check(name, packer.samples(str(out / "few")))
    data = Cifar(directory, samples)
    taken = timed(packer, data, out / "all", workers)
    data.check(name, packer.samples(str(out / "all")))
    return {**taken, "version": environment.versions(packer.package)[packer.package]}


if __name__ == "__main__":
    name, directory, out, samples, workers = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):  # some packages print
        found = pack(name, Path(directory), Path(out), int(samples), int(workers))
    print(json.dumps(found))
