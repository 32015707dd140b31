"""Prose: how long the pages and sentences are, whom they address, and how words are spelled."""

import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MOST_WORDS = 40_000
MEDIAN, LONG = 12, 26  # words of a sentence: of half of them, and of 95 %
MOST_OF_A_PAGE = 36  # words, of 95 % of the sentences of any single page
LEAST_SENTENCES = 20  # of a page, to say something of its longest
WHAT_MOST, YOU_LEAST = 1.5, 6  # in 1,000 words
WORD = re.compile(r"[A-Za-z][\w'-]*")
AVOIDED = ROOT / "tests" / "project" / "words.txt"  # in the form of codespell: word->what to say
SPELLED = (
    *("README.md", "docs", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "ffrecord"),
    *("tests/PEERS.md", "tests/reliability/FOUND.md", "tests/reliability/TESTS.md", "benchmarks/README.md"),
)


def prose(page: Path) -> str:
    """Return a page without its blocks of code and comments."""
    return re.sub(r"<!--.*?-->", " ", re.sub(r"```.*?```", " ", page.read_text(), flags=re.DOTALL), flags=re.DOTALL)


def sentences(text: str) -> list[int]:
    """Return the number of words of each sentence; headings, tables and HTML are none."""
    found = []
    for paragraph in re.split(r"\n\s*\n", text):
        if paragraph.lstrip().startswith(("|", "#", "!", "<", ":::")):
            continue
        plain = " ".join(line for line in paragraph.splitlines() if not line.lstrip().startswith("|"))
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "x", plain))
        lengths = [len(sentence.split()) for sentence in re.split(r"(?<=[.!?:])\s+", plain)]
        found += [length for length in lengths if length > 2]
    return found


def test_pages_are_short() -> None:
    assert sum(len(WORD.findall(prose(page))) for page in PAGES) <= MOST_WORDS


def test_sentences_are_short() -> None:
    lengths = sorted(length for page in PAGES for length in sentences(prose(page)))
    assert statistics.median(lengths) <= MEDIAN
    assert lengths[int(0.95 * len(lengths))] < LONG


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_long_sentences(page: Path) -> None:
    lengths = sorted(sentences(prose(page)))
    if len(lengths) >= LEAST_SENTENCES:
        assert lengths[int(0.95 * len(lengths))] <= MOST_OF_A_PAGE


def test_readers_are_addressed() -> None:
    words = [word.lower() for page in PAGES for word in WORD.findall(prose(page))]
    assert 1000 * words.count("what") / len(words) <= WHAT_MOST
    assert 1000 * (words.count("you") + words.count("your")) / len(words) >= YOU_LEAST


def test_a_change_has_one_line() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text().split("\n## ", 2)[2]  # after the promises of a version
    assert re.findall(r"^- .*\n  .*", changes, re.MULTILINE) == []
    assert len(re.findall(r"^- ", changes, re.MULTILINE)) > 200


def test_avoided_words_are_in_order_and_have_a_better_one() -> None:
    lines = AVOIDED.read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z]+->([a-z, ]*[a-z]|, [a-z ]+)", line)] == []
    assert lines == sorted(set(lines))
    assert AVOIDED.name in (ROOT / "pyproject.toml").read_text()


def test_words_are_spelled_as_agreed() -> None:
    """As `run.py lint` does, which sees the same files."""
    pytest.importorskip("codespell_lib")
    command = [sys.executable, "-m", "codespell_lib", *SPELLED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("", "")
    lint = (ROOT / "tests" / "project" / "run_tasks.py").read_text()
    assert all(f'"{name}"' in lint for name in SPELLED)
