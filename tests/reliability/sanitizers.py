"""Python under sanitizers of the C compiler, and the package built for it: `python3 run.py sanitize` is `main`.

A sanitizer lives in the whole process and is slow, so the tree is copied to build/sanitize/, compiled there, and tested
there. Copies and what was compiled of them are used again; only what has changed since is copied and compiled anew.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile
from pathlib import Path

import deadlocks
import failures

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ROOT / "build" / "sanitize"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")

# What the compiler is told (setup.py), and what has to be in the process before anything else.
FLAGS = {"address": "address,undefined", "thread": "thread"}
# Without the C++ library, the first exception that crosses it, in torch for instance, is the end.
RUNTIMES = {"address": ["libasan.so", "libstdc++.so"], "thread": ["libtsan.so"]}

# Modules that read batches and write samples: what threads run, and where a wrong offset is memory that is not ours.
ENGINE = [
    "_cython_shared",
    "_crc",
    "_aio",
    "system/_calls",
    "kernels/_threads",
    "kernels/_memory",
    "engine/_engine",
    "writing/_buffers",
]

TESTS_FAILED = 1  # the exit status of pytest

# What a report has in it.
FOUND = ("ERROR: AddressSanitizer: ", "WARNING: ThreadSanitizer: ")
# By a program to itself. What a handler, such as faulthandler's, passes on begins with a `raise` as well: of that only
# what lies below tells whether anything is wrong.
SENT = re.compile(r"^ *#\d+ \w+ in (os_kill|signal_raise_signal|signal_pthread_kill)\w* ", re.MULTILINE)
SENT_FROM = 12  # innermost calls that are looked at
FRAME = re.compile(r"^ *#\d+ \w+ +(.*)$", re.MULTILINE)
HANDLER = re.compile(r"\(\S*libc\.so|in __restore_rt")  # what the kernel calls a handler of signals from
LIBC_SENDS = re.compile(r"in (__GI_|__)?(kill|raise|gsignal|pthread_kill\w*) ")
UNNAMED = re.compile(r"\(\S*python[\d.]*\+")

# Directories of the tree that are made from it, or are others' altogether.
_MADE = {"build", "dist", "out", "__pycache__", ".git", ".venv", ".hypothesis"}


def missing(kind: str) -> str | None:
    """Why this machine cannot run Python under that sanitizer; None if it can."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        return "no C compiler, cc, to build with sanitizers"
    if not (_python_has(kind) or all(library.exists() for library in map(_runtime, RUNTIMES[kind]))):
        return f"{compiler} has no {' or no '.join(RUNTIMES[kind])}"
    if os.environ.get("LD_PRELOAD"):
        return "something is preloaded already, such as a sanitizer"
    # On kernels that place programs at more addresses than it knows of, it ends at once.
    code = [*without_chance(kind), sys.executable, "-c", "import zlib"]
    done = subprocess.run(code, env=environment(kind), capture_output=True, text=True)
    return f"Python does not run under the {kind} sanitizer: {done.stderr[-300:]}" if done.returncode else None


def _python_has(kind: str) -> bool:
    """Tell whether this Python was configured with the sanitizer: it is in the process then, and sees Python, too."""
    return f"--with-{kind}-sanitizer" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


def without_chance(kind: str) -> list[str]:
    """What to start Python by so that its addresses are the same in every run, which the thread sanitizer may need."""
    return ["setarch", "--addr-no-randomize"] if kind == "thread" and shutil.which("setarch") else []


