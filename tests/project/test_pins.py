"""Versions: users get lower bounds and no upper ones, tests exact versions, which exist for every Python."""

import json
import re
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no reader of TOML; other versions look")

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
PINS = [Requirement(line) for line in LINES]
PINNED = {canonicalize_name(pin.name) for pin in PINS}
GROUPS = {name: [Requirement(each) for each in asked] for name, asked in PROJECT["dependency-groups"].items()}
EXTRAS = {name: [Requirement(each) for each in a] for name, a in PROJECT["project"]["optional-dependencies"].items()}
NEEDED = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
OF_USERS = [*NEEDED, *(each for extra in EXTRAS.values() for each in extra)]
TO_BUILD = [Requirement(each) for each in PROJECT["build-system"]["requires"]]
# Of every minor version that is supported, the oldest patch release and one that came late.
PYTHONS = ("3.10.0", "3.10.20", "3.11.0", "3.11.2", "3.11.16", "3.12.0", "3.12.14", "3.13.0", "3.13.13", "3.14.0")
PYTHONS += ("3.14.10", "3.15.0", "3.15.2")
# No wheels, but nothing to compile either.
PURE_SOURCES = {"tfrecord"}
# Installed without the packages that it asks for: run.py says why.
ALONE = "mosaicml-streaming"
# They come with torch, are for GPUs, and their versions are of torch's choice.
GPU = ("nvidia-", "cuda-", "triton")
# Without wheels for Python 3.15 yet. Tests go on without; these tasks cannot.
NOT_YET = {"simplejpeg", "zstandard", "ray", "lmdb", "zstd", "scikit-image"}
WAITING = {"photographs", "lint"}


def test_every_constraint_is_one_version() -> None:
    for pin in PINS:
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
    for python in PYTHONS:
        applying = [canonicalize_name(pin.name) for pin in PINS if _applies(pin, python)]
        assert len(applying) == len(set(applying)), python


def _applies(asked: Requirement, python: str, extra: str = "") -> bool:
    version = {"python_version": ".".join(python.split(".")[:2]), "python_full_version": python}
    return asked.marker is None or asked.marker.evaluate({**version, "extra": extra})


@pytest.mark.parametrize("group", GROUPS)
def test_every_requirement_of_the_groups_is_pinned(group: str) -> None:
    assert {canonicalize_name(each.name) for each in GROUPS[group]} <= PINNED


def test_all_that_the_pinned_versions_need_is_pinned() -> None:
    """As far as they are installed here."""
    missing, looked = set(), 0
    for pin in PINS:
        if pin.name == ALONE:
            continue
        try:
            found = metadata.distribution(pin.name)
        except metadata.PackageNotFoundError:
            continue
        looked += 1
        needed = [Requirement(each) for each in found.requires or ()]
        wanted = [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
        missing |= {canonicalize_name(name) for name in wanted} - PINNED
    assert looked > 30
    assert {name for name in missing if not name.startswith(GPU)} == set()


@pytest.mark.parametrize("asked", [*OF_USERS, *TO_BUILD], ids=str)
def test_users_get_a_lower_bound_and_no_upper_one(asked: Requirement) -> None:
    assert [each.operator for each in asked.specifier] == [">="]
    pins = [pin for pin in PINS if canonicalize_name(pin.name) == canonicalize_name(asked.name)]
    assert pins, "what users get is what the tests have"
    for pin in pins:
        (exact,) = pin.specifier
        assert Version(exact.version) in asked.specifier


def test_tests_have_what_users_may_have() -> None:
    """Where the pins hold, as in .venv, it is what the tests run with."""
    numpy = Version(metadata.version("numpy"))
    (asked,) = [each for each in OF_USERS if each.name == "numpy"]
    assert numpy in asked.specifier


# For Pythons that are not here


def _run() -> Any:
    """Return run.py as a module."""
    spec = util.spec_from_file_location("run", ROOT / "run.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _metadata(python: str) -> dict[str, Any]:
    """Return what the index says of every pin that applies to a Python, by name; nothing is installed.

    pip takes the markers of requirements to be about the Python that it runs on. So it is asked for the pins alone, and
    the test looks at what they require.
    """
    asked = [f"{pin.name}{pin.specifier}" for pin in PINS if _applies(pin, python)]
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed", "--no-deps"]
    done = subprocess.run(
        [*command, "--python-version", python, "--report", "-", *asked], capture_output=True, text=True, check=False
    )
    if re.search("name resolution|Connection refused|unreachable|NewConnectionError", done.stderr):
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return {canonicalize_name(each["metadata"]["name"]): each for each in json.loads(done.stdout)["install"]}


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_task_can_be_set_up(python: str) -> None:
    """Each pin exists as a wheel, and all that a task's requirements lead to is pinned to a version that fits."""
    found = _metadata(python)
    sources = {name for name, each in found.items() if not each["download_info"]["url"].endswith(".whl")}
    assert sources <= PURE_SOURCES
    run = _run()
    asked, failed = run.requirements(), set()
    for task, described in run.TASKS.items():
        names = [*run.parts(task, []), *(run.parts(task, ["-m", "long"]) if task == "test" else ())]
        needs = {each for name in names for each in asked[name]}
        faults = {each: _faults(Requirement(each), found, python) for each in needs}
        wrong = {each: why for each, why in faults.items() if why}
        gone = {canonicalize_name(Requirement(each).name) for each in wrong}
        failed |= gone
        assert gone <= (NOT_YET if python >= "3.15" else set()), f"task {task}: {wrong}"
        if gone and not described.spare:
            failed.add(task)
    assert failed == (NOT_YET | WAITING if python >= "3.15" else set())


def _faults(needed: Requirement, found: dict[str, Any], python: str) -> list[str]:
    """Return what is not pinned, or pinned to a version that does not fit, of all that a requirement leads to."""
    faults, seen = [], set()
    todo = [(needed, "pyproject.toml")] if _applies(needed, python) else []
    while todo:
        asked, by = todo.pop()
        name = canonicalize_name(asked.name)
        if name == ALONE or name.startswith(GPU) or (name, *asked.extras) in seen:
            continue
        seen.add((name, *asked.extras))
        if name not in found:
            faults.append(f"{by} needs {asked}, which is not pinned")
            continue
        version = found[name]["metadata"]["version"]
        if not asked.specifier.contains(version, prereleases=True):
            faults.append(f"{by} needs {asked}, pinned is {version}")
        for line in found[name]["metadata"].get("requires_dist", []):
            inner = Requirement(line)
            if any(_applies(inner, python, extra) for extra in ("", *asked.extras)):
                todo.append((inner, f"{name} {version}"))
    return faults
