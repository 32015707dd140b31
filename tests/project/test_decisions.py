"""The pages of docs/decisions: one number, one date, three short parts each, and an index that lists them all."""

import re
from datetime import date
from pathlib import Path

import pytest
from documents import DECISIONS, ROOT

PAGES = sorted(DECISIONS.glob("[0-9]*.md"))
PAGE = re.compile(
    r"# (?P<number>\d+)\. (?P<title>.+)\n\n(?P<date>\d{4}-\d\d-\d\d)\n\n"
    r"\*\*Context\.\*\* .+?\n\n\*\*Decision\.\*\* .+?\n\n\*\*Consequences\.\*\* .+",
    re.DOTALL,
)


def test_numbers_are_consecutive() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))
    assert len(PAGES) >= 40


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_are_short_dated_and_complete(page: Path) -> None:
    text = page.read_text()
    found = PAGE.fullmatch(text)
    assert found, f"{page}: expected a title, a date, context, decision and consequences"
    assert int(found["number"]) == int(page.name[:4])
    assert date.fromisoformat(found["date"])
    assert 10 <= len(text.splitlines()) <= 20
    assert max(map(len, text.splitlines())) <= 120


def test_the_index_lists_every_decision_in_order() -> None:
    listed = re.findall(r"^- \[(.+)\]\((\S+\.md)\)$", (DECISIONS / "README.md").read_text(), re.MULTILINE)
    headings = [page.read_text().splitlines()[0].removeprefix("# ") for page in PAGES]
    assert listed == list(zip(headings, [page.name for page in PAGES], strict=True))


def test_the_map_is_short() -> None:
    lines = (ROOT / "docs" / "design.md").read_text().splitlines()
    assert len(lines) <= 200 and max(map(len, lines)) <= 120