def _runtime(name: str) -> Path:
    """Where the compiler has this library; where it has not, the name alone."""
    found = subprocess.run(["cc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    return Path(found.stdout.strip())


def environment(kind: str, reports: Path | None = None, tree: Path | None = None) -> dict[str, str]:
    """The variables of a process that runs under that sanitizer, and of its children.

    Args:
        reports: a directory; what is found is written into files there, else to stderr.
        tree: what `build` gave; Python imports ffrecord from there.
    """
    log = {"log_path": str(reports / "report")} if reports else {}
    common = {"halt_on_error": 1, "print_stacktrace": 1, **log}
    options = {
        # Python frees little at its end. A refused allocation is a MemoryError. A lost page of a mapping is no bug of
        # ours, and the tests of our handler want the handlers that they install.
        "ASAN_OPTIONS": {
            **common,
            "detect_leaks": 0,
            "allocator_may_return_null": 1,
            "abort_on_error": 1,
            "handle_sigbus": 0,
            "handle_sigill": 1,  # undefined behaviour
        },
        # Children of a process with threads read, too.
        "TSAN_OPTIONS": {**common, "halt_on_error": 0, "exitcode": 66, "die_after_fork": 0, "second_deadlock_stack": 1},
    }
    return {
        **os.environ,
        **({} if _python_has(kind) else {"LD_PRELOAD": ":".join(map(str, map(_runtime, RUNTIMES[kind])))}),
        # Else one allocation of malloc holds many objects of Python, and is never freed. Without a GIL it is refused.
        **({} if sysconfig.get_config_var("Py_GIL_DISABLED") else {"PYTHONMALLOC": "malloc"}),
        "FFRECORD_SANITIZED": kind,
        **({"PYTHONPATH": str(tree)} if tree else {}),
        **{name: _options(os.environ.get(name), given) for name, given in options.items()},
    }


def _options(before: str | None, given: dict[str, object]) -> str:
    """Return options for a sanitizer, after those it has already, such as the suppressions of a Python."""
    return ":".join([*([before] if before else []), *(f"{key}={value}" for key, value in given.items())])


def reports_in(directory: Path) -> list[str]:
    """What sanitizers found. Of refused allocations and signals sent to itself they tell, too, but tests want those."""
    texts = [path.read_text(errors="replace") for path in sorted(directory.glob("report.*"))]
    return [text for text in texts if any(word in text for word in FOUND) and not _sent(text)]


def _sent(report: str) -> bool:
    innermost, _, _ = report.partition(f"    #{SENT_FROM} ")
    if SENT.search(innermost):
        return True
    frames = FRAME.findall(innermost)
    handlers = [place for place, frame in enumerate(frames) if HANDLER.match(frame)]
    below = frames[handlers[-1] + 1 :] if handlers else frames
    # The functions of an interpreter without symbols have no names, but the C library's have.
    outer = list(dropwhile(LIBC_SENDS.match, below))
    return len(outer) < len(below) and bool(outer) and bool(UNNAMED.match(outer[0]))


# Building


def build(kind: str, only: list[str] | None = None, name: str | None = None) -> Path:
    """A copy of the tree whose modules are compiled with that sanitizer.

    Args:
        only: names of modules; all others are taken as they are compiled for daily use. Default: all.
        name: of its directory in build/sanitize/, another one for each set of modules.
    """
    tree = BUILDS / (name or kind)
    with _alone(tree):
        _build(kind, tree, only)
    return tree


def _build(kind: str, tree: Path, only: list[str] | None) -> None:
    mirror(ROOT, tree)
    compile_modules(kind, tree, only)


def compile_modules(kind: str, tree: Path, only: list[str] | None = None) -> None:
    """Compile what has changed since the last time.

    Raises:
        RuntimeError: a compiler refused; what it said.
    """
    built = tree / "built"
    made_by = hashlib.sha256((tree / "setup.py").read_bytes() + repr((kind, only, sys.version)).encode()).hexdigest()
    if not (tree / "made-by").exists() or (tree / "made-by").read_text() != made_by:
        for path in [*tree.glob(f"ffrecord/**/*{SUFFIX}"), built, tree / "objects"]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        (tree / "made-by").write_text(made_by)
    _lend(tree / "ffrecord", built / "ffrecord", only)
    command = ["setup.py", "-q", "build_ext", "--inplace", "--build-lib", "built", "--build-temp", "objects"]
    environment = {**os.environ, "FFRECORD_SANITIZE": FLAGS[kind], "FFRECORD_COVERAGE": ""}
    done = subprocess.run([sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{tree} does not compile:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")


def compile_one(kind: str, tree: Path, module: str) -> None:
    """Compile a module of such a tree, as "engine/_engine", whose source has changed, and nothing that depends on it.

    Raises:
        subprocess.CalledProcessError: a compiler refused, and said why.
    """
    source = Path("ffrecord", module)
    flags = ["-shared", "-fPIC", "-O1", "-g", f"-fsanitize={FLAGS[kind]}", f"-I{sysconfig.get_path('include')}", "-I."]
    made, library = source.with_suffix(".c"), source.with_suffix(SUFFIX)
    for command in (
        [sys.executable, "-m", "cython", "--shared=ffrecord._cython_shared", source.with_suffix(".pyx"), "-o", made],
        [*(sysconfig.get_config_var("CC").split() if _python_has(kind) else ["cc"]), *flags, made, "-o", library],
    ):
        subprocess.run([*map(str, command)], cwd=tree, check=True)


def _lend(sources: Path, built: Path, only: list[str] | None) -> None:
    """Copy what is compiled for daily use to where the build looks, which then finds it newer than its source."""
    names = [path.relative_to(sources).with_suffix("") for path in sources.rglob("*.pyx")]
    for name in (Path("_cython_shared"), *names):
        ready = ROOT / "ffrecord" / f"{name}{SUFFIX}"
        if only is not None and str(name) not in only and ready.exists():
            (built / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ready, built / f"{name}{SUFFIX}")


def mirror(tree: Path, copy: Path) -> None:
    """Make `copy` hold what `tree` does, times of change included; what is compiled in `copy` stays."""
    copy.mkdir(parents=True, exist_ok=True)
    wanted = {path.relative_to(tree): path for path in _sources(tree)}
    for relative, path in wanted.items():
        target, found = copy / relative, path.stat()
        if not target.exists() or (target.stat().st_size, target.stat().st_mtime_ns) != (
            found.st_size,
            found.st_mtime_ns,
        ):
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
    kept = {path.relative_to(tree).with_suffix(".c") for path in wanted.values() if path.suffix == ".pyx"}
    kept.add(Path("ffrecord", "_cython_shared.c"))
    for path in list(_sources(copy)):
        if path.relative_to(copy) not in wanted.keys() | kept and path.name != "made-by":
            path.unlink()


def _sources(tree: Path) -> Iterator[Path]:
    """Files of the tree that are not made from others; C that Cython made is not in question either way."""
    for directory, names, files in os.walk(tree):
        names[:] = [name for name in names if name not in _MADE | {"built", "objects"}]
        names[:] = [name for name in names if not name.endswith((".egg-info", "_cache"))]
        for name in files:
            path = Path(directory, name)
            made = path.suffix in (".so", ".pyc") or name == "_cython_shared.c"
            made |= path.suffix == ".c" and path.with_suffix(".pyx").exists()
            if not made and path.is_file():
                yield path


@contextmanager
def _alone(tree: Path) -> Iterator[None]:
    """Two builds in one directory would break each other, and the tests that run there: wait."""
    tree.parent.mkdir(parents=True, exist_ok=True)
    with open(tree.with_suffix(".lock"), "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# Running


def checked(command: list[str], reports: Path, **options: object) -> int:
    """Run it; its exit status, or 1 if it ended with 0 but a sanitizer of any process wrote into `reports`."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir(parents=True)
    with subprocess.Popen(command, **options) as process, deadlocks.ended(process.pid) as killed:
        status = process.wait()
    found = reports_in(reports)
    for text in found:
        print(text[:20_000], flush=True)
    also = f", {len(killed)} children killed that the allocator did not let go on" if killed else ""
    print(f"sanitizers: {len(found)} reports, exit status {status}{also}", flush=True)
    return status or bool(found)


def main(arguments: list[str], only: list[str] | None = None, name: str = "address") -> int:
    """The whole suite, or what `arguments` of pytest choose, with all modules or `only` these compiled for it."""
    why = missing("address")
    if why:
        print(f"sanitizers: {why}", file=sys.stderr)
        return 2
    print(f"sanitizers: building in {BUILDS / name}, which takes minutes the first time", flush=True)
    tree = BUILDS / name
    with _alone(tree):
        _build("address", tree, only)
        return _run_tests(tree, arguments)


def _run_tests(tree: Path, arguments: list[str]) -> int:
    """Exit status of the tests of a tree that is built, and of those again that lost a child."""
    reports, results = tree.with_name(f"{tree.name}-reports"), tree.with_name(f"{tree.name}-results.xml")
    # All is slower, and files are meant where this was started.
    command = [sys.executable, "-m", "pytest", "--timeout", "900", *arguments, *failures.options(results)]
    for place, word in enumerate(command):
        if word == "--figures":
            command[place + 1] = os.path.abspath(command[place + 1])
    variables = environment("address", reports, tree)
    results.unlink(missing_ok=True)
    status = checked(command, reports, cwd=tree, env=variables)
    if status != TESTS_FAILED or reports_in(reports) or not results.exists():
        return status
    return once_more(command, failures.failed(results), reports, cwd=tree, env=variables)


def once_more(command: list[str], failed: dict[str, str], reports: Path, **options: object) -> int:
    """The status of a run some of whose tests failed: those that lost a child run again, and no other is forgiven."""
    wrong = [name for name, message in failed.items() if not failures.lost(message)]
    lost = [name for name in failed if name not in wrong]
    if wrong:
        print("sanitizers: failed:", *wrong, sep="\n  ", flush=True)
    if not lost:
        return TESTS_FAILED
    print("sanitizers: once more, their children may have been stuck or killed:", *lost, sep="\n  ", flush=True)
    others = [f"--deselect={name}" for name in wrong]
    status = checked([*command, "--last-failed", *others], reports, **options)
    return TESTS_FAILED if wrong else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
