"""docs/guarantees.md: every promise has a test, and its tables and TESTS.md are those of the kept run."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "reliability"))
import guarantees  # noqa: E402

PROMISED = re.findall(r"^\*\*(G\d+)\. ", guarantees.PAGE.read_text(), re.MULTILINE)
# What docs/guarantees.md must show at least, from a long run.
LEAST = {
    "kills survived": 10_000,
    "disk-full points": 600,
    "injected errors": 1_400,
    "bit flips": 3_232,
    "random mutations under sanitizers": 1_000_000,
    "fuzz executions": 10_000_000,
    "failing opens without a leaked descriptor": 10_000,
    "worker kills noticed": 500,
    "planted defects found": 15,
}


def test_the_pages_are_what_the_kept_run_gives():
    made = guarantees.pages(guarantees.rendered(guarantees.read(guarantees.RESULTS)))
    assert {page: page.read_text() for page in made} == made
    assert guarantees.PAGE in made and guarantees.TESTS in made


@pytest.mark.parametrize("promise", PROMISED)
def test_each_promise_has_tests(promise):
    assert [guard.name for guard in guarantees.guards() if promise in guard.guards]


def test_ten_promises_and_no_other_is_named():
    assert [f"G{i}" for i in range(1, 11)] == PROMISED
    assert {name for guard in guarantees.guards() for name in guard.guards} <= set(PROMISED)


def test_the_tests_of_found_defects_are_there():
    sources = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    every = "".join(sources.values())
    found = re.findall(
        r"`(test_\w+\.py)?(?:::)?(test_\w+)?(?:\[[^`]*\])?`", (ROOT / "tests" / "reliability" / "FOUND.md").read_text()
    )
    named = [(file, name) for file, name in found if file or name]
    assert len(named) > 100
    for file, name in named:
        assert not name or f"def {name}(" in (sources.get(file, "") if file else every), (file, name)
        assert not file or file in sources, file


@pytest.mark.parametrize("name", LEAST)
def test_the_kept_run_was_long(name):
    total = sum(line["sums"].get(name, 0) for line in guarantees.read(guarantees.RESULTS)[1:])
    assert total >= LEAST[name]


def test_a_dead_worker_was_noticed_within_a_second():
    name = "seconds to notice a dead worker"
    assert 0 < max(line["most"].get(name, 0) for line in guarantees.read(guarantees.RESULTS)[1:]) <= 1


def test_files_that_do_not_say_what_they_guard_are_named(tmp_path, monkeypatch):
    (tmp_path / "test_a.py").write_text('"""Nothing."""\n')
    monkeypatch.setattr(guarantees, "HERE", tmp_path)
    with pytest.raises(SystemExit, match=r"test_a\.py: the first line does not say"):
        guarantees.guards()


def test_skipped_tests_are_told_with_their_reasons():
    line = {"test": "tests/reliability/test_mounts.py::test_writing[xfs]", "seconds": 0, "sums": {}, "most": {}}
    head, *lines = guarantees.read(guarantees.RESULTS)
    lines = [each for each in lines if "skipped" not in each]
    before = guarantees.rendered([head, *lines])
    after = guarantees.rendered([head, *lines, {**line, "skipped": "no xfs |\n here"}])
    assert after["run"].endswith("; 1 more were skipped, for the reasons in the table of tests.")
    assert after["run"].split(" tests,")[0] == before["run"].split(" tests,")[0]
    (row,) = set(after["tests"].splitlines()) - set(before["tests"].splitlines())
    assert "test_mounts.py" in row and "| 1: no xfs \\| here |" in row
