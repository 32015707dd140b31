"""The documentation site: every page has its place, every public name a description, every link leads somewhere."""

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from documents import ROOT, contents

CONFIGURATION = (ROOT / "mkdocs.yml").read_text()
NAVIGATION = re.findall(r"^ *- (?:[^:\n]+: )?(\S+\.md)$", CONFIGURATION.split("\nnav:\n")[1], re.MULTILINE)
REFERENCE = sorted((ROOT / "docs" / "reference").glob("*.md"))
PUBLIC = ("ffrecord", "errors", "fields", "fileio", "order", "package", "sources", "torch", "torch.images", "utils")
FETCHED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "link": "href"}


# Without building it


def place(page: Path) -> str:
    """Where a page stands in the navigation."""
    inside = page.is_relative_to(ROOT / "docs")
    return str(page.relative_to(ROOT / "docs") if inside else "tree" / page.relative_to(ROOT))


def test_every_page_is_in_the_navigation_once():
    assert [page for page in map(place, contents()) if page not in NAVIGATION] == []
    assert len(set(NAVIGATION)) == len(NAVIGATION)


def described() -> list[str]:
    """The names that pages of the reference describe."""
    pytest.importorskip("ray", reason="ray is not installed: ffrecord.ray cannot be imported")
    return [name for page in REFERENCE for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]


