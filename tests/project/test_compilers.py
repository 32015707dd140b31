"""The C that Cython makes suits compilers other than gcc."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import run_tasks

CLANGS = ["clang", *(f"clang-{version}" for version in range(22, 10, -1))]
# Clang refuses casts to atomic types. Cython casts in conversions between them and Python objects.
CAST = re.compile(r"(?<!sizeof)\(ffr_shared_\w+\)|__Pyx_PyLong_(?:As|From)_ffr_shared_\w+")


def made() -> list[Path]:
    found = [path for path in run_tasks.build_outputs() if path.suffix == ".c"]
    if not found:
        pytest.skip("the C is made by a build of this tree")
    return found


def test_nothing_is_cast_to_an_atomic_type():
    assert {path: CAST.findall(path.read_text()) for path in made()} == {path: [] for path in made()}


def test_clang_compiles_all():
    clang = next(filter(None, map(shutil.which, CLANGS)), None)
    if clang is None:
        pytest.skip("clang is not installed")
    places = [run_tasks.ROOT, Path(sysconfig.get_path("include")), Path(np.get_include())]
    command = [clang, "-std=gnu11", "-w", "-fsyntax-only", *(f"-I{place}" for place in places)]
    for path in made():
        done = subprocess.run([*command, path], cwd=run_tasks.ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
