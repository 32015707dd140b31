"""Times until the first answer: importing the package, `info` of many shards, the first page of `view`."""

import importlib
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import workloads
from command_runs import COMMAND, checked, expect, run, timed_process
from harness import Contestant, Measurement, WrongAnswerError, measure
from loader_start import made as made_file
from safety_ways import not_durable

from ffrecord import DatasetWriter

CLI_TESTS = Path(__file__).resolve().parents[1] / "tests" / "cli"
FIRST = 48  # samples of the first page, about
SHOWN = "document.querySelectorAll('.cell:not(.waiting)').length > 3"
# The common cost of every answer: Python itself, and NumPy, which all commands that read a dataset need.
FLOORS = {"Python alone": "pass", "Python and numpy": "import numpy"}
LOADED = "import ffrecord, sys; assert not {'torch', 'numpy'} & set(sys.modules); assert ffrecord.__file__"


def contestant(name: str, take: Callable[[], float]) -> Contestant:
    return Contestant(name, take, checked(take))


def program(code: str) -> Callable[[], float]:
    """Return a `Contestant.run` of a Python program, from its start to its end."""

    def take() -> float:
        seconds, done = timed_process([sys.executable, "-c", code])
        if done.returncode:
            raise WrongAnswerError(done.stderr)
        return seconds

    return take


def floors(*names: str) -> list[Contestant]:
    return [contestant(name, program(FLOORS[name])) for name in names]


def measurements(work: workloads.Commands, contestants: list[Contestant], rounds: int) -> list[Measurement]:
    return [
        Measurement(name, work, seconds, 0, 1, "hot", {"role": "floor" if name in FLOORS else "ours"})
        for name, seconds in measure(contestants, rounds).items()
    ]


def importing(work: workloads.Commands, rounds: int) -> list[Measurement]:
    return measurements(work, [contestant("import ffrecord", program(LOADED)), *floors("Python alone")], rounds)


@contextmanager
def made_dataset(directory: Path, work: workloads.Commands) -> Iterator[Path]:
    """Write shards of a few samples each."""
    path = directory / "shards"
    samples = [{"index": index, "check": ~index} for index in range(work.samples)]
    with not_durable():  # otherwise it would take minutes to create
        DatasetWriter(
            path, num_workers=0, samples_per_shard=work.samples // work.shards, progress=False
        ).from_indexed_dataset(samples)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def info(directory: Path, work: workloads.Commands, rounds: int) -> list[Measurement]:
    with made_dataset(directory, work) as path:

        def take() -> float:
            ran = run("info", path)
            expect(ran.facts, samples=work.samples, files=work.shards, wrong=[])
            return ran.seconds

        contestants = [contestant("ffrecord info", take), *floors("Python alone", "Python and numpy")]
        return measurements(work, contestants, rounds)


def view(directory: Path, work: workloads.Commands, rounds: int, *, browser: bool) -> list[Measurement]:
    with made_file(directory, work.samples) as path, chromium(browser) as window:
        contestants = [contestant("ffrecord view", lambda: viewed(path, work, asked))]
        if window is not None:
            contestants.append(
                contestant("ffrecord view, in Chromium", lambda: viewed(path, work, lambda url, _: seen(window, url)))
            )
        return measurements(work, [*contestants, *floors("Python alone", "Python and numpy")], rounds)


def viewed(path: Path, work: workloads.Commands, look: Callable[[str, workloads.Commands], None]) -> float:
    """Return the seconds from the start of the command until `look` has seen the first samples."""
    start = time.perf_counter()
    with subprocess.Popen([*COMMAND, "view", str(path), "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            look(json.loads(process.stdout.readline())["url"], work)
            return time.perf_counter() - start
        finally:
            process.terminate()  # Ctrl-C is ignored where this was started in the background


def asked(url: str, work: workloads.Commands) -> None:
    """Request the page, and then what it requests first."""
    page = get(url)
    if f'"count": {work.samples}'.encode() not in page:
        raise WrongAnswerError("the page has another number of samples")
    cells = json.loads(get(f"{url}samples?at={','.join(map(str, range(FIRST)))}"))
    found = [dict(cell["fields"]) for cell in cells]
    if found != [{"index": str(index), "check": str(~index)} for index in range(FIRST)]:
        raise WrongAnswerError(f"the first samples are {found[:2]} …")


def get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        return bytes(answer.read())


@contextmanager
def chromium(wanted: bool) -> Iterator[Any]:
    """Return a browser that waits for a page, driven as in the tests; None without one."""
    sys.path.insert(0, str(CLI_TESTS))
    module = importlib.import_module("chromium") if wanted else None
    if module is None or module.PATH is None:
        print("Chromium: not measured", flush=True)
        yield None
        return
    with tempfile.TemporaryDirectory() as profile:
        window = module.Chromium(Path(profile))
        window.size(1000, 700)
        try:
            yield window
        finally:
            with suppress(Exception):
                window.close()


def seen(window: Any, url: str) -> None:
    window.go(url)
    window.until(SHOWN)