def found(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def public() -> list[str]:
    modules = ["ffrecord" if name == "ffrecord" else f"ffrecord.{name}" for name in PUBLIC]
    names = [f"{module}.{name}" for module in modules for name in importlib.import_module(module).__all__]
    names += [f"ffrecord.{name}" for name in dir(importlib.import_module("ffrecord")) if not name.startswith("_")]
    names += [f"ffrecord.torch.{name}" for name in ("BatchSampler", "IterableDataset", "Sampler", "collate")]
    return [name for name in names if not isinstance(found(name), type(sys))]


def test_every_public_name_is_described():
    described_things = [found(name) for name in described()]
    assert [name for name in public() if not any(found(name) is thing for thing in described_things)] == []


def test_nothing_is_described_twice():
    names = described()
    things = [found(name) for name in names]
    assert len({id(thing) for thing in things}) == len(names)


def test_every_error_is_described():
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    errors = vars(importlib.import_module("ffrecord.errors"))
    raised = [name for name, kind in errors.items() if isinstance(kind, type) and kind.__module__ == "ffrecord.errors"]
    raised = [name for name in raised if not name.startswith("_")]
    raised = [name for name in raised if not name.startswith("Record")]  # one for each errno, made of the built-in one
    assert [name for name in raised if f"::: ffrecord.errors.{name}\n" not in page] == []
    assert len(raised) > 15


def test_light_dark_and_search():
    schemes = re.findall(r"^    - media: \"\(prefers-color-scheme(?:: (\w+))?\)\"$", CONFIGURATION, re.MULTILINE)
    assert schemes == ["", "light", "dark"]  # as the system says, and a switch
    assert CONFIGURATION.count("toggle:") == 3
    assert "\n  - search:\n" in CONFIGURATION


def test_navigation_has_four_kinds():
    kinds = re.findall(r"^  - ([^:]+):", CONFIGURATION.split("\nnav:\n")[1], re.MULTILINE)
    assert kinds == ["Home", "Tutorial", "Recipes", "Reference", "Explanation"]


# Built


class Page(HTMLParser):
    """What a page links to and fetches, and what can be linked on it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        # The address of a page itself is no request.
        if tag in FETCHED and FETCHED[tag] in given and given.get("rel") not in ("canonical", "prev", "next"):
            self.fetched.append(given[FETCHED[tag]])


def target(path: Path, link: str) -> Path:
    """The file that a link of the page `path` leads to."""
    to = unquote(urlsplit(link).path)
    file = (path.parent / to).resolve() if to else path
    return file / "index.html" if file.is_dir() else file


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, Page]:
    """The pages of the site, as `python3 run.py docs` builds them."""
    pytest.importorskip("mkdocs")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    variables = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return {path: Page(path) for path in out.rglob("*.html") if path.name != "404.html"}


@pytest.mark.long
def test_links_of_the_site_lead_somewhere(site):
    broken = []
    for path, page in site.items():
        for link in page.links:
            if urlsplit(link).scheme:
                continue
            to, anchor = target(path, link), unquote(urlsplit(link).fragment)
            if not to.is_file() or (anchor and to in site and anchor not in site[to].anchors):
                broken.append(f"{path}: {link}")
    assert broken == []
    assert sum(len(page.links) for page in site.values()) > 4000


@pytest.mark.long
def test_pages_fetch_nothing_from_elsewhere(site):
    assert len(site) >= len(NAVIGATION)
    for path, page in site.items():
        assert [link for link in page.fetched if urlsplit(link).netloc or not target(path, link).is_file()] == []
    sheets = list(min(site, key=lambda path: len(path.parts)).parent.rglob("*.css"))
    assert sheets
    assert not any(re.search(r"url\(['\"]?https?:|@import", sheet.read_text()) for sheet in sheets)


def documented(kind: type, name: str) -> bool:
    """Whether it is a method that says what it does, under its own name."""
    member = getattr(kind, name)
    return callable(member) and inspect.getdoc(member) is not None and member.__name__ == name


def members(name: str) -> set[str]:
    """Of a class that is described: everything public that has a docstring, less what was written elsewhere."""
    kind = found(name)
    if not isinstance(kind, type):
        return set()
    own = {member: owner for owner in reversed(kind.__mro__) for member in vars(owner)}
    ours = [member for member, owner in own.items() if owner.__module__.startswith("ffrecord.")]
    return {f"{name}.{member}" for member in ours if member[0] != "_" and documented(kind, member)}


@pytest.mark.long
def test_methods_are_described(site):
    there = set().union(*(page.anchors for path, page in site.items() if "reference" in path.parts))
    readers = ("ffrecord.sources.", "ffrecord.errors.")  # a sentence says what all of these have
    missing = {name for each in described() if not each.startswith(readers) for name in members(each)} - there
    assert missing == set()
    assert "ffrecord.FileWriter.write_packed" in there
    assert not any(name.startswith("ffrecord.FileReader._") for name in there)


# What people type into the search, and where it is answered.
QUESTIONS = {
    "how do I filter": ("faq/#how-do-i-filter",),
    "what happens on Ctrl-C": ("faq/#what-happens-on-ctrl-c",),
    "can two processes write": ("faq/#can-two-processes-write",),
    "why is my first epoch slow": ("faq/#why-is-my-first-epoch-slow",),
    "how do I resume on other ranks": ("faq/#how-do-i-resume",),
    "how large may a record be": ("faq/#how-large-may-a-record-be",),
    "add a column": ("faq/#can-i-change-or-delete-a-record-or-add-a-column",),
    "append": ("writing/#appending", "faq/#can-two-processes-write-or-can-i-append"),
    "read from S3": ("recipes/s3/", "faq/#can-it-read-from-s3"),
    "credentials": ("recipes/s3/", "remote/#storage_options", "command/"),
    "cache to local disk": ("remote-cache/",),
    "Lightning": ("recipes/lightning/", "faq/#how-do-i-resume"),
    "class weights": ("recipes/choose/", "faq/#how-do-i-oversample"),
    "WeightedRandomSampler": ("faq/#how-do-i-oversample",),
    'policy="pad"': ("faq/#do-all-ranks", "training/#many-gpus"),
    "augmentation": ("training/#augmentation", "recipes/photographs/"),
    "out of memory": ("faq/#how-much-memory-does-it-use", "reading/#threads-processes-descriptors-memory"),
    "corrupted file": ("faq/#what-if-a-file-is-damaged", "recipes/repair/"),
    "convert from webdataset": ("from-webdataset/", "converting/"),
    "convert from LMDB": ("lmdb/", "converting/"),
    "export to parquet": ("recipes/parquet/", "exporting/"),
    "which Python versions": ("install/#python-versions",),
}
SHOWN = 3  # places of the first page that count


@pytest.mark.long
def test_the_search_answers_questions(site):
    """The site's own search, run by node, has an answer among the first places of the first page."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    out = min(site, key=lambda path: len(path.parts)).parent
    program = [node, str(Path(__file__).with_name("site_search.js")), str(out)]
    ran = subprocess.run(program, input="\n".join(QUESTIONS), capture_output=True, text=True, timeout=60, check=True)
    first = [json.loads(line)[0][:SHOWN] for line in ran.stdout.splitlines()]
    wrong = {
        question: places
        for (question, answers), places in zip(QUESTIONS.items(), first, strict=True)
        if not any(place.startswith(answers) for place in places)
    }
    assert wrong == {}
