"""What the fuzzer needs compiled: itself, and the parsers with counters in them. Kept until a source changes."""

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "ffrecord"
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
# The parsers: those that go through bytes of files.
PARSERS = [
    *(
        "sources/tar/_tar",
        "sources/zip/_zip",
        "sources/recordio/_recordio",
        "sources/tfrecord/_tfrecord",
        "sources/tfrecord/_examples",
    ),
    *("kernels/_names", "kernels/_pictures"),
]
SHARED = "ffrecord._cython_shared"
COUNTERS = ["-fsanitize-coverage=trace-pc,trace-cmp"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer"]


def cache() -> Path:
    """Where built things are kept: FFRECORD_FUZZ_CACHE, or a folder of this user's among temporary files."""
    given = os.environ.get("FFRECORD_FUZZ_CACHE")
    path = Path(given) if given else Path(tempfile.gettempdir(), f"ffrecord-fuzz-{os.getuid()}")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to somebody else")
    return path


def fuzzer(sanitized: bool = False) -> Path:
    """The folder with the fuzzer's module and the library to preload, `preload`."""
    sources = [HERE / name for name in ("_fuzzer.pyx", "mutate.c", "mutate.h", "coverage.c", "coverage.h")]
    extra = ["-DWITH_SANITIZER"] if sanitized else []

    def build(folder: Path) -> None:
        _compile([HERE / "coverage.c"], folder / "preload.so", extra)
        _compile([_cython(HERE / "_fuzzer.pyx", folder), HERE / "mutate.c"], folder / f"_fuzzer{SUFFIX}", [f"-I{HERE}"])

    return _kept("fuzzer-checked" if sanitized else "fuzzer", sources, extra, build)


def package(sanitized: bool = False) -> Path:
    """The folder with a copy of ffrecord whose parsers count; with `sanitized`, they are checked as well."""
    counted = [PACKAGE / f"{name}.pyx" for name in PARSERS]
    flags = [*COUNTERS, *(SANITIZERS if sanitized else [])]
    sources = [*counted, *(path for ending in ("pxd", "pxi", "h") for path in PACKAGE.rglob(f"*.{ending}"))]

    def build(folder: Path) -> None:
        def one(path: Path) -> None:
            inside = folder / path.relative_to(PACKAGE).parent
            inside.mkdir(parents=True, exist_ok=True)
            _compile([_cython(path, inside)], inside / f"{path.stem}{SUFFIX}", ["-ffp-contract=off", *flags])

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(one, counted))

    built = _kept("package-checked" if sanitized else "package", sources, flags, build)
    return _assembled(built)


def _assembled(built: Path) -> Path:
    """A package: the Python code as it is now, and links to what was built and to the rest of what is compiled."""
    top = Path(tempfile.mkdtemp(prefix="tree-", dir=cache()))
    shutil.copytree(
        PACKAGE,
        top / "ffrecord",
        ignore=shutil.ignore_patterns("__pycache__", "*.c", "*.so", "*.h", "*.pxd", "*.pxi", "*.pyx"),
    )
    libraries = {path.relative_to(PACKAGE): path for path in PACKAGE.rglob(f"*{SUFFIX}")}
    libraries |= {path.relative_to(built): path for path in built.rglob(f"*{SUFFIX}")}
    for place, path in libraries.items():
        os.symlink(path, top / "ffrecord" / place)
    return top


def _kept(name: str, sources: list[Path], flags: list[str], build: Callable[[Path], None]) -> Path:
    digest = hashlib.sha256(repr((sys.version, numpy.__version__, flags, PARSERS)).encode())
    for path in sorted(sources):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    folder = cache() / f"{name}-{digest.hexdigest()[:16]}"
    with _alone(name):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            (folder / "complete").touch()
    return folder


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process builds, others wait for it."""
    with open(cache() / f"{name}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _cython(path: Path, folder: Path) -> Path:
    target = folder / f"{path.stem}.c"
    name = ".".join(path.relative_to(ROOT if path.is_relative_to(PACKAGE) else HERE).with_suffix("").parts)
    options = ["-3", "--module-name", name, *(["--shared", SHARED] if path.is_relative_to(PACKAGE) else [])]
    _run([sys.executable, "-m", "cython", *options, "-I", str(ROOT), "-o", str(target), str(path)])
    return target


def _compile(sources: list[Path], target: Path, flags: list[str]) -> None:
    compiler = shlex.split(os.environ.get("CC") or str(sysconfig.get_config_var("CC") or "cc"))[0]
    include = [f"-I{sysconfig.get_path('include')}", f"-I{numpy.get_include()}", f"-I{HERE}", f"-I{ROOT}"]
    macros = ["-DNPY_NO_DEPRECATED_API=NPY_1_7_API_VERSION"]
    _run([compiler, "-shared", "-fPIC", "-O1", "-g1", *include, *macros, *flags, *map(str, sources), "-o", str(target),
          "-ldl", "-lpthread"])  # fmt: skip


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr[-4000:]}")
