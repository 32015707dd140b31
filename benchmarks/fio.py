"""Speed of the storage: fio, which takes turns with the other contestants."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

SECTOR = 512


@dataclass(frozen=True)
class Job:
    """One kind of read, with O_DIRECT, by Linux AIO.

    Attributes:
        name: name in tables and results.
        size: size of a read, bytes.
        depth: number of reads in flight.
        pattern: fio's: "randread" or "read".
        batch: None to keep `depth` reads in flight; else the reads that are begun together, when one of those before is
            left.
        place: the offsets are multiples of this number of bytes; 0 for the size.
    """

    name: str
    size: int
    depth: int = 32
    pattern: str = "randread"
    batch: int | None = None
    place: int = 0

    def run(self, path: Path, seconds: float) -> float:
        """Return the seconds for one read, measured over `seconds` of reading; the content of the file does not
        matter.
        """
        command = ["fio", f"--name={self.pattern}", f"--filename={escaped(path.resolve())}", f"--rw={self.pattern}"]
        command += [f"--bs={self.size}", f"--iodepth={self.depth}", f"--runtime={round(1000 * seconds)}ms"]
        command += ["--ioengine=libaio", "--direct=1", "--readonly", "--time_based", "--randrepeat=0"]
        if self.batch:
            command += ["--iodepth_low=1", f"--iodepth_batch_submit={self.batch}"]
        if self.place:
            command += [f"--blockalign={self.place}"]
        result = subprocess.run(
            [*command, "--output-format=json"], capture_output=True, text=True, check=True, cwd=path.parent
        )
        read = json.loads(result.stdout)["jobs"][0]["read"]
        return float(read["runtime"]) / 1000 / int(read["total_ios"])


def escaped(path: Path) -> str:
    """Escape colons, which fio takes for separators."""
    return str(path).replace("\\", "\\\\").replace(":", "\\:")


def installed() -> bool:
    return shutil.which("fio") is not None


def version() -> str:
    if not installed():
        return "not installed"
    return subprocess.run(["fio", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def random_job(mean: int) -> Job:
    """Return the job for the size class of records of about `mean` bytes."""
    size, name = next(
        (size, name) for size, name in ((4096, "4k"), (131072, "128k"), (1048576, "1m")) if mean <= size or name == "1m"
    )
    return Job(f"fio {name}", size)


def batched_job(mean: int, batch: int) -> Job:
    """Return the job that reads as a batch of records does: begun together, from any sector to any other."""
    size = -(-(mean + SECTOR) // SECTOR) * SECTOR  # at both ends of a record, half a sector more on average
    return Job(f"fio, batches of {batch}", size, batch, batch=batch, place=SECTOR)


SEQUENTIAL = Job("fio sequential 1m", 1 << 20, 8, "read")
