"""The package built so that tests make its system calls fail: FFRECORD_FAULTS=1, see _faults.pyx and docs/design.md."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

import children
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGE = ROOT / "ffrecord"
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
SHARED = f"_cython_shared{SUFFIX}"  # made without a source of ours
# Copies of the sources elsewhere may share what they have in common.
CACHE = Path(os.environ.get("FFRECORD_FAULT_CACHE", ROOT / "build" / "faults"))


def run(code: str, *args: object, timeout: float = 60, **environment: str) -> str:
    """What a child with that build printed; as `children.run`."""
    # Python puts its working directory first, which may have the ordinary build.
    alone = 'import sys; sys.path[:] = [path for path in sys.path if path != ""]\n'
    path = os.pathsep.join(map(str, (build(), HERE, HERE.parent)))
    return children.run(alone + code, *args, timeout=timeout, PYTHONPATH=path, **environment)


@cache
def build() -> Path:
    """A directory to put first on PYTHONPATH; modules that make no calls in it are the ordinary build's."""
    if sys.platform != "linux" or not (shutil.which("cc") or shutil.which("gcc")):
        pytest.skip("no C compiler for Linux to build the package with faults with")
    if not (PACKAGE / "engine" / f"_engine{SUFFIX}").exists():
        pytest.skip("the modules are not built in place: python setup.py build_ext --inplace")
    (CACHE / "modules").mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = CACHE / _hash(str(ROOT), *sorted(map(_kept, _modules())))
        if not made.exists():
            _compile(made)
        _link_rest(made / "ffrecord")
    return made


def _modules() -> list[Path]:
    return [*PACKAGE.rglob("*.pyx"), HERE / "_faults.pyx"]


@cache
def _common() -> str:
    """What every module may depend on."""
    shared = [path for ending in ("pxd", "pxi", "h") for path in PACKAGE.rglob(f"*.{ending}")]
    shared += [*HERE.glob("*fault*.[ch]"), ROOT / "setup.py"]
    texts = [path.read_text() for path in sorted(shared) if path.name != "_faults.c"]
    return _hash(sys.version, *texts)


def _kept(source: Path) -> str:
    """Name under which the module of a .pyx is kept."""
    return f"{source.stem}-{_hash(_common(), source.read_text())}{SUFFIX}"


def _place(source: Path) -> Path:
    """Where the module of a .pyx is in the package."""
    inside = source.relative_to(PACKAGE) if source.is_relative_to(PACKAGE) else Path(source.name)
    return inside.with_name(f"{source.stem}{SUFFIX}")


def _hash(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:20]


def _compile(made: Path) -> None:
    kept = {_place(source): CACHE / "modules" / _kept(source) for source in _modules()}
    with tempfile.TemporaryDirectory(dir=CACHE) as directory:
        package = Path(directory, "lib", "ffrecord")
        for place, path in kept.items():
            if path.exists():
                (package / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, package / place)  # newer than its sources: left alone
        command = [sys.executable, "setup.py", "-q", "build_ext", f"--build-lib={directory}/lib"]
        command.append(f"--build-temp={directory}/temp")
        environment = {**os.environ, "FFRECORD_FAULTS": "1", "CFLAGS": "-g0"}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        for path in package.rglob(f"*{SUFFIX}"):
            if path.name != SHARED:
                shutil.copy(path, kept[path.relative_to(package)])
        Path(directory, "lib").rename(made)


def _link_rest(package: Path) -> None:
    """Everything else of the package, as it is now."""
    for path in PACKAGE.iterdir():
        _link(path, package / path.name)


def _link(path: Path, place: Path) -> None:
    """Have `place` lead to a file or directory, or to all in it where some of that has been built."""
    if path.name == "__pycache__" or path.suffix in {".c", ".h", ".pyx", ".pxi", ".pxd"}:
        return
    if place.is_dir() and not place.is_symlink():
        for inside in path.iterdir():
            _link(inside, place / inside.name)
    elif not place.exists():
        place.unlink(missing_ok=True)
        place.symlink_to(path)
