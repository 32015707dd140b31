"""One run of one way to pack: `python write_pack.py NAME DATA OUT SAMPLES WORKERS [BEGUN]`, in its package's
environment.

Prints one JSON object: {"seconds": until all is on the disk, "returned": until the package returned, "cpu": seconds of
CPU until then, of all its processes, "version": its version}, or {"missing": reason why the package cannot be
imported}. The output is read back and compared after the time was taken. BEGUN is the value of time.monotonic() at the
start of this process; with it the time counts from then on, like that of a script with its imports.
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

FEW = 200  # packed beforehand: importing a package takes seconds, and is not to be measured


def to_disk(directory: Path) -> None:
    """Sync a whole directory, with its names."""
    for path in (directory, *directory.rglob("*")):
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def cpu_seconds() -> float:
    """Return the seconds of CPU of this process, and of its children that have ended."""
    return sum(os.times()[:4])


def timed(packer: Packer, data: Cifar, out: Path, workers: int, begun: float | None) -> dict[str, float]:
    start, used = time.monotonic() if begun is None else begun, cpu_seconds()
    packer.pack(data, str(out), workers)
    returned, used = time.monotonic() - start, cpu_seconds() - used
    to_disk(out)
    return {"returned": returned, "cpu": used, "seconds": time.monotonic() - start}


def pack(name: str, directory: Path, out: Path, samples: int, workers: int, begun: float | None) -> dict[str, Any]:
    packer = PACKERS[name]
    if begun is None:
        few = Cifar(directory, min(samples, FEW))
        try:
            packer.pack(few, str(out / "few"), workers)
        except ImportError as error:
            return {"missing": f"{type(error).__name__}: {error}"}
        few.check(name, packer.samples(str(out / "few")))
    data = Cifar(directory, samples)
    taken = timed(packer, data, out / "all", workers, begun)
    data.check(name, packer.samples(str(out / "all")))
    return {**taken, "version": environment.versions(packer.package)[packer.package]}


if __name__ == "__main__":
    name, directory, out, samples, workers, *begun = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):  # some packages print
        given = float(begun[0]) if begun else None
        found = pack(name, Path(directory), Path(out), int(samples), int(workers), given)
    print(json.dumps(found))
