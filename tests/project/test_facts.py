"""Nothing true was lost when the documents were cut: each fact of the old pages still stands somewhere.

`facts.tsv` has a line for each fact of the pages of commit 2c5911b: old page, fact, place, phrase. The place is a page
with a heading, a public name of the reference, a `--help`, or a reason why the fact went. The phrase stands there; `…`
is any text between its parts. If you move a fact, change its place; if it is no longer true, write `reason: ` and what
is true now.
"""

import ast
import importlib
import inspect
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from documents import FENCE, ROOT

from ffrecord.cli.command_line import parse

FACTS = ROOT / "tests" / "project" / "facts.tsv"
REASON, HELP = "reason: ", re.compile(r"ffrecord (\w+) --help")
SLOW = ("torch", "ray")  # modules that take seconds to import: their docstrings are read from the sources
LEAST = 1_500  # facts

# The pages at commit 2c5911b: README.md, and these of docs.
DOCS = """
    README benchmarks beton command converting ddp design examples exporting faq fields folders format from-ffcv
    from-ffrecord-1 from-tfrecord from-webdataset from-zip guarantees image-folders images lmdb mds ordering peers
    ray reading recordio remote remote-cache remote-writing resume scale sources tar tfrecord torch training
    tutorial writing zip reference/errors reference/ffrecord reference/fields reference/images reference/old-names
    reference/order reference/ray reference/sources reference/torch
"""
OLD_PAGES = ["README.md", *(f"docs/{name}.md" for name in DOCS.split())]


class Fact(NamedTuple):
    """A line of facts.tsv, with its number."""

    line: int
    page: str
    fact: str
    place: str
    phrase: str


def facts() -> list[Fact]:
    rows = [line.split("\t") for line in FACTS.read_text().splitlines()]
    assert [number for number, row in enumerate(rows, 1) if len(row) != 4] == []
    return [Fact(number, *row) for number, row in enumerate(rows, 1)]


ALL = facts()


def plain(text: str) -> str:
    """Return a text in small letters with single spaces."""
    return " ".join(text.casefold().split())


def stands(phrase: str, text: str) -> bool:
    """Tell whether the parts of a phrase stand in a text, in their order."""
    parts = [re.escape(plain(part)) for part in phrase.split("…")]
    return re.search(".*?".join(parts), plain(text)) is not None


@cache
def sections(page: Path) -> dict[str, str]:
    """Return anchor → text from its heading to the next one. Lines of code are no headings."""
    text = page.read_text()
    masked = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    found = [(each.start(), each[1]) for each in re.finditer(r"^#+ (.*)$", masked, re.MULTILINE)]
    ends = [start for start, _ in found[1:]] + [len(text)]
    anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for _, heading in found]
    return {anchor: text[start:end] for anchor, (start, _), end in zip(anchors, found, ends, strict=True)}


@cache
def described() -> frozenset[str]:
    """Return the names that the reference describes."""
    pages = (ROOT / "docs" / "reference").glob("*.md")
    return frozenset(name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE))


@cache
def definitions(folder: str) -> dict[str, ast.AST]:
    """Return name → definition of the classes and functions in a folder of the package."""
    trees = [ast.parse(path.read_text()) for path in sorted((ROOT / "ffrecord" / folder).rglob("*.py"))]
    nodes = [node for tree in trees for node in tree.body]
    return {node.name: node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def read_docstring(folder: str, name: str) -> str:
    """Return the docstring of a class, a method of it or its bases, or a function, without importing it."""
    owner, _, method = name.partition(".")
    node = definitions(folder)[owner]
    if not method:
        return ast.get_docstring(node) or ""  # type: ignore[arg-type]
    for each in node.body:  # type: ignore[attr-defined]
        if isinstance(each, ast.FunctionDef) and each.name == method:
            return ast.get_docstring(each) or ""
    bases = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]  # type: ignore[attr-defined]
    inherited = [base.id for base in bases if isinstance(base, ast.Name) and base.id in definitions(folder)]
    return next(filter(None, (read_docstring(folder, f"{base}.{method}") for base in inherited)), "")


def docstring(name: str) -> str:
    """Return the docstring of a public name, or of a member of one, as the reference shows it."""
    owner = next(each for each in (name, name.rpartition(".")[0]) if each in described())
    module, _, attribute = owner.rpartition(".")
    member = name[len(owner) + 1 :]
    if module.split(".")[1:2] and module.split(".")[1] in SLOW:
        return read_docstring(module.split(".")[1], ".".join(filter(None, (attribute, member))))
    thing = getattr(importlib.import_module(module), attribute)
    return inspect.getdoc(getattr(thing, member) if member else thing) or ""


def text_at(place: str) -> str:
    """Return the text of a place.

    Raises:
        LookupError, AttributeError, OSError, StopIteration: there is no such place.
    """
    if command := HELP.fullmatch(place):
        return help_of(command[1])
    if place.startswith("ffrecord."):
        return docstring(place)
    page, _, anchor = place.partition("#")
    return sections(ROOT / page)[anchor]


@cache
def help_of(command: str) -> str:
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr("ffrecord.cli.terminal.output.Output.line", lambda self, text="": printed.append(text))
        parse([command, "--help"])
    return "\n".join(printed)


def wrong(fact: Fact) -> str | None:
    """Return why a fact is not told where its line says; None if it is."""
    if fact.place.startswith(REASON):
        return None if len(fact.place) > len(REASON) + 10 and not fact.phrase else "a reason of some words, no phrase"
    try:
        text = text_at(fact.place)
    except (LookupError, AttributeError, OSError, StopIteration):
        return f"no such place: {fact.place}"
    return None if fact.phrase and stands(fact.phrase, text) else f"{fact.place} does not say {fact.phrase!r}"


@pytest.mark.parametrize("page", OLD_PAGES)
def test_facts_of_an_old_page_stand_where_the_list_says(page):
    mine = [fact for fact in ALL if fact.page == page]
    assert mine
    assert [f"{fact.line}: {found}" for fact in mine if (found := wrong(fact))] == []


def test_facts_are_of_old_pages_and_each_is_told_once():
    assert [fact.line for fact in ALL if fact.page not in OLD_PAGES] == []
    assert [fact.line for fact in ALL if len(fact.fact.split()) < 2] == []
    assert len({(fact.page, plain(fact.fact)) for fact in ALL}) == len(ALL) >= LEAST


def test_missing_places_and_phrases_are_noticed():
    fact = Fact(1, "README.md", "Linux only", "README.md#limits", "runs on Linux")
    assert wrong(fact) is None
    assert wrong(fact._replace(phrase="runs on … Linux only")) is None
    assert "does not say" in str(wrong(fact._replace(phrase="runs on Windows")))
    assert "does not say" in str(wrong(fact._replace(place="ffrecord get --help")))
    assert "does not say" in str(wrong(fact._replace(place="ffrecord.torch.Subset.close")))
    for place in ("README.md#limit", "docs/none.md#limits", "ffrecord.Reader", "ffrecord.FileReader.write"):
        assert wrong(fact._replace(place=place)) == f"no such place: {place}"
    assert wrong(fact._replace(place="reason: so")) is not None
    assert stands("five … seven", "Five,\n  six  seven") and not stands("seven … five", "five seven")
