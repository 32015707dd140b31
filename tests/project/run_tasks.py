"""The tasks of run.py: set up what one needs in .venv, then run it. Needs nothing but Python."""

import argparse
import csv
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import stat
import struct
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NamedTuple

from task_arguments import WrongArgumentError, asks_for_help, check, usage_of

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
STATE = VENV / "ready.json"
PART = STATE.with_suffix(".part")  # the next one, while it is written
LOG = VENV / "set-up.log"
CONSTRAINTS = ROOT / "constraints.txt"
SHARED = "_cython_shared"  # the compiled module that Cython makes without a source of ours
OLDEST, NEWEST = (3, 10), (3, 15)  # the versions of Python that are tested
STARTED = time.monotonic()

# Files of tests side by side, the longest first, as tests/conftest.py sorts them. One more at a time than there are
# CPUs: a third of the time the tests wait for the disk, for servers and for processes that they start.
CPUS = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
PARALLEL = ["-n", str(min(CPUS + 1, 4)), "--dist", "loadfile", "--no-loadscope-reorder"]


class Task(NamedTuple):
    """What a word after run.py does, and what has to be installed for it.

    Attributes:
        does: its line in the help.
        needs: names of extras and dependency groups in pyproject.toml. () for a task that needs only Python.
        package: whether the compiled package is needed, too.
        spare: whether the task goes on without a requirement that this Python cannot have. Tests skip what they lack.
    """

    does: str
    needs: tuple[str, ...]
    package: bool = True
    spare: bool = False


EXTRAS = (
    "torch", "image", "jpeg", "zstd", "snappy", "parquet", "huggingface", "xxhash", "fsspec", "remote", "plot", "ray",
)  # fmt: skip
TESTS = (*EXTRAS, "test", "digits", "photographs")
TASKS = {
    "digits": Task("pack scikit-learn's handwritten digits, train on them, save out/digits.png", ("torch", "digits")),
    "photographs": Task(
        "pack a folder of JPEG photographs, read random batches, save out/photographs.png",
        ("torch", "jpeg", "photographs"),
    ),
    "ddp": Task("train on the digits with 2 processes, go on with 1, then with 3", ("torch", "digits")),
    "test": Task("run the tests; --quick takes 1 to 3 minutes; other arguments are pytest's", TESTS, spare=True),
    "sanitize": Task("run the tests under the address and undefined behaviour sanitizers", TESTS, spare=True),
    "planted": Task("plant mistakes in copies of the code; name those that no test notices", TESTS, spare=True),
    "fuzz": Task("fuzz the parsers: [TARGET ...] [--seconds S] [--executions N]", TESTS, spare=True),
    "lint": Task("run ruff, mypy, pyright, cython-lint and codespell", (*TESTS, "lint")),
    "docs": Task("build the documentation into out/site; warnings are errors", ("docs",)),
    "bench": Task("list the benchmarks; with the name of one, run it", TESTS, spare=True),
    "machines": Task("run README's commands on bare Debian systems and on every Python here", (), package=False),
    "release": Task("build, check and list the source archive and the wheels", ("release",), package=False),
}
AFRESH = "Delete .venv to set up everything anew."
EXAMPLES = ("digits", "photographs", "ddp")
INTERRUPTIBLE = "tests/project/interruptible.py"
MAKERS = ("machines", "release")  # which make out/machines anew
PEERS = ("read", "write", "loader")  # the benchmarks that compare with other packages
SPELLED = (
    *("README.md", "docs", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "ffrecord"),
    *("tests/PEERS.md", "tests/reliability/FOUND.md", "tests/reliability/TESTS.md", "benchmarks/README.md"),
)


def main() -> int:
    """Set up, run the task, return its exit status; quietly if whoever read the output has left, as `| head` does."""
    try:
        return run_task()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python's flush at the exit would fail once more
        return 128 + signal.SIGPIPE


