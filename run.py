"""Set everything up in .venv, then run a task: `python3 run.py --help` lists them. Needs nothing but Python."""

import sys

if sys.version_info < (3, 10):  # noqa: UP036  # whoever starts this with an older one should read why it stops
    sys.exit("run.py: this is Python {}.{}, ffrecord needs 3.10 or later".format(*sys.version_info[:2]))

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
PYTHON = BIN / "python"
STATE = VENV / "ready.json"
CONSTRAINTS = ROOT / "constraints.txt"
INSTALL = [
    *("--editable", f"{ROOT}[torch,image,jpeg,zstd,snappy,parquet,huggingface,fsspec,remote,plot,ray]"),
    *("--group", "test", "--group", "lint", "--group", "examples", "--group", "docs", "--group", "versions"),
    *("--constraint", str(CONSTRAINTS), "--build-constraint", str(CONSTRAINTS)),
]
# It asks for an older numpy, and for clients of clouds; the tests use a part of it that needs neither.
ALONE = ["--no-deps", "mosaicml-streaming", "--constraint", str(CONSTRAINTS)]

# Files of tests side by side: most of the time goes into processes that the tests start, and wait for.
PARALLEL = ["-n", "auto", "--maxprocesses", "4", "--dist", "loadfile"]

TASKS = {
    "digits": "pack the handwritten digits of scikit-learn, train on them, save out/digits.png",
    "photographs": "pack a folder of JPEG photographs, read random batches, save out/photographs.png",
    "ddp": "train on the digits with 2 processes, go on with 1, then with 3; check what each saw",
    "test": "run the tests; arguments are pytest's",
    "sanitize": "run the tests under the address and undefined behaviour sanitizers; arguments are pytest's",
    "planted": "plant small mistakes in copies of the code, one at a time; say which no test notices",
    "fuzz": "fuzz the parsers, led by coverage: [TARGET ...] [--seconds S] [--executions N]",
    "versions": "build, package and test on every Python from 3.10 to 3.13 that is here; arguments are nox's",
    "lint": "run ruff, mypy, pyright and cython-lint",
    "docs": "build the documentation into out/site; warnings are errors",
    "bench": "list the benchmarks; with the name of one, run it",
}


