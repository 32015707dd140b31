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
# What pip says.
NETWORK = re.compile(
    "Read timed out|ReadTimeout|IncompleteRead|Connection (aborted|reset|broken)|HTTP error 5|SSLError"
)
NO_VERSION = "ERROR: No matching distribution found for six==99.0\n"
HELD = """ERROR: Cannot install torch==2.15.0 because these package versions have conflicting dependencies.

The conflict is caused by:
    The user requested torch==2.15.0
    The user requested (constraint) torch<=2.14.1

Additionally, some packages in these conflicts have no matching distributions available for your environment:
    torch

"""
CONFLICT = (
    "ERROR: Cannot install six==1.17.0 and six==1.16.0 because these package versions have conflicting dependencies."
)


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
    spec = util.spec_from_file_location("run", ROOT / "tests" / "project" / "run_tasks.py")
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _metadata(python: str, report: Path, run: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what the index says of the pins that apply to a Python, by name. Nothing is installed.

    pip takes the markers of requirements to be about the Python that it runs on. So it is asked for the pins alone, and
    the test looks at what they require.

    Args:
        report: file for pip to write to.

    Returns: the metadata; and why the others cannot be had here, which is no mistake of the pins: no wheel was made for
    the newest Python yet, or pip's configuration on this machine allows another version only.
    """
    asked = {canonicalize_name(pin.name): f"{pin.name}{pin.specifier}" for pin in PINS if _applies(pin, python)}
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps"]
    command += ["--python-version", python, "--report", str(report)]
    absent: dict[str, str] = {}
    while True:
        wanted = [pin for name, pin in asked.items() if name not in absent]
        done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            installed = json.loads(report.read_text())["install"]
            return {canonicalize_name(each["metadata"]["name"]): each for each in installed}, absent
        said = done.stdout + done.stderr
        if run.known_cause(said) or NETWORK.search(said):
            pytest.skip("no package index can be reached, or it did not answer to the end")
        reasons = _reasons(said, python, run.projects_not_found(said))
        assert reasons and set(reasons) <= set(asked) - set(absent), said
        absent |= reasons


def _reasons(said: str, python: str, missing: list[str]) -> dict[str, str]:
    """Return why pip cannot have projects, by name, where that is no mistake of the pins.

    Args:
        said: by pip.
        python: version that it was asked about.
        missing: projects of which pip found no version that fits.
    """
    held = {canonicalize_name(name) for name in re.findall(r"The user requested \(constraint\) ([\w.-]+)", said)}
    reasons = dict.fromkeys(held, "pip's configuration here allows others only")
    if _is_newest(python):
        reasons |= {name: f"no wheel for Python {python} yet" for name in missing if name not in held}
    return reasons


def _is_newest(python: str) -> bool:
    """Tell if a version is the one that wheels are still made for, 3.15."""
    return Version(python) >= Version("3.15")


@pytest.mark.parametrize(
    "said, python, expected",
    [
        (NO_VERSION, "3.15.2", {"six": "no wheel for Python 3.15.2 yet"}),
        (NO_VERSION, "3.14.0", {}),
        (HELD, "3.14.0", {"torch": "pip's configuration here allows others only"}),
        (HELD, "3.15.0", {"torch": "pip's configuration here allows others only"}),
        (CONFLICT, "3.15.0", {}),
    ],
)
def test_what_cannot_be_had_is_told_from_what_does_not_fit(said: str, python: str, expected: dict[str, str]) -> None:
    assert _reasons(said, python, _run().projects_not_found(said)) == expected


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("python", PYTHONS)
def test_every_task_can_be_set_up(python: str, tmp_path: Path) -> None:
    """Each pin exists as a wheel, and all that a task's requirements lead to is pinned to a version that fits.

    Skipped, with their names, where packages cannot be had here though all that can be had fits.
    """
    run = _run()
    found, absent = _metadata(python, tmp_path / "report.json", run)
    sources = {name for name, each in found.items() if not each["download_info"]["url"].endswith(".whl")}
    assert sources <= PURE_SOURCES
    asked, failed = run.requirements(), set()
    for task, described in run.TASKS.items():
        names = [*run.parts(task, []), *(run.parts(task, ["-m", "long"]) if task == "test" else ())]
        needs = {each for name in names for each in asked[name]}
        faults = {each: _faults(Requirement(each), found, set(absent), python) for each in needs}
        wrong = {each: why for each, why in faults.items() if why}
        gone = {canonicalize_name(Requirement(each).name) for each in wrong}
        failed |= gone
        assert gone <= (NOT_YET if _is_newest(python) else set()), f"task {task}: {wrong}"
        if gone and not described.spare:
            failed.add(task)
    assert failed == (NOT_YET | WAITING if _is_newest(python) else set())
    if absent:
        pytest.skip("; ".join(f"{name}: {why}" for name, why in absent.items()))


def _faults(needed: Requirement, found: dict[str, Any], absent: set[str], python: str) -> list[str]:
    """Return what is not pinned, or pinned to a version that does not fit, of all that a requirement leads to.

    Args:
        absent: names of pinned projects of which nothing more is known.
    """
    faults, seen = [], set()
    todo = [(needed, "pyproject.toml")] if _applies(needed, python) else []
    while todo:
        asked, by = todo.pop()
        name = canonicalize_name(asked.name)
        if name == ALONE or name.startswith(GPU) or name in absent or (name, *asked.extras) in seen:
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