def run_task() -> int:
    """Set up, run the task, return its exit status."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        usage="python3 run.py TASK [ARGUMENT ...]",
        description="Set up what a task needs in .venv, then run it.",
        epilog="\n".join(["tasks:", *(f"  {name:12} {task.does}" for name, task in TASKS.items()), "", AFRESH]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    if len(sys.argv) == 1:
        parser.print_help()
        return 2
    asked = sys.argv[1]
    if asked not in TASKS and (close := get_close_matches(asked, TASKS, 1)):
        parser.error(f"there is no task {asked!r}; do you mean {close[0]}?")
    given = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that what was started ends, too
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    setting_up = True
    try:
        check(ROOT, given.task, given.arguments, bool(list(VENV.glob("lib/python*/site-packages/pytest/__init__.py"))))
        if given.task == "bench" and not given.arguments:
            benchmark(())  # lists them, and ends
        if asks_for_help(given.arguments):
            return show_help(given.task, given.arguments)
        with ExitStack() as stack:
            if TASKS[given.task].needs:
                set_up(parts(given.task, given.arguments), TASKS[given.task], stack.enter_context(hold_lock()))
            setting_up = False
            if given.task not in EXAMPLES:  # which write to out/, where two of them would be in each other's way
                stack.close()
            if given.task in MAKERS:  # for hours, in which other tasks can run
                stack.enter_context(hold_lock(Path(__file__)))
            status = max(map(run, commands(given.task, given.arguments)))
        if status and TASKS[given.task].needs:
            with hold_lock():
                mend("run this again, which installs it anew")
        return status
    except WrongArgumentError as error:
        say(str(error))
        return 2
    except SetUpError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        say("interrupted; the next run goes on after the last step that is done" if setting_up else "interrupted")
        return 130
    except OSError as error:
        say(known_cause(str(error)) or f"{given.task}: {error}")
        return 1


def show_help(task: str, arguments: Sequence[str]) -> int:
    """Let the program of a task show its help; say what the task takes where it is not set up, or has no program."""
    state, asked = load_state(), requirements()
    ready = all(state.get(name) == digest(asked[name], pins()) for name in parts(task, arguments)) and can_import("pip")
    if task != "lint" and (ready or not TASKS[task].needs):
        return run(commands(task, arguments)[-1])
    print(f"usage: python3 run.py {task} {usage_of(task)}\n\n{TASKS[task].does}")
    return 0


class SetUpError(Exception):
    """The set-up cannot go on. Its text says what to do."""


FULL = "the disk is full: free some space (du -sh .venv shows what is there), then run this again"


def say(text: str) -> None:
    """Print one line."""
    print(f"run.py: {text}", flush=True)


# Which parts, and what they are


def parts(task: str, arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the extras and groups that a task needs with these arguments."""
    needs = TASKS[task].needs
    if task == "test" and asks_for_long_tests(arguments):
        needs += ("docs", "lint", "release", "trainers", "nvimgcodec")
    if task == "bench" and arguments[:1] and arguments[0] in PEERS:
        needs += ("bench",)
    return ("build", *needs)


def asks_for_long_tests(arguments: Sequence[str]) -> bool:
    """Tell if pytest's -m, of these arguments, names the long tests: `-m long`, `-mlong` or `-m "long or x"`."""
    chosen = re.findall(r"(?:^|\0)-m[=\0]?([^\0]*)", "\0".join(arguments))
    return any(re.search(r"(?<!not )\blong\b", each) for each in chosen)


