"""Recipes are alike, in the contents, and need only the packages that they name. test_docs.py runs them."""

import ast
import importlib.metadata
import os
import re
from collections.abc import Iterable

import pytest
from documents import ROOT, run_afresh
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from test_docs import MARKED, WITH_CODE

RECIPES = sorted((ROOT / "docs" / "recipes").glob("*.md"))
CONTENTS = (ROOT / "docs" / "README.md").read_text()
INSTALL = re.compile(r"^pip install ([^#\n]+)", re.MULTILINE)
every = pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.stem)


def test_are_in_the_contents():
    section = CONTENTS.split("\n## Recipes\n")[1].split("\n## ")[0]
    assert len(RECIPES) >= 10
    assert [page.name for page in RECIPES if f"](recipes/{page.name})" not in section] == []
    assert [page.name for page in RECIPES if page not in WITH_CODE] == []


@every
def test_are_short_and_alike(page):
    """A line that says what for, what to install if anything, code, and a few things to know."""
    text = page.read_text()
    assert len(text.splitlines()) <= 85
    assert re.match(r"# .+\n\n[A-Z][^\n]+\.\n\n(```sh\npip install .+\n```\n\n)?", text)
    assert len(INSTALL.findall(text)) == text.count("```sh\npip install ") <= 1
    last = text.split("\n## ")[-1]
    assert last.startswith("Good to know\n") and 3 <= len(re.findall(r"^- ", last, re.MULTILINE)) <= 6


def closure(wanted: Iterable[str]) -> set[str]:
    """Return the names of packages, and of all that they need."""
    waiting, done = [Requirement(each) for each in wanted], set()
    while waiting:
        one = waiting.pop()
        name, extras = canonicalize_name(one.name), sorted(one.extras)
        if (name, *extras) in done:
            continue
        done.add((name, *extras))
        try:
            needs = map(Requirement, importlib.metadata.requires(name) or [])
        except importlib.metadata.PackageNotFoundError:  # for another machine or Python
            continue
        markers = [{"extra": extra} for extra in ("", *extras)]
        waiting += [each for each in needs if not each.marker or any(map(each.marker.evaluate, markers))]
    return {name for name, *_ in done}


@pytest.mark.long
@pytest.mark.parametrize("page", [each for each in MARKED if each.values[0] in RECIPES], ids=lambda page: page.stem)
def test_need_only_what_they_name(page, tmp_path, monkeypatch):
    ours = re.search(r"^dependencies = (\[.*\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    named = " ".join(INSTALL.findall(page.read_text())).replace('"', "").split()
    monkeypatch.setenv("ONLY_NAMED", " ".join(sorted(closure([*ast.literal_eval(ours), *named]))))
    paths = [str(ROOT / "tests" / "only_named"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    done = run_afresh(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_other_packages_are_hidden(tmp_path, monkeypatch):
    monkeypatch.setenv("ONLY_NAMED", "numpy")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "tests" / "only_named"))
    page = tmp_path / "page.md"
    page.write_text("```python\nimport numpy\nimport torch\n```\n")
    done = run_afresh(page, tmp_path)
    assert "No module named 'torch'" in done.stderr