def main() -> int:
    """Set up, run the task, return its exit status."""
    parser = argparse.ArgumentParser(
        prog="run.py",
        usage="python3 run.py TASK [ARGUMENT ...]",
        description="Make .venv complete, then run a task in it.",
        epilog="\n".join(["tasks:", *(f"  {name:12} {text}" for name, text in TASKS.items())]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    if len(sys.argv) == 1:
        parser.print_help()
        return 2
    given = parser.parse_args()
    try:
        with alone():
            set_up()
        return max(map(run, commands(given.task, given.arguments)))
    except subprocess.CalledProcessError as error:
        say(f"set-up failed with status {error.returncode}: {shlex.join(map(str, error.cmd))}")
        return 1
    except KeyboardInterrupt:
        return 130


def say(text: str) -> None:
    """One line to the terminal, before what comes from the programs started."""
    print(f"run.py: {text}", flush=True)


# Set-up


@contextmanager
def alone() -> Iterator[None]:
    """Two set-ups in one directory would break each other: wait."""
    with open(__file__, "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def set_up() -> None:
    """Make .venv what `wanted` says, unless it is."""
    found, want = recorded(), wanted()
    if found == want and imports(*compiled_modules()):
        return
    check_machine()
    if found.get("environment") != want["environment"] or not imports("pip"):
        make_environment()
    install()
    STATE.write_text(json.dumps(want, indent=1) + "\n")


def wanted() -> dict[str, str]:
    """What a complete .venv is made from: it is made anew if "environment" changes, added to if "sources" do."""
    facts = repr((sys.version, sys.base_prefix, INSTALL, ALONE)).encode() + CONSTRAINTS.read_bytes()
    sources = hashlib.sha256()
    for path in (ROOT / "pyproject.toml", ROOT / "setup.py", *compiled_sources()):
        data = path.read_bytes()
        sources.update(f"{path.name} {len(data)}\n".encode() + data)
    return {"environment": hashlib.sha256(facts).hexdigest(), "sources": sources.hexdigest()}


def recorded() -> dict[str, str]:
    """What `wanted` was when .venv was last complete; nothing if it never was, or was interrupted."""
    try:
        return dict(json.loads(STATE.read_text()))
    except (OSError, ValueError, TypeError):
        return {}


def compiled_modules() -> list[str]:
    """The names of the modules that need a compiler."""
    return [f"ffrecord.{path.stem}" for path in sorted((ROOT / "ffrecord").glob("*.pyx"))]


def compiled_sources() -> list[Path]:
    """What those are built from."""
    paths = [path for ending in ("pyx", "pxd", "h", "c") for path in (ROOT / "ffrecord").glob(f"*.{ending}")]
    return sorted(path for path in paths if path not in generated())


def generated() -> list[Path]:
    """The C that Cython makes of the .pyx files."""
    return [path.with_suffix(".c") for path in (ROOT / "ffrecord").glob("*.pyx")]


def imports(*modules: str) -> bool:
    """Whether .venv has a working Python with these modules."""
    if not PYTHON.exists():
        return False
    command = [str(PYTHON), "-c", f"import {', '.join(modules)}"]
    return subprocess.run(command, cwd=VENV, env=environment(), capture_output=True).returncode == 0


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
        sys.exit("\n  ".join([f"run.py: {sys.executable} lacks", *lacks]))


def make_environment() -> None:
    """A new, empty .venv, whatever was there."""
    say(f"making {VENV} with Python {sys.version.split()[0]}")
    if VENV.is_symlink():
        VENV.unlink()
    # The interpreter below a virtual environment, which may be the very one that is made anew.
    python = getattr(sys, "_base_executable", None) or sys.executable
    subprocess.run([python, "-m", "venv", "--clear", str(VENV)], check=True, env=environment())


def install() -> None:
    """The package, built from the sources as they are, and all that the tasks need."""
    say("installing the package and what it needs; the first time this downloads torch")
    # Cython and the compiler go by times, which do not show other flags, versions and branches.
    for stale in generated() + list((ROOT / "ffrecord").glob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}")):
        stale.unlink(missing_ok=True)
    pip = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", "install"]
    for what in (["--upgrade", "pip", "--constraint", str(CONSTRAINTS)], INSTALL, ALONE):
        subprocess.run([*pip, *what], check=True, cwd=ROOT, env=environment())


def environment() -> dict[str, str]:
    """This process's variables, less those that would mix other installations into .venv."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH", "PIP_USER")}
    return {**kept, "VIRTUAL_ENV": str(VENV), "PATH": os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])}


# Tasks


def commands(task: str, arguments: list[str]) -> list[list[str]]:
    """The command lines of a task, to be run one after the other."""
    if task in ("digits", "photographs", "ddp"):
        return [[str(PYTHON), str(ROOT / "examples" / f"{task}.py"), *arguments]]
    os.chdir(ROOT)
    if task == "test":
        return [[str(PYTHON), "-m", "pytest", *PARALLEL, *arguments]]
    if task == "sanitize":
        return [[str(PYTHON), str(ROOT / "tests" / "reliability" / "sanitizers.py"), *PARALLEL, *arguments]]
    if task == "planted":
        return [[str(PYTHON), str(ROOT / "tests" / "reliability" / "plant.py"), *arguments]]
    if task == "fuzz":
        return [[str(PYTHON), str(ROOT / "tests" / "fuzz" / "fuzz.py"), *arguments]]
    if task == "bench":
        return [*peers(arguments), benchmark(arguments)]
    if task == "versions":
        return [[str(PYTHON), "-m", "nox", *arguments]]
    if task == "docs":
        # What the theme says about its own future is no warning about these pages.
        return [["env", "NO_MKDOCS_2_WARNING=1", str(PYTHON), "-m", "mkdocs", "build", "--strict", *arguments]]
    checks = ["ruff check", "ruff format --check", "mypy", "mypy --strict tests/typing"]
    checks += ["basedpyright", "cython-lint ffrecord"]  # the first is pyright, with a Node.js of its own
    return [[str(BIN / name), *options, *arguments] for name, *options in map(str.split, checks)]


def benchmark(arguments: list[str]) -> list[str]:
    """The command line of the benchmark that is the first of `arguments`."""
    found = {path.stem.removeprefix("bench_"): path for path in sorted((ROOT / "benchmarks").glob("bench_*.py"))}
    if not arguments or arguments[0] not in found:
        usage = f"usage: python3 run.py bench {{{','.join(found)}}} [ARGUMENT ...]"
        sys.exit(f"{usage}\nbenchmarks/README.md says what they measure")
    return [str(PYTHON), str(found[arguments[0]]), *arguments[1:]]


def peers(arguments: list[str]) -> list[list[str]]:
    """Installs what is compared with, which nothing else needs; what is missing is not measured."""
    if arguments[:1] not in (["read"], ["write"], ["loader"]):
        return []
    pip = [str(PYTHON), "-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--quiet"]
    group = [*pip, "--group", "bench", "--constraint", str(CONSTRAINTS)]
    if arguments[0] == "read":
        return [group]
    return [group, [str(PYTHON), str(ROOT / "benchmarks" / "write_environment.py")]]


def run(command: list[str]) -> int:
    """The exit status of a command, 128 + number for a signal."""
    status = subprocess.call(command, env=environment())
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
