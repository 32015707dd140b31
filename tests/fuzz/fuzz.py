"""Fuzz the parsers, led by what their code does: `python3 run.py fuzz [TARGET ...] [--seconds S] [--executions N]`."""

import argparse
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from fuzz import building, corpus  # noqa: E402  # found by the line above
from fuzz.targets import SCRATCH, Scratch, Target, target_of, targets  # noqa: E402

PAGE = 4096
WORDS = struct.Struct("<8Q")  # as `_fuzzer` writes them: what it is at
HANGS = 20.0  # s that one input may take, before the process that runs it is ended
ENDS_MOST = 20  # processes of one target that may die
FINDINGS_MOST = 50  # of one target, all different
KEPT_MOST = 24 << 10  # bytes of a target's kept inputs, packed


@dataclass
class Outcome:
    """What became of one target; `failure`: why its processes could not even begin."""

    target: str
    executions: int = 0
    seconds: float = 0.0
    edges: int = 0
    corpus: int = 0
    slowest: float = 0.0
    largest: int = 0
    findings: list[Path] = field(default_factory=list)
    failure: str = ""

    def add(self, words: tuple[int, ...], seconds: float) -> None:
        """Count what one process did."""
        executions, _, _, edges, inputs, slowest, largest, _ = words
        self.executions += executions
        self.seconds += seconds
        self.edges, self.corpus = max(self.edges, edges), max(self.corpus, inputs)
        self.slowest, self.largest = max(self.slowest, slowest / 1e9), max(self.largest, largest)

    @property
    def speed(self) -> float:
        """Executions in a second."""
        return self.executions / self.seconds if self.seconds else 0.0


class FuzzerError(Exception):
    """A process ended otherwise than by an input."""


