"""Copies of the project to plant defects in: the working tree is never changed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
PARTS = ("ffrecord", "tests", "pyproject.toml", "setup.py", "README.md")
# What was built, and what plants defects.
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.so", ".hypothesis", "planted", "test_planted.py")
# Only what is named, neither optimized nor for debuggers: it takes a third of the time.
BUILD = """
import runpy, sys
import Cython.Build
real, names = Cython.Build.cythonize, {f"ffrecord.{name}" for name in sys.argv[1:]}
def cythonize(modules, **options):
    chosen = [module for module in modules if module.name in names]
    assert {module.name for module in chosen} == names
    for module in chosen:
        module.extra_compile_args = [*module.extra_compile_args, "-O0", "-g0"]
    return real(chosen, force=True, quiet=True, **options)
Cython.Build.cythonize = cythonize
sys.argv = ["setup.py", "--quiet", "build_ext", "--inplace"]
runpy.run_path("setup.py", run_name="__main__")
"""
IMPORT = """
import importlib, pathlib, sys
import ffrecord
assert pathlib.Path(ffrecord.__file__).parents[1] == pathlib.Path(sys.argv[1]).resolve(), ffrecord.__file__
for name in sys.argv[2:]:
    importlib.import_module(name)
"""


class Tree:
    """A copy in a directory: sources, tests, and the compiled modules of another tree, which it refers to.

    Args:
        directory: made.
        libraries: where compiled modules are; of the project itself they are copied, since somebody may build it anew.
    """

    def __init__(self, directory: Path, libraries: Path | None = None) -> None:
        self.root = directory
        directory.mkdir(parents=True)
        for part in PARTS:
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, directory / part, ignore=LEFT_OUT)
            else:
                shutil.copy2(source, directory)
        for made in (directory / "ffrecord").rglob("*.pyx"):
            made.with_suffix(".c").unlink(missing_ok=True)
        for library in sorted(((libraries or ROOT) / "ffrecord").rglob(f"*{SUFFIX}")):
            place = directory / library.relative_to(libraries or ROOT)
            if libraries is None:
                shutil.copy2(library, place)
            else:
                place.symlink_to(library)

    def run(self, *command: object, seconds: float, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A Python of this tree.

        Raises:
            subprocess.TimeoutExpired.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FFRECORD_")}
        environment = {**kept, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        # What other trees beside this one have built, for tests that make calls fail.
        environment["FFRECORD_FAULT_CACHE"] = str(self.root.parents[1] / "faults")
        arguments = [sys.executable, *map(str, command)]
        with subprocess.Popen(
            arguments,
            cwd=cwd or self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                said, wrong = process.communicate(timeout=seconds)
            finally:
                # Of what hangs, children are left, too; they would hold the pipes, and a processor.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return subprocess.CompletedProcess(arguments, process.returncode, said, wrong)

    def build(self, modules: Sequence[str]) -> str | None:
        """Compile some modules anew; what went wrong, if anything did."""
        for name in modules:
            # A link to that of the other tree, which is to stay as it is.
            (self.root / "ffrecord" / f"{name.replace('.', '/')}{SUFFIX}").unlink(missing_ok=True)
        done = self.run("-c", BUILD, *modules, seconds=600)
        return (done.stdout + done.stderr)[-4000:] if done.returncode else None

    def check_import(self, modules: Sequence[str]) -> str | None:
        """What went wrong when this tree's package and some of its modules are imported from anywhere, if anything."""
        done = self.run("-c", IMPORT, self.root, *modules, seconds=300, cwd=self.root.parent)
        return done.stderr[-4000:] if done.returncode else None
