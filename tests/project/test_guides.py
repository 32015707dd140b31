"""What guides say of this tree is so: the table of contents is complete, the commands and tests they name are there."""

import importlib.util
import re

import pytest
from documents import ROOT, blocks, contents, prose
from test_peers import absent

CONTENTS = (ROOT / "docs" / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
QUESTIONS = (ROOT / "docs" / "faq.md").read_text()


@pytest.fixture(scope="module")
def tasks() -> set[str]:
    """What run.py does."""
    spec = importlib.util.spec_from_file_location("run", ROOT / "tests" / "project" / "run_tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return set(module.TASKS)


def test_the_table_of_contents_has_every_page():
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#]+\.md)", CONTENTS)}
    assert [page.name for page in contents() if page not in linked and page.name != "README.md"] == []
    assert {ROOT / "README.md", ROOT / "benchmarks" / "README.md"} <= linked


def test_commands_of_contributors_are_there(tasks):
    named = set(re.findall(r"python3 run\.py (\w+)", CONTRIBUTING))
    assert named <= tasks
    assert tasks - named <= {"digits", "photographs", "ddp"}  # the examples, which the README is about


def test_files_that_contributors_are_sent_to_are_there():
    named = set(re.findall(r"`((?:ffrecord|tests|benchmarks|docs)/[\w/.]+?)/?`", prose(CONTRIBUTING)))
    assert len(named) > 8
    assert [name for name in named if "NAME" not in name and not (ROOT / name).exists()] == []


def test_answers_lead_to_tests_that_are_there():
    assert absent(prose(QUESTIONS)) == []


def test_every_answer_says_what_shows_it():
    answers = re.split(r"^### ", QUESTIONS, flags=re.MULTILINE)[1:]
    assert len(answers) > 20
    assert [answer.splitlines()[0] for answer in answers if "](" not in answer and "(`test_" not in answer] == []


@pytest.mark.parametrize("page", ["tutorial", "ranks", "states", *(f"from-{name}" for name in ("ffcv", "zip"))])
def test_guides_are_programs(page):
    """Or nothing would be run."""
    assert any(block.language == "python" for block in blocks((ROOT / "docs" / f"{page}.md").read_text()))


# Lists to look things up in, and the specification, whose code is at its end.
LISTS = {"docs/faq.md", "docs/format.md", "docs/peers.md"}
PAGES = [page for page in contents() if page.is_relative_to(ROOT / "docs")]
PAGES = [page for page in PAGES if not {"reference", "decisions"} & set(page.parts)]


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_begin_with_their_purpose_and_code(page):
    """A sentence first, then code: before the second heading below the title."""
    text = page.read_text()
    begin = re.split(r"^## ", text, flags=re.MULTILINE)
    first = begin[0].partition("\n")[2].strip()
    assert first and not first.startswith(("```", "|", "!", ":::")), "it begins with what the page is for"
    if str(page.relative_to(ROOT)) not in LISTS:
        assert "```" in "".join(begin[:3]), "it has code at its beginning"
