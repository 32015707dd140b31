"""One target in one process: `python -m fuzz.child '{"target": ..., ...}'`, started by `fuzz.py`."""

import json
import logging
import os
import re
import resource
import sys
import tempfile
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz import corpus, instrument
from fuzz.targets import Scratch, Target, target_of

MEMORY = 512 << 20  # bytes, beyond what Python and numpy take
SLOW = 5 * 10**9  # ns
PIECE = 2.0  # s between two looks at what was found
PACKAGE = Path(instrument.__file__).resolve().parents[2] / "ffrecord"
UNDOCUMENTED = {"SampleIndexError", "StateError", "ArgumentTypeError", "ArgumentError"}


@dataclass
class Job:
    """What to do.

    Attributes:
        target: name.
        state: the file that tells the parent where this process is.
        out: folder for findings and for inputs that went new ways.
        executions, seconds: when to stop, at the first of both.
        seed: of the random numbers.
        way: "fuzz"; "replay", run the corpus only; "minimise", find the inputs that reach what smaller ones do not.
        enough: findings, after which it ends.
        limited: whether memory is; under a sanitizer it cannot be.
    """

    target: str
    state: str
    out: str
    executions: int
    seconds: float
    seed: int
    way: str
    enough: int
    limited: bool


class Known:
    """Tells findings from what may be, and from those that were there."""

    def __init__(self, target: Target) -> None:
        self._accepted = frozenset(target.accepted)
        self._seen: set[str] = set()

    def __call__(self, what: Any) -> bool:
        if isinstance(what, ImportError):
            return bool(what.name)
        if isinstance(what, BaseException) and type(what).__module__ == "ffrecord.errors":
            name = type(what).__name__
            if name in self._accepted or name not in UNDOCUMENTED:
                return True
        key = signature(what)
        new = key not in self._seen
        self._seen.add(key)
        return not new


def signature(what: Any) -> str:
    """The same for what most probably is the same."""
    if not isinstance(what, BaseException):
        return str(what).split(" ", 1)[1]
    frames = traceback.extract_tb(what.__traceback__)
    ours = [frame for frame in frames if "ffrecord" in frame.filename] or frames
    where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
    return f"{type(what).__name__} at {where}"


def main() -> int:
    """Do the job that is the only argument."""
    job = Job(**json.loads(sys.argv[1]))
    import _fuzzer as fuzzer  # built by `building`

    target = target_of(job.target)
    instrument.install(target.modules, fuzzer.place, fuzzer.same, fuzzer.different)
    warnings.simplefilter("error")
    logging.disable()
    # What old files without a checksum are opened with is a warning, and documented.
    warnings.filterwarnings("ignore", message=".*old version ffrecord.*")
    with Scratch() as scratch:
        return fuzz(job, target, fuzzer, scratch)


def fuzz(job: Job, target: Target, fuzzer: Any, scratch: Scratch) -> int:
    from ffrecord import FFRecordError

    run = target.prepare(scratch)
    with tempfile.TemporaryDirectory() as folder:
        seeds = [data[: target.size_most] for data in target.seeds(Path(folder))]
    out = Path(job.out)
    kept = [*corpus.load(target.name), *corpus.found(out / "corpus" / target.name)]
    inputs = [*seeds, *kept, *(data for _, data in corpus.crashes(target.name))]
    if job.limited:
        limit_memory()
    fd = os.open(job.state, os.O_RDWR)
    found = fuzzer.Fuzzer(
        run,
        (FFRecordError, OSError),
        Known(target),
        fd,
        target.size_most,
        (SLOW, target.memory_most),
        tokens_of(target),
        job.seed,
    )
    if job.way == "minimise":
        for data in (*seeds, *sorted(kept, key=len)):
            if found.add(data, roughly=False) and data not in seeds:
                corpus.save_one(out / "minimal" / target.name, data)
        return 0
    for data in inputs:
        found.add(data)
    save(found, out, target.name, [])
    if job.way == "replay":
        return 0
    if found.corpus < len(seeds):  # of compiled modules that do not count, nothing is new
        found.keep(inputs)
    left, seconds = job.executions, job.seconds
    while left > 0 and seconds > 0 and found.told < job.enough:
        before, began = found.executions, now()
        new = found.run(left, min(PIECE, seconds))
        left -= found.executions - before
        seconds -= now() - began
        save(found, out, target.name, new)
    return 0


def now() -> float:
    """This process's time on a CPU, s: the machine may have other things to do."""
    return sum(os.times()[:2])


def limit_memory() -> None:
    """What Python and numpy have taken, and MEMORY more."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            most = int(line.split()[1]) * 1024 + MEMORY
            resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def tokens_of(target: Target) -> list[bytes]:
    """What the target's code may look for."""
    ours = [name for name in target.modules if name.startswith("ffrecord.")]
    paths = [PACKAGE.parent / f"{name.replace('.', '/')}.py" for name in ours]
    compiled = [part for name in target.compiled for part in parts_of(PACKAGE / f"{name}.pyx")]
    return [*instrument.tokens(paths), *instrument.compiled_tokens(compiled)]


def parts_of(path: Path) -> list[Path]:
    """A compiled module's source, and the files that it includes."""
    return [path, *(path.with_name(name) for name in re.findall(r'^include "(.+)"', path.read_text(), re.MULTILINE))]


def save(found: Any, out: Path, name: str, new: list[bytes]) -> None:
    """Write new inputs and findings to files."""
    for data in new:
        corpus.save_one(out / "corpus" / name, data)
    for data, what in found.findings:
        place = corpus.save_one(out / "findings" / name, data)
        text = what if isinstance(what, str) else "".join(traceback.format_exception(what))
        place.with_suffix(".txt").write_text(text)
    found.findings = []


if __name__ == "__main__":
    sys.exit(main())
