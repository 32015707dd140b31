"""Programs that fetch the same ranges of a server and do nothing else: wrk, curl, and fsspec record by record."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import workloads
from harness import Contestant, WrongAnswerError
from remote_server import Nginx
from remote_ways import Data

WRK_SECONDS, CHECK_SECONDS = 4, 1
COMPARED = 100  # records of each rival that are compared byte by byte, at most
FSSPEC_RECORDS, SMOKE_FSSPEC_RECORDS = 100, 5  # in one turn: each takes a latency
HEADERS = 1024  # largest headers of an answer, bytes

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
# Inspects each answer; this takes time, so use it only to compare answers.
LOOK = """
local left, bodies = {left}, nil
response = function(status, headers, body)
    if status ~= 206 or #body ~= {size} then
        io.stderr:write("an answer of status " .. status .. " with " .. #body .. " bytes, expected 206 with {size}\\n")
        os.exit(1)
    end
    if left > 0 then
        bodies = bodies or io.open("{bodies}", "wb")
        bodies:write(body)
        bodies:flush()
        left = left - 1
    end
end
"""


class Fetching(NamedTuple):
    """The settings for rivals.

    Attributes:
        server: server to request from.
        data: dataset of the records.
        work: order, and number of requests in flight.
        directory: directory for scripts and answers.
        smoke: whether numbers mean nothing.
    """

    server: Nginx
    data: Data
    work: workloads.RemoteReads
    directory: Path
    smoke: bool

    @property
    def compared(self) -> int:
        """Number of records to compare: requests end in any order, but the second epoch begins after the first one."""
        return min(COMPARED, self.work.samples - self.work.requests)


def rivals(asked: Fetching) -> list[Contestant]:
    """Return the installed rivals."""
    return [make(asked) for name, make in RIVALS.items() if name not in absent()]


def absent() -> dict[str, str]:
    """Return the missing rivals, with reasons."""
    programs = [name for name in ("wrk", "curl") if shutil.which(name) is None]
    packages = [name for name in ("fsspec", "aiohttp") if find_spec(name) is None]
    return {**dict.fromkeys(programs, "not installed"), **({"fsspec": "not installed"} if packages else {})}


def said(name: str, command: Sequence[str]) -> str:
    """Return the output of a command.

    Raises:
        WrongAnswerError: it failed.
    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WrongAnswerError(f"{name}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def wrk(asked: Fetching) -> Contestant:
    """Run wrk for some seconds, over the epoch's order again and again."""
    data, work, name = asked.data, asked.work, f"wrk, {asked.work.requests} connections"
    spans = [data.spans[index] for index in data.order]
    lines = ",\n".join(f'{{ "/{data.name}/{file}", "{first}-{last}" }}' for file, first, last in spans)
    script, bodies = (asked.directory / f"wrk-{work.requests}.{kind}" for kind in ("lua", "bodies"))
    plain = SCRIPT.format(spans=lines)

    def fetch(text: str, seconds: int) -> float:
        script.write_text(text)
        command = ["wrk", "-t1", f"-c{work.requests}", f"-d{seconds}s", "-s", str(script), asked.server.url]
        return seconds_of_epoch(name, said(name, command), work)

    def check() -> None:
        fetch(plain + LOOK.format(left=asked.compared, size=work.mean, bodies=bodies), CHECK_SECONDS)
        found = bodies.read_bytes()
        bodies.unlink()
        compare(name, [found[at : at + work.mean] for at in range(0, len(found), work.mean)], asked)

    return Contestant(name, lambda: fetch(plain, CHECK_SECONDS if asked.smoke else WRK_SECONDS), check)


def seconds_of_epoch(name: str, printed: str, work: workloads.RemoteReads) -> float:
    """Return the time for all records by wrk's count of whole answers.

    Its count of bytes is not used: it includes headers, and parts of answers that the end cut off.
    """
    found = re.search(r"answers (\d+) errors (\d+) microseconds (\d+) bytes (\d+)", printed)
    answers, errors, microseconds, came = map(int, found.groups()) if found else (0, 0, 0, 0)
    most = (answers + work.requests) * (work.mean + HEADERS)
    if not answers or errors or not answers * work.mean <= came <= most:
        raise WrongAnswerError(f"{name}: {printed.strip().splitlines()[-1:]}")
    return microseconds / 1e6 / answers * work.samples


def compare(name: str, found: Sequence[bytes], asked: Fetching) -> None:
    """Compare answers, in any order."""
    if len(found) != asked.compared or len(set(found)) != len(found):
        raise WrongAnswerError(f"{name}: {len(set(found))} different records, expected {asked.compared}")
    if not set(found) <= set(asked.data.records):
        raise WrongAnswerError(f"{name}: a record has other bytes")


def curl(asked: Fetching) -> Contestant:
    """Fetch all records with one curl command; its start counts."""
    name = f"curl, {asked.work.requests} in parallel"
    answers = asked.directory / f"curl-{asked.work.requests}"
    everything = curl_command(asked, asked.data.order.tolist(), lambda index: "/dev/null")
    some = asked.data.order[: asked.compared].tolist()

    def fetch(command: Sequence[str], count: int) -> float:
        start = time.perf_counter()
        answered = said(name, command).splitlines()
        seconds = time.perf_counter() - start
        if answered != [right := f"206 {asked.work.mean}"] * count:
            raise WrongAnswerError(f"{name}: {len(answered)} answers {set(answered)}, expected {count} of {right}")
        return seconds

    def check() -> None:
        answers.mkdir()
        fetch(curl_command(asked, some, lambda index: str(answers / str(index))), len(some))
        for index in some:
            if (answers / str(index)).read_bytes() != asked.data.records[index]:
                raise WrongAnswerError(f"{name}: record {index} has other bytes")
        shutil.rmtree(answers)

    return Contestant(name, lambda: fetch(everything, asked.work.samples), check)


def curl_command(asked: Fetching, indices: Sequence[int], output: Callable[[int], str]) -> list[str]:
    """Return a command that fetches these records, each to its own output file."""
    spans, root = asked.data.spans, f"{asked.server.url}/{asked.data.name}"
    blocks = [
        f'url = "{root}/{spans[i][0]}"\nrange = "{spans[i][1]}-{spans[i][2]}"\noutput = "{output(i)}"\n'
        'write-out = "%{http_code} %{size_download}\\n"\n'
        for i in indices
    ]
    config = asked.directory / f"curl-{asked.work.requests}-{len(indices)}.config"
    config.write_text("silent\nshow-error\nfail-early\n" + "next\n".join(blocks))
    options = ["--parallel-immediate", "--parallel-max", str(asked.work.requests), "--config", str(config)]
    return ["curl", "--parallel", *options]


def fsspec_one_by_one(asked: Fetching) -> Contestant:
    """Fetch each record by a call of fsspec's HTTP file system, as a `__getitem__` would."""
    import fsspec

    name, data, files = "fsspec, record by record", asked.data, fsspec.filesystem("http")
    some = data.order[: SMOKE_FSSPEC_RECORDS if asked.smoke else FSSPEC_RECORDS].tolist()

    def fetched(index: int) -> bytes:
        file, first, last = data.spans[index]
        return bytes(files.cat_file(f"{asked.server.url}/{data.name}/{file}", start=first, end=last + 1))

    def run() -> float:
        start = time.perf_counter()
        for index in some:
            fetched(index)
        return (time.perf_counter() - start) / len(some) * asked.work.samples

    def check() -> None:
        for index in some:
            if fetched(index) != data.records[index]:
                raise WrongAnswerError(f"{name}: record {index} has other bytes")

    return Contestant(name, run, check)


RIVALS = {"wrk": wrk, "curl": curl, "fsspec": fsspec_one_by_one}
