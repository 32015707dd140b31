"""Ways to have records of a server: readers of ours, and what only fetches the same ranges."""

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import workloads
from harness import Contestant, WrongAnswerError, timed
from remote_server import Nginx

from ffrecord import FileReader

WRK_SECONDS, SMOKE_WRK_SECONDS = 4, 1
FSSPEC_RECORDS, SMOKE_FSSPEC_RECORDS = 100, 5  # in a turn: it takes a latency for each
AHEAD = 4  # batches

SCRIPT = """
local spans = {{ {spans} }}
local at = 0
request = function()
    at = at % #spans + 1
    return wrk.format("GET", spans[at][1], {{ ["Range"] = "bytes=" .. spans[at][2] }})
end
done = function(summary, latency, requests)
    io.write(string.format("answers %d errors %d microseconds %d bytes %d\\n", summary.requests, summary.errors.status
        + summary.errors.read + summary.errors.connect + summary.errors.timeout, summary.duration, summary.bytes))
end
"""


class Data(NamedTuple):
    """A dataset and what is to be read of it.

    Attributes:
        name: of its directory below the root that is served.
        local: the same, on this machine.
        records: all of them, in order.
        spans: (name of the file, first byte, last byte) of each.
        order: of an epoch.
    """

    name: str
    local: Path
    records: Sequence[bytes]
    spans: list[tuple[str, int, int]]
    order: np.ndarray

    def batches(self, size: int) -> list[np.ndarray]:
        """An epoch, in batches."""
        return [self.order[start : start + size] for start in range(0, len(self.order), size)]


def epoch(reader: FileReader, data: Data, batch: int) -> int:
    """Read it; the bytes that came."""
    return sum(len(array) for arrays in reader.iter_batches(data.batches(batch), AHEAD) for array in arrays)


def check_epoch(name: str, reader: FileReader, data: Data, batch: int) -> None:
    """Compare every byte of one."""
    batches = data.batches(batch)
    for indices, arrays in zip(batches, reader.iter_batches(batches, AHEAD), strict=True):
        for index, array in zip(indices, arrays, strict=True):
            if array.tobytes() != data.records[index]:
                raise WrongAnswerError(f"{name}: record {index} is another")


def reading(name: str, reader: FileReader, data: Data, work: workloads.RemoteReads) -> Contestant:
    """An epoch by a reader of ours."""
    return Contestant(
        name,
        timed(lambda: epoch(reader, data, work.batch)),
        lambda: check_epoch(name, reader, data, work.batch),
    )


def wrk(server: Nginx, data: Data, work: workloads.RemoteReads, directory: Path, *, smoke: bool) -> Contestant | None:
    """The same ranges, by a program that does nothing with them."""
    if shutil.which("wrk") is None:
        return None
    spans = [data.spans[index] for index in data.order]
    lines = ",\n".join(f'{{ "/{data.name}/{file}", "{first}-{last}" }}' for file, first, last in spans)
    script = directory / f"wrk-{work.requests}.lua"
    script.write_text(SCRIPT.format(spans=lines))
    seconds = SMOKE_WRK_SECONDS if smoke else WRK_SECONDS
    command = ["wrk", "-t1", f"-c{work.requests}", f"-d{seconds}s", "-s", str(script), server.url]

    def run() -> float:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = re.search(r"answers (\d+) errors (\d+) microseconds (\d+) bytes (\d+)", said)
        if found is None or int(found[2]) or int(found[4]) < int(found[1]) * work.mean:
            raise WrongAnswerError(f"wrk: {said}")
        return int(found[3]) / 1e6 / int(found[1]) * work.samples

    return Contestant(f"wrk, {work.requests} connections", run, lambda: None)


def curl(server: Nginx, data: Data, work: workloads.RemoteReads, directory: Path) -> Contestant | None:
    """The same, with one command for all; it takes its time to begin."""
    if shutil.which("curl") is None:
        return None
    config = directory / f"curl-{work.requests}"
    blocks = [
        f'url = "{server.url}/{data.name}/{data.spans[i][0]}"\nrange = "{data.spans[i][1]}-{data.spans[i][2]}"\n'
        'output = "/dev/null"\nwrite-out = "%{http_code} %{size_download}\\n"\n'
        for i in data.order
    ]
    config.write_text("silent\nshow-error\nfail-early\n" + "next\n".join(blocks))
    command = ["curl", "--parallel", "--parallel-max", str(work.requests), "--config", str(config)]

    def run() -> float:
        start = time.perf_counter()
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds = time.perf_counter() - start
        if said.split() != ["206", str(work.mean)] * work.samples:
            raise WrongAnswerError(f"curl: {said[:200]}")
        return seconds

    return Contestant(f"curl, {work.requests} in parallel", run, lambda: None)


def fsspec_one_by_one(server: Nginx, data: Data, work: workloads.RemoteReads, *, smoke: bool) -> Contestant | None:
    """Each record by a call of fsspec's HTTP file system, as a `__getitem__` would."""
    if find_spec("fsspec") is None or find_spec("aiohttp") is None:
        return None
    import fsspec

    files = fsspec.filesystem("http")
    some = data.order[: SMOKE_FSSPEC_RECORDS if smoke else FSSPEC_RECORDS].tolist()

    def record(index: int) -> bytes:
        file, first, last = data.spans[index]
        return files.cat_file(f"{server.url}/{data.name}/{file}", start=first, end=last + 1)

    def run() -> float:
        start = time.perf_counter()
        for index in some:
            record(index)
        return (time.perf_counter() - start) / len(some) * work.samples

    def check() -> None:
        for index in some:
            if record(index) != data.records[index]:
                raise WrongAnswerError(f"fsspec: record {index} is another")

    return Contestant("fsspec, record by record", run, check)
