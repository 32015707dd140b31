"""Contestants in their own processes, which wait while another one runs."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

from harness import Contestant, Measurement, WrongAnswerError, take_turns
from loader_parts import of_work
from loader_ways import Way
from waits import Waits

LABEL = 8  # bytes; of samples that Python makes, nothing else is counted
SECONDS = 600  # time limit for an answer of a contestant: some compile for a minute
PROGRAM = Path(__file__).with_name("loader_host.py")


class ContestantFailedError(Exception):
    """The error that a contestant failed or did not answer."""


class Host:
    """One contestant, opened and compared with the packed samples.

    Attributes:
        missing: reason why its package cannot be imported; "" if it can.
        version: version of its package.
    """

    def __init__(self, name: str, python: str, directory: Path, work: Any) -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # closed by `close`
        self.process = subprocess.Popen(
            [python, str(PROGRAM), name, str(directory), as_line(work)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=directory,
        )
        try:
            found = self._answer()
        except BaseException:
            self.close()
            raise
        self.missing, self.version = found.get("missing", ""), found.get("version", "")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        timer = Timer(SECONDS, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        if not line:
            self.errors.seek(0)
            said = self.errors.read()
            kind = WrongAnswerError if "WrongAnswerError" in said else ContestantFailedError
            raise kind(f"{self.name}: {said[-3000:]}")
        return dict(json.loads(line))

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return self._answer()

    def reopen(self, work: Any) -> None:
        """Take another workload of the same part in the same process."""
        found = self._ask(as_line(work))
        self.missing, self.version = found.get("missing", ""), found.get("version", "")

    def run(self) -> dict[str, Any]:
        """Run one epoch."""
        return self._ask("run")

    def close(self) -> None:
        """End the process: it ends when its input is closed."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def as_line(work: Any) -> str:
    return json.dumps({"kind": type(work).__name__, **asdict(work)})


@contextmanager
def hosted(name: str, python: str, directory: Path, work: Any) -> Iterator[Host]:
    host = Host(name, python, directory, work)
    try:
        yield host
    finally:
        host.close()


@dataclass
class Hosts:
    """The contestants of a part, side by side.

    Attributes:
        directory: directory of the data.
        peers: Python that has the packages of others.
        lenient: leave out peers that fail, and go on; else they end the benchmark.
        missing: reasons why some cannot be imported or failed, and are not measured.
        versions: versions of the packages that can be imported.
    """

    directory: Path
    peers: Path
    lenient: bool = False
    missing: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    def measure(self, work: Any, size: int, count: int, rounds: int) -> list[Measurement]:
        """Return each epoch's seconds; the number of samples and the sum of the labels, [0, count), are compared
        each time.
        """
        with ExitStack() as stack:
            ways, contestants = {}, []
            for name, way in of_work(work).ways.items():
                try:
                    host = stack.enter_context(hosted(name, self._python(way), self.directory, work))
                except ContestantFailedError as error:
                    if not self.lenient or not way.foreign:
                        raise
                    self._leave_out(name, way, str(error).strip().splitlines()[-1])
                    continue
                if self._usable(name, way, host):
                    ways[name] = way
                    contestants.append(contestant(host, count))
            taken = take_turns(contestants, rounds)
        return [
            measurement(ways[contestant.name], work, contestant, taken[contestant.name], size, count)
            for contestant in contestants
        ]

    def measure_each(self, asked: Iterable[tuple[Any, Sequence[int]]], rounds: int) -> Iterator[list[Measurement]]:
        """Yield the measurements of each workload. Contestants keep their processes, which take long to start.

        Args:
            asked: workloads of one part, with the same contestants, each with the labels of an epoch.
            rounds: number of rounds.
        """
        with ExitStack() as stack:
            hosts: dict[str, Host] = {}
            for work, labels in asked:
                ways = of_work(work).ways
                for name, way in ways.items():
                    if name in hosts:
                        hosts[name].reopen(work)
                    else:
                        hosts[name] = stack.enter_context(hosted(name, self._python(way), self.directory, work))
                if missing := next((host.missing for host in hosts.values() if host.missing), ""):
                    self.missing[work.way] = missing
                    print(f"{work.way}: not measured, {missing}", flush=True)
                    continue
                count, size = len(labels), len(labels) * LABEL
                contestants = [contestant(host, count, sum(labels)) for host in hosts.values()]
                taken = take_turns(contestants, rounds)
                yield [measurement(ways[each.name], work, each, taken[each.name], size, count) for each in contestants]

    def _python(self, way: Way) -> str:
        return str(self.peers) if way.foreign else sys.executable

    def _leave_out(self, name: str, way: Way, reason: str) -> None:
        self.missing[name] = reason
        print(f"{name}: not measured, {way.package}: {reason}", flush=True)

    def _usable(self, name: str, way: Way, host: Host) -> bool:
        if host.missing:
            self._leave_out(name, way, host.missing)
            return False
        if way.foreign:
            self.versions[way.package] = host.version
        return True


def contestant(host: Host, count: int, total: int | None = None) -> Contestant:
    """Return a contestant whose epochs have `count` samples, and labels of the sum `total`: [0, count) unless told."""
    expected, waits = (count, count * (count - 1) // 2 if total is None else total), Waits(0)

    def run() -> float:
        found = host.run()
        if (found["count"], found["sum"]) != expected:
            raise WrongAnswerError(f"{host.name}: {found['count']} samples, sum {found['sum']}, expected {expected}")
        waits.add(found["waits"])
        return float(found["seconds"])

    return Contestant(host.name, run, lambda: None, waits)


def measurement(
    way: Way, work: Any, contestant: Contestant, seconds: list[float], size: int, count: int
) -> Measurement:
    details = {"role": way.role, "package": way.package, **contestant.details}
    return Measurement(contestant.name, work, seconds, size, count, "hot", details)