def requirements() -> dict[str, list[str]]:
    """Return the requirements of each extra and group of pyproject.toml, "build" and "package" included.

    Python 3.10 has no reader of TOML. So each list of requirements stands on one line, which is JSON as well.
    """
    found: dict[str, list[str]] = {}
    for name, text in re.findall(r"^([\w-]+) = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE):
        try:
            found.setdefault(name, json.loads(text))
        except ValueError:
            continue
    package = found["dependencies"]
    return {name: [*package, *asked] for name, asked in found.items()} | {"build": [*found["requires"], *package]}


def pins() -> list[str]:
    """Return the exact versions of constraints.txt."""
    lines = (line.partition("#")[0].strip() for line in CONSTRAINTS.read_text().splitlines())
    return [line for line in lines if line]


def pin_applies(pin: str) -> bool:
    """Tell if a line of constraints.txt is for this Python. A marker compares versions of Python, joined by `and`."""
    for name, operator, text in re.findall(r'(python\w+) (<|>=) "([\d.]+)"', pin):
        this = sys.version_info[: 3 if name == "python_full_version" else 2]
        that = tuple(map(int, text.split(".")))
        if (this < that) != (operator == "<"):
            return False
    return True


def name_of(requirement: str) -> str:
    """Return the name of the project that a requirement asks for, as package indexes spell it."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]*", requirement.strip())[0]).lower()  # type: ignore[index]


# Set-up


@contextmanager
def hold_lock(path: Path = ROOT / "run.py") -> Iterator[int]:
    """Hold the lock of this directory: two set-ups at once would break each other. Gives its descriptor.

    Args:
        path: the file that is locked, for other work that is done by one run at a time.
    """
    with open(path, "r+b") as file:  # network file systems want it open for writing
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another run.py in this directory, or for a pip that it left")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def set_up(needed: Sequence[str], task: Task, lock: int) -> None:
    """Add to .venv what it lacks of these parts, and compile the package if its sources changed.

    Every step is recorded as it ends, so a set-up that was interrupted goes on where it was.
    """
    if load_state().get("python") == interpreter():  # else it is another's, or is made anew
        mend("installing it anew")  # before the task, which would end with a traceback
    state, asked, made_from = load_state(), requirements(), sources()
    project = digest((ROOT / "pyproject.toml").read_text())
    if state.get("python") != interpreter() or not can_import("pip"):
        keep_others(state)
        check_machine()
        make_environment(lock)
        state = {"python": interpreter()}
        save_state(state)
    stale = task.package and (state.get("compiled") != made_from or not has_all_modules())
    lacking = [name for name in needed if state.get(name) != digest(asked[name], pins())]
    editable = task.package and (stale or state.get("installed") != project)
    if not (stale or lacking or editable):
        return
    check_machine()
    if sys.version_info[:2] > NEWEST:
        this, newest = format_version(sys.version_info[:2]), format_version(NEWEST)
        say(f"Python {this} is newer than the tested versions, up to {newest}; continuing")
    say(f"setting up {VENV.name} ({', '.join(name for name in lacking if name != 'build') or 'the package'}); "
        f"all output is in {LOG.relative_to(ROOT)}")  # fmt: skip
    if stale:
        state.pop("compiled", None)
        save_state(state)
    pip = Pip(lock)
    if "build" in lacking:
        pip.install(asked["build"])
        save_state(state | {"build": digest(asked["build"], pins())})
        state = load_state()
    compiler = Compiler(lock) if stale else None
    try:
        others = [name for name in lacking if name != "build"]
        if others:
            pip.install(sorted({each for name in others for each in asked[name]}), spare=task.spare)
            if "test" in others:
                pip.without_dependencies("mosaicml-streaming")
            done = {name: digest(asked[name], pins()) for name in others}
            save_state(load_state() | done | {"packages": " ".join(sorted(installed_packages()))})
        if compiler:
            compiler.wait()
            save_state(load_state() | {"compiled": made_from})
    finally:
        if compiler:
            compiler.end()
    if editable:
        pip.editable()
        save_state(load_state() | {"installed": project})


def interpreter() -> str:
    """Describe what .venv is made from. It is made anew where this differs."""
    return repr((sys.version, sys.base_prefix, str(ROOT)))


def digest(*values: object) -> str:
    """Return a checksum of the values."""
    return hashlib.sha256(repr(values).encode()).hexdigest()


def load_state() -> dict[str, str]:
    """Return the steps that were done, or nothing if .venv is not ours or the record is damaged."""
    try:
        return dict(json.loads(STATE.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def save_state(state: dict[str, str]) -> None:
    """Save the steps that were done, all or nothing."""
    PART.write_text(json.dumps(state, indent=1) + "\n")
    PART.replace(STATE)


def extension_sources() -> list[Path]:
    """Return the sources of the compiled modules."""
    return sorted((ROOT / "ffrecord").rglob("*.pyx"))


def build_outputs() -> list[Path]:
    """Return what a build leaves in the tree: the C that Cython makes, and the modules."""
    names = [path.with_suffix(".c") for path in extension_sources()] + [ROOT / "ffrecord" / f"{SHARED}.c"]
    return [path for path in names if path.exists()] + sorted((ROOT / "ffrecord").rglob("*.so"))


def sources() -> str:
    """Return a checksum of all that is compiled, and of the tools that compile it."""
    paths = [path for end in ("pyx", "pxd", "pxi", "h", "c") for path in (ROOT / "ffrecord").rglob(f"*.{end}")]
    kept = sorted(set(paths) - set(build_outputs()))
    read = [(str(path.relative_to(ROOT)), path.read_bytes()) for path in (ROOT / "setup.py", *kept)]
    return digest(read, requirements()["build"])


def has_all_modules() -> bool:
    """Tell if every source has been compiled for this Python, and no module was cut short since."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    modules = {path.name.partition(".")[0] for path in (ROOT / "ffrecord").rglob(f"*{suffix}") if is_whole(path)}
    shared = {SHARED} if SHARED in (ROOT / "setup.py").read_text() else set()
    return {path.stem for path in extension_sources()} | shared <= modules


def is_whole(module: Path) -> bool:
    """Tell if a compiled module has all of its bytes: its end is the table of sections that the head of ELF places."""
    with module.open("rb") as file:
        head = file.read(64)
    if len(head) < 64:
        return False
    if head[4] != 2:  # not of 64 bits, so the head is another
        return True
    (start,), (size, count) = struct.unpack_from("=Q", head, 40), struct.unpack_from("=HH", head, 58)
    return module.stat().st_size >= start + size * count


def can_import(*modules: str) -> bool:
    """Tell if .venv has a working Python with these modules."""
    if not PYTHON.exists():
        return False
    # Without its pyvenv.cfg it would be the Python that it was made from.
    command = [str(PYTHON), "-c", f"import sys, {', '.join(modules)}; sys.exit(sys.prefix == sys.base_prefix)"]
    try:
        return subprocess.run(command, cwd=VENV, env=environment(), capture_output=True).returncode == 0
    except OSError:  # it is no program any more
        return False


def check_machine() -> None:
    """Stop, naming all that is missing, where the set-up cannot succeed."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    lacks = []
    if not all(map(importlib.util.find_spec, ("venv", "ensurepip"))):
        lacks.append("the modules venv and ensurepip (Debian, Ubuntu: apt install python3-venv)")
    if not header.exists():
        lacks.append(f"Python's headers, {header} (Debian, Ubuntu: apt install python3-dev; Fedora: python3-devel)")
    if shutil.which(compiler) is None:
        lacks.append(f"a C compiler, {compiler} (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: gcc)")
    if lacks:
        raise SetUpError("; ".join([f"{sys.executable} lacks {lacks[0]}", *lacks[1:]]) + "; then run this again")


def keep_others(state: dict[str, str]) -> None:
    """Stop where .venv is not ours to replace: somebody else made it, or another Python that still works.

    Raises:
        SetUpError: with what is there, and what to do.
    """
    ours = {"bin", "include", "lib", "lib64", STATE.name, PART.name, LOG.name}
    if not VENV.is_dir() or {path.name for path in VENV.iterdir()} <= ours:
        return
    if not STATE.exists() and not LOG.exists():
        what = "was not made by run.py" if (VENV / "pyvenv.cfg").exists() else "is not a virtual environment"
        raise SetUpError(f"{VENV} {what}: move it away, then run this again")
    if "installed" in state and PYTHON.resolve() != Path(base_python()).resolve() and can_import("pip"):
        there, this = PYTHON.resolve(), sys.version.split()[0]
        raise SetUpError(
            f"{VENV} is of another Python, {there}; this is {this}: "
            f"run this with {there}, or delete .venv to set up anew with this one"
        )


def base_python() -> str:
    """Return the interpreter below a virtual environment, which may be the very one that is made anew."""
    return getattr(sys, "_base_executable", None) or sys.executable


def make_environment(lock: int) -> None:
    """Make a new, empty .venv with a pip that knows dependency groups, whatever was there."""
    say(f"making {VENV} with Python {sys.version.split()[0]}{', in place of the old one' if VENV.exists() else ''}")
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    VENV.mkdir(exist_ok=True)
    if not STATE.exists():
        save_state({})  # from now on it is ours, also if it is left half-made or half-removed
    for path in VENV.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path != STATE:
            path.unlink()
    save_state({})
    done = subprocess.run(
        [base_python(), "-m", "venv", "--without-pip", str(VENV)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SetUpError(f"cannot make {VENV}: {explain(done.stdout + done.stderr)}")
    status, output = run_program([str(PYTHON), "-m", "ensurepip"], lock)
    if status:
        raise SetUpError(f"cannot make {VENV}: {explain(output)}")
    Pip(lock).install(["pip>=25.3"], "--upgrade")


def installed_packages() -> set[str]:
    """Return the names of the packages in .venv."""
    return {about.name.partition("-")[0] for about in VENV.glob("lib/python*/site-packages/*.dist-info")}


def mend(advice: str) -> None:
    """Forget the packages that are gone, or of which a file is missing or cut short, so that pip installs them again.
    Name them.

    An interrupted run leaves such packages, and so do a full disk and whoever deletes a file.

    Args:
        advice: what happens next, for the line about a package.
    """
    damaged = sorted(set(load_state().get("packages", "").split()) - installed_packages())
    for name in damaged:
        say(f"{name} is gone from {VENV.name}; {advice}")
    for about in VENV.glob("lib/python*/site-packages/*.dist-info"):
        fault = fault_of(about)
        if not fault:
            continue
        shutil.rmtree(about)
        damaged.append(about.name.partition("-")[0])
        if fault != NO_RECORD:
            say(f"{damaged[-1]} in {VENV.name} is damaged, {fault}; {advice}")
    if damaged:
        steps = load_state()
        kept = () if "pip" in damaged else ("python", "compiled")  # without pip, .venv is made anew
        save_state({name: steps[name] for name in kept if name in steps})


NO_RECORD = "RECORD is missing"  # as a set-up leaves it that was interrupted, so it needs no line


def fault_of(about: Path) -> str:
    """Return what is wrong with the first damaged file of an installed package, or "". Its bytecode does not count.

    A file that has grown counts as whole: people add lines to look for mistakes, and certificates.

    Args:
        about: the directory of its metadata.
    """
    try:
        with (about / "RECORD").open(newline="", encoding="utf-8") as file:
            rows = [(*row, "", "")[:3] for row in csv.reader(file) if row and not row[0].endswith(".pyc")]
    except (OSError, ValueError, csv.Error):
        return NO_RECORD
    for name, _, size in rows:
        try:
            found = (about.parent / name).lstat()
        except OSError:
            return f"{name} is missing"
        if size.isdigit() and stat.S_ISREG(found.st_mode) and found.st_size < int(size):
            return f"{name} is cut short"
    return ""


class Pip:
    """pip in .venv, held to the versions of constraints.txt as far as they can be had."""

    def __init__(self, lock: int) -> None:
        self.pins = pins()
        self.lock = lock

    def install(self, asked: Sequence[str], *options: str, spare: bool = False) -> None:
        """Install requirements. A pin that cannot be had is dropped, and said to be.

        Args:
            asked: requirements, as in pyproject.toml.
            spare: drop a requirement, too, that has nothing for this Python.

        Raises:
            SetUpError: with what to do about it.
        """
        asked = list(asked)
        while True:
            output = self._try(*options, *asked)
            if output is None:
                return
            if known_cause(output):
                raise SetUpError(explain(output))
            if os.environ.get("PIP_NO_INDEX") and not os.environ.get("PIP_FIND_LINKS"):
                raise SetUpError("PIP_NO_INDEX is set, so pip looks for no packages: unset it, then run this again")
            for name in projects_not_found(output):
                if any(name_of(pin) == name and pin_applies(pin) for pin in self.pins):
                    say(f"the version of {name} in constraints.txt is not available for this Python; using another one")
                    self.pins = [pin for pin in self.pins if name_of(pin) != name]
                    break
                if spare and any(name_of(each) == name for each in asked):
                    say(f"{name} is not available for this Python; continuing without it")
                    asked = [each for each in asked if name_of(each) != name]
                    break
            else:
                if spare:
                    # Something is missing that one of them needs. Ask for each alone to find out which.
                    self._install_each(asked, *options)
                    return
                if "ResolutionImpossible" not in output or not self.pins:
                    raise SetUpError(explain(output))
                say("the versions in constraints.txt are not available together for this Python; using others")
                self.pins = []

    def _install_each(self, asked: Sequence[str], *options: str) -> None:
        """Install requirements one after the other, without those that cannot be had."""
        for each in asked:
            output = self._try(*options, each)
            if output is None:
                continue
            if known_cause(output):
                raise SetUpError(explain(output))
            say(f"{name_of(each)}, or a package that it needs, is not available for this Python; continuing without it")

    def without_dependencies(self, name: str) -> None:
        """Install a package that asks for more than is used of it; go on without it if it cannot be had."""
        if self._try("--no-deps", name) is not None:
            say(f"{name} is not available for this Python; continuing without it")

    def editable(self) -> None:
        """Make the tree the package, with the modules that were compiled in it."""
        output = self._try("--no-deps", "--no-build-isolation", "--editable", str(ROOT), FFRECORD_COMPILED="1")
        if output is not None:
            raise SetUpError(explain(output))

    def _try(self, *arguments: str, **variables: str) -> str | None:
        """Return None if pip succeeds, else what it printed."""
        held = VENV / "constraints.txt"
        held.write_text("\n".join([*self.pins, ""]))
        command = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]
        command += ["--progress-bar=off", "--constraint", str(held)]
        if takes_build_constraints() and "--no-build-isolation" not in arguments:
            command += ["--build-constraint", str(held)]
        # Of packages without a wheel for this Python, some would take an hour to compile. This one has no C.
        command += ["--only-binary", ":all:", "--no-binary", "tfrecord", *arguments]
        status, output = run_program(command, self.lock, **variables)
        return None if status == 0 else output


# Lines to be shown: of pip, with downloads of 20 MB and more, and of the build.
INSTALLED = re.compile(
    r"Installing collected packages|Successfully installed| *Downloading .*\((\d{3,}|[2-9]\d)(\.\d)? MB\)"
)
COMPILED = re.compile(r"\[ *\d+/\d+\] ffrecord\.")


def takes_build_constraints() -> bool:
    """Tell if the pip in .venv is new enough for --build-constraint: 25.3."""
    for about in VENV.glob("lib/python*/site-packages/pip-*.dist-info"):
        return tuple(map(int, re.findall(r"\d+", about.name)[:2])) >= (25, 3)
    return False


def projects_not_found(output: str) -> list[str]:
    """Return the projects of which pip found no version that fits."""
    named = re.findall(r"No matching distribution found for ([\w.-]+)", output)
    listed = re.search(r"no matching distributions available for your environment:\n((?: +\S+\n)+)", output)
    return [name_of(name) for name in [*named, *(listed[1].split() if listed else [])]]


class Program:
    """A program whose output goes to the log.

    It inherits the lock, so that no other set-up begins while it goes on, even if this process is killed. It has a
    process group of its own: Ctrl-C ends it through `end`, with all that it started.
    """

    def __init__(self, command: list[str], lock: int, variables: dict[str, str]) -> None:
        self._command = command
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**environment(), **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            pass_fds=[lock],
            start_new_session=True,
        )

    def follow(self, news: "re.Pattern[str]") -> tuple[int, str]:
        """Wait for its end, and print those of its lines that are news.

        Returns: its exit status, and all it printed.
        """
        lines = []
        assert self._process.stdout is not None
        with LOG.open("a", encoding="utf-8", errors="replace") as log:
            log.write(f"$ {shlex.join(self._command)}\n")
            for line in self._process.stdout:
                lines.append(line)
                log.write(line)
                log.flush()
                if news.match(line):
                    print(f"  {time.monotonic() - STARTED:4.0f} s  {line.strip()[:120]}", flush=True)
        return self._process.wait(), "".join(lines)

    def end(self) -> None:
        """End it and the processes that it started, if it still runs."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is None:
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(self._process.pid, number)
                    self._process.wait(timeout=5)


def run_program(command: list[str], lock: int, **variables: str) -> tuple[int, str]:
    """Run a program to its end. Returns: its exit status, and all it printed."""
    program = Program(command, lock, variables)
    try:
        return program.follow(INSTALLED)
    finally:
        program.end()


class Compiler:
    """The build of the compiled modules, in the tree, beside other work."""

    def __init__(self, lock: int) -> None:
        # Cython and the C compiler go by times, which do not show other flags, versions and branches.
        for path in build_outputs():
            path.unlink(missing_ok=True)
        self._result = (1, "the build was interrupted")
        self._program = Program([str(PYTHON), "setup.py", "build_ext", "--inplace", "--force"], lock, {})
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        try:
            self._result = self._program.follow(COMPILED)
        except OSError as error:  # of writing the log
            self._program.end()
            self._result = (1, str(error))

    def wait(self) -> None:
        """Wait for its end.

        Raises:
            SetUpError: with the reason if it failed.
        """
        self._thread.join()
        status, output = self._result
        if status:
            raise SetUpError(f"compiling failed: {explain(output)}")

    def end(self) -> None:
        """End the build if it still runs."""
        self._program.end()
        self._thread.join()


CAUSES = [
    (r"No space left on device|Errno 28|Disk quota exceeded", FULL),
    (
        r"name resolution|Failed to establish a new connection|Network is unreachable|Max retries exceeded|"
        r"ConnectTimeout|Connection refused|NewConnectionError|ProxyError|"
        r"requirement (pip|setuptools)\S* \(from versions: none\)",  # which every index has
        "no package index could be reached: look at the network, the proxy and PIP_INDEX_URL, then run this again",
    ),
    (r"Permission denied|Errno 13|Read-only file system", "files here cannot be written: look at who owns {root}"),
    (r"Python\.h: No such file", "Python's headers are missing (Debian, Ubuntu: apt install python3-dev)"),
    (
        r"stdio\.h: No such file|cannot find crt1\.o|cannot find -lc",
        "the C library's headers are missing (Debian, Ubuntu: apt install libc6-dev)",
    ),
    (r"ensurepip is not available", "the module ensurepip is missing (Debian, Ubuntu: apt install python3-venv)"),
    (
        r"Killed signal|out of memory|Cannot allocate memory",
        "memory ran out: close other programs, then run this again",
    ),
]


VERSIONS_CAME = re.compile(r"\(from versions: (?!none\))|have no matching distributions available for your environment")


def known_cause(output: str) -> str:
    """Return the advice for a failure that has nothing to do with versions, or nothing."""
    if VERSIONS_CAME.search(output):  # so an index answered, even if another one did not
        return ""
    return next((advice.format(root=ROOT) for pattern, advice in CAUSES if re.search(pattern, output)), "")


def explain(output: str) -> str:
    """Say in one line why a program failed, and what to do."""
    if known_cause(output):
        return known_cause(output)
    for name in projects_not_found(output):
        this = sys.version_info[:3]
        latest = (3, NEWEST[1] - 1) if this[:2] >= NEWEST else NEWEST  # packages come late for the newest
        others = f"{format_version(OLDEST)} to {format_version(latest)}"
        return f"{name} is not available for Python {format_version(this)} here: run this with another Python, {others}"
    last = [line.strip() for line in output.splitlines() if re.search(r"error", line, re.IGNORECASE)]
    shown = (last or output.strip().splitlines() or ["it printed nothing"])[-1][:200]
    return f"{shown} (all of it is in {LOG.relative_to(ROOT)}; delete .venv to begin again)"


def format_version(version: tuple[int, ...]) -> str:
    """Return a version with dots."""
    return ".".join(map(str, version))


def environment() -> dict[str, str]:
    """Return this process's variables, less those that would mix other installations into .venv."""
    foreign = ("PYTHONHOME", "PYTHONPATH", "PIP_USER", "PIP_TARGET", "PIP_PREFIX")
    kept = {name: value for name, value in os.environ.items() if name not in foreign}
    return {**kept, "VIRTUAL_ENV": str(VENV), "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])}


# Tasks


def commands(task: str, arguments: Sequence[str]) -> list[list[str]]:
    """Return the command lines of a task, to be run one after the other."""
    python = [str(PYTHON)] if TASKS[task].needs else [sys.executable]
    if task in EXAMPLES:
        return [[*python, str(ROOT / INTERRUPTIBLE), str(ROOT / "examples" / f"{task}.py"), *arguments]]
    os.chdir(ROOT)
    if task == "test":
        # See tests/failed_once.py.
        return [["env", "FFRECORD_TESTS_AGAIN=3", *python, "-m", "pytest", *PARALLEL, *arguments]]
    if task == "sanitize":
        return [[*python, str(ROOT / "tests" / "reliability" / "sanitizers.py"), *PARALLEL, *arguments]]
    if task == "bench":
        return [*other_packages(arguments), benchmark(arguments)]
    if task == "docs":
        # The theme's note about its own future is not a warning about these pages.
        return [["env", "NO_MKDOCS_2_WARNING=1", *python, "-m", "mkdocs", "build", "--strict", *arguments]]
    if task == "lint":
        checks = ["ruff check", "ruff format --check", "mypy"]
        checks += ["basedpyright", "cython-lint ffrecord"]  # the first is pyright, with a Node.js of its own
        checks += [f"codespell {' '.join(SPELLED)}"]
        return [[str(BIN / name), *options] for name, *options in map(str.split, checks)]
    programs = {
        "planted": "tests/reliability/plant.py",
        "fuzz": "tests/fuzz/fuzz.py",
        "machines": "tests/project/machines.py",
        "release": "tests/project/release.py",
    }
    return [[*python, str(ROOT / programs[task]), *arguments]]


def benchmark(arguments: Sequence[str]) -> list[str]:
    """Return the command line of the benchmark that is the first of `arguments`."""
    found = {path.stem.removeprefix("bench_"): path for path in sorted((ROOT / "benchmarks").glob("bench_*.py"))}
    if not arguments or arguments[0] not in found:
        usage = f"usage: python3 run.py bench {{{','.join(found)}}} [ARGUMENT ...]"
        sys.exit(f"{usage}\nbenchmarks/README.md says what they measure")
    return [str(PYTHON), str(found[arguments[0]]), *arguments[1:]]


def other_packages(arguments: Sequence[str]) -> list[list[str]]:
    """Return the command that installs the packages which need an environment of their own, if one compares them."""
    programs = {"write": "write_environment", "loader": "write_environment"}
    programs |= {name: f"{name}_environment" for name in ("dlio", "newest")}
    if arguments[:1] and arguments[0] in programs:
        return [[str(PYTHON), str(ROOT / "benchmarks" / f"{programs[arguments[0]]}.py")]]
    return []


def run(command: list[str]) -> int:
    """Return the exit status of a command, 128 + number for a signal. Ctrl-C and SIGTERM let it end in its own time."""
    interrupted = False
    with subprocess.Popen(command, env=environment()) as process:
        while process.returncode is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # which the terminal has sent to the program, too
                interrupted = True
            except SystemExit:
                process.terminate()
                process.wait()
                raise
    if interrupted:
        raise KeyboardInterrupt
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
