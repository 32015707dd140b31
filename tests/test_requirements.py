"""Versions: users get lower bounds and no upper ones, tests exact versions of everything."""

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no reader of TOML; other versions look")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
PINS = [Requirement(line) for line in LINES]
PINNED = {canonicalize_name(pin.name) for pin in PINS}
GROUPS = {name: [Requirement(each) for each in asked] for name, asked in PROJECT["dependency-groups"].items()}
EXTRAS = {name: [Requirement(each) for each in a] for name, a in PROJECT["project"]["optional-dependencies"].items()}
NEEDED = [Requirement(each) for each in PROJECT["project"]["dependencies"]]
OF_USERS = [*NEEDED, *(each for extra in EXTRAS.values() for each in extra)]
TO_BUILD = [Requirement(each) for each in PROJECT["build-system"]["requires"]]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def test_every_constraint_is_one_version() -> None:
    for pin in PINS:
        assert re.fullmatch(r"==[\w.]+", str(pin.specifier)), pin
    for python in PYTHONS:
        applying = [canonicalize_name(pin.name) for pin in PINS if _applies(pin, python)]
        assert len(applying) == len(set(applying)), python


def _applies(pin: Requirement, python: str) -> bool:
    return pin.marker is None or pin.marker.evaluate({"python_version": python, "python_full_version": f"{python}.0"})


@pytest.mark.parametrize("group", GROUPS)
def test_every_requirement_of_the_groups_is_pinned(group: str) -> None:
    assert {canonicalize_name(each.name) for each in GROUPS[group]} <= PINNED


def test_all_that_the_pinned_versions_need_is_pinned() -> None:
    """As far as they are installed here."""
    missing, looked = set(), 0
    for pin in PINS:
        if pin.name == "mosaicml-streaming":
            continue  # run.py installs it without what it needs, and says why
        try:
            found = metadata.distribution(pin.name)
        except metadata.PackageNotFoundError:
            continue
        looked += 1
        needed = [Requirement(each) for each in found.requires or ()]
        wanted = [each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
        missing |= {canonicalize_name(name) for name in wanted} - PINNED
    assert looked > 30
    # What comes with torch is for GPUs, and of torch's own choice.
    assert {name for name in missing if not name.startswith(("nvidia-", "cuda-", "triton"))} == set()


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