class Session:
    """One run of the fuzzer: what is built, where findings go.

    Args:
        out: folder for new inputs and findings.
        counted: build the compiled parsers with counters; otherwise only Python code tells where it comes by.
        sanitized: with gcc's address and undefined-behaviour sanitizers.
        seed: of all random numbers.
    """

    def __init__(self, out: Path, *, counted: bool = True, sanitized: bool = False, seed: int = 0) -> None:
        self.out, self.sanitized, self.seed = out, sanitized, seed
        self.hangs, self.ends_most, self.enough = HANGS, ENDS_MOST, FINDINGS_MOST
        self._fuzzer = building.fuzzer(sanitized)
        self._tree = building.package(sanitized) if counted or sanitized else None
        self._seeds = 0
        self._lock = threading.Lock()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        if self._tree is not None:
            shutil.rmtree(self._tree, ignore_errors=True)

    def run(self, outcome: Outcome, way: str, executions: int = 0, seconds: float = 0.0) -> Outcome:
        """Have processes do that with a target, another one after each that died."""
        target = target_of(outcome.target)
        left, ends = executions, 0
        while True:
            try:
                words, spent, ended = self._process(target, way, left, seconds)
            except FuzzerError as error:
                outcome.failure = str(error)
                break
            outcome.add(words, spent)
            left, seconds = left - words[0], seconds - spent
            if ended is None or ends == self.ends_most:
                break
            ends += 1
            if way != "fuzz" or left <= 0 or seconds <= 0:
                break
        outcome.findings = sorted((self.out / "findings" / target.name).glob("*.bin"))
        return outcome

    def _process(
        self, target: Target, way: str, executions: int, seconds: float
    ) -> tuple[tuple[int, ...], float, str | None]:
        with self._lock:
            self._seeds += 1
            seed = 1000 * self.seed + self._seeds
        with Scratch() as scratch, tempfile.NamedTemporaryFile() as state, tempfile.TemporaryFile() as said:
            os.ftruncate(state.fileno(), PAGE + target.size_most)
            job = {"target": target.name, "state": state.name, "out": str(self.out), "executions": executions}
            job |= {"seconds": seconds, "seed": seed, "way": way, "enough": self.enough, "limited": not self.sanitized}
            command = [sys.executable, "-X", "faulthandler", "-m", "fuzz.child", json.dumps(job)]
            child = subprocess.Popen(
                command, cwd=TESTS, env=self._environment(scratch.folder), stdout=said, stderr=said
            )
            hung, usage = _watch(child, state.fileno(), self.hangs)
            status = child.returncode
            words = WORDS.unpack(os.pread(state.fileno(), WORDS.size, 0))
            ended = None
            if hung or status:
                said.seek(0)
                text = said.read().decode(errors="replace")[-20_000:]
                if not words[2]:
                    raise FuzzerError(f"{target.name}: the fuzzer itself failed, status {status}:\n{text}")
                ended = f"no end within {self.hangs} s" if hung else f"the process ended with status {status}"
                data = os.pread(state.fileno(), words[1], PAGE + target.size_most - words[1])
                place = corpus.save_one(self.out / "findings" / target.name, data)
                place.with_suffix(".txt").write_text(f"{ended}\n{text}")
        return words, usage, ended

    def _environment(self, scratch: Path) -> dict[str, str]:
        paths = [self._fuzzer, *([self._tree] if self._tree else []), TESTS, TESTS.parent]
        preload = [str(self._fuzzer / "preload.so")]
        more = {}
        if self.sanitized:
            compiler = os.environ.get("CC", "gcc")
            library = subprocess.run(
                [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
            )
            preload.insert(0, library.stdout.strip())
            options = "detect_leaks=0:allocator_may_return_null=1:abort_on_error=1:max_allocation_size_mb=512"
            more = {
                "ASAN_OPTIONS": options,
                "PYTHONMALLOC": "malloc",
                "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
            }
        return {
            **os.environ,
            **more,
            "LD_PRELOAD": " ".join(preload),
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            SCRATCH: str(scratch),
            "TMPDIR": str(scratch),
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        }


def _watch(child: "subprocess.Popen[bytes]", state: int, hangs: float) -> tuple[bool, float]:
    """Wait for a process: whether it had to be ended, because of one input; and seconds of a CPU that it took."""
    hung = False
    try:
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                child.returncode = os.waitstatus_to_exitcode(status)
                return hung, usage.ru_utime + usage.ru_stime
            started = WORDS.unpack(os.pread(state, WORDS.size, 0))[2]
            if started and time.monotonic_ns() - started > hangs * 1e9:
                hung = True
                child.kill()
            time.sleep(0.05)
    except BaseException:
        child.kill()
        child.wait()
        raise


def minimise(session: Session, name: str) -> int:
    """Keep the inputs that reach what no smaller one does, as many as there is room for; bytes of their archive."""
    folder = session.out / "minimal" / name
    shutil.rmtree(folder, ignore_errors=True)
    session.run(Outcome(name), "minimise")
    inputs = sorted(corpus.found(folder), key=len)
    size = corpus.store(name, inputs)
    while size > KEPT_MOST:
        inputs = inputs[: int(len(inputs) * 0.9)]
        size = corpus.store(name, inputs)
    return size


def fuzz(session: Session, names: Iterable[str], seconds: float, executions: int, jobs: int) -> list[Outcome]:
    """Give each target so many seconds of a CPU; then the fastest ones more, until all have had `executions`."""
    outcomes = [Outcome(name) for name in names]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda each: session.run(each, "fuzz", 1 << 60, seconds), outcomes))
        while (left := executions - sum(each.executions for each in outcomes)) > 0:
            fastest = sorted(outcomes, key=lambda each: each.speed, reverse=True)[: max(jobs, len(outcomes) // 4)]
            share = -(-left // len(fastest))
            list(pool.map(lambda each, share=share: session.run(each, "fuzz", share, 60.0), fastest))
            if any(each.findings or each.failure for each in outcomes):
                break
    return outcomes


def table(outcomes: list[Outcome]) -> str:
    """The outcomes, for people."""
    rows = [("target", "executions", "per second", "edges", "corpus", "slowest ms", "largest MiB", "findings")]
    for each in outcomes:
        numbers = (each.executions, round(each.speed), each.edges, each.corpus)
        shown = (f"{each.slowest * 1e3:.0f}", f"{each.largest / 2**20:.1f}", str(len(each.findings)))
        rows.append((each.target, *(f"{number:,}" for number in numbers), *shown))
    total = sum(each.executions for each in outcomes)
    rows.append(("all", f"{total:,}", *[""] * 5, str(sum(len(each.findings) for each in outcomes))))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join(lines)


def main() -> int:
    """Parse the command line, fuzz, print the table; 1 if something was found."""
    known = targets()
    parser = argparse.ArgumentParser(prog="run.py fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of {', '.join(known)}; default: all")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a CPU, for each target; default: 10")
    parser.add_argument("--executions", type=int, default=0, help="of all targets; the fastest get what is left")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--replay", action="store_true", help="run what is kept, and nothing else")
    parser.add_argument("--plain", action="store_true", help="compiled modules as they are, without counters")
    parser.add_argument(
        "--sanitized", action="store_true", help="with gcc's address and undefined-behaviour sanitizers"
    )
    parser.add_argument("--keep", action="store_true", help="keep new inputs in tests/fuzz/corpus, as few as do")
    parser.add_argument("--figures", type=Path, help="append the number of executions to this file")
    parser.add_argument("--out", type=Path, help="where findings go; default: a new folder")
    given = parser.parse_args()
    unknown = [name for name in given.targets if name not in known]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(known)}")
    names = given.targets or list(known)
    out = given.out or Path(tempfile.mkdtemp(prefix="ffrecord-fuzz-"))
    began = time.monotonic()
    with Session(out.resolve(), counted=not given.plain, sanitized=given.sanitized, seed=given.seed) as session:
        if given.replay:
            with ThreadPoolExecutor(given.jobs) as pool:
                outcomes = list(pool.map(lambda name: session.run(Outcome(name), "replay"), names))
        else:
            outcomes = fuzz(session, names, given.seconds, given.executions, given.jobs)
        if given.keep:
            with ThreadPoolExecutor(given.jobs) as pool:
                print(f"{sum(pool.map(lambda name: minimise(session, name), names)):,} bytes of inputs are kept")
    print(table(outcomes))
    findings = [path for each in outcomes for path in each.findings]
    for path in findings:
        text = path.with_suffix(".txt").read_text().strip().splitlines()
        print(f"{path.parent.name}: {path}: {text[-1] if text else ''}")
    failures = [each.failure for each in outcomes if each.failure]
    print(*failures, sep="\n", end="\n" if failures else "")
    if given.figures and not findings and not failures:
        append_figures(given.figures, sum(each.executions for each in outcomes), time.monotonic() - began)
    return 1 if findings or failures else 0


def append_figures(path: Path, executions: int, seconds: float) -> None:
    """One line, as the tests of the guarantees write it."""
    sys.path.insert(0, str(TESTS / "reliability"))
    import figures

    counted = figures.Counted()
    counted.add("fuzz executions", executions)
    counted.append(path, "run.py fuzz", seconds)


if __name__ == "__main__":
    sys.exit(main())
