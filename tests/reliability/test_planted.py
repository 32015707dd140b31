"""Surface (guarantees G1, G2, G3, G4, G5, G6, G7, G8, G9, G10): Mistakes planted in copies of our code are found."""

import json
from pathlib import Path

import plant as planting
import pytest
from figures import Counted
from plant import plant
from planted import DEFECTS, Defect
from planted.defect import FAILURE
from planted.tree import ROOT
from planted.trial import Outcome

# Some of every list: `python3 run.py planted` tries all of them, which takes longer than a test may.
QUICK = [defect for defect in DEFECTS if not defect.compiled and defect.sign == FAILURE][::2]
COMPILED = [defect for defect in DEFECTS if defect.compiled and defect.sign == FAILURE][::6]


def test_the_list_is_true_of_the_sources() -> None:
    """Each text is there exactly once: whoever changes it says what the mistake would be now."""
    assert [complaint for defect in DEFECTS for complaint in defect.complaints(ROOT)] == []


def test_names_are_unique_and_each_breaks_a_promise() -> None:
    assert len({defect.name for defect in DEFECTS}) == len(DEFECTS) >= 25
    assert len({(defect.file, defect.text, defect.mistake) for defect in DEFECTS}) == len(DEFECTS)
    promises = {f"G{number}" for number in range(1, 11)}
    broken = [set(defect.breaks.split(", ")) for defect in DEFECTS]
    assert all(each <= promises for each in broken)
    assert set().union(*broken) == promises


def test_a_mistake_whose_place_is_gone_is_told(tmp_path: Path) -> None:
    (tmp_path / "ffrecord").mkdir()
    (tmp_path / "ffrecord" / "a.py").write_text("twice\ntwice\n")
    for text, count in (("twice", 2), ("never", 0)):
        gone = Defect("name", "G1", "ffrecord/a.py", text, "", ("test_none.py::test_nothing",))
        told = gone.complaints(tmp_path)
        assert told == [
            f"name: name: its text is in ffrecord/a.py {count} times, expected once",
            "name: there is no test test_none.py::test_nothing",
        ]


def test_the_command_appends_how_many_were_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that survives is not counted among them; here the trials themselves are left out."""
    first, second = DEFECTS[:2]
    outcomes = [Outcome(first, True, "test_a", 1), Outcome(second, False, "survived: every test passed", 1)]
    monkeypatch.setattr(planting, "plant", lambda defects, jobs, tell: outcomes)
    assert planting.main([first.name, second.name, "--figures", str(tmp_path / "out" / "figures.jsonl")]) == 1
    assert "1 of 2 planted defects found" in capsys.readouterr().out
    (line,) = map(json.loads, (tmp_path / "out" / "figures.jsonl").read_text().splitlines())
    assert line["test"] == "python3 run.py planted"
    assert line["sums"] == {"planted defects found": 1, "planted defects not found": 1}


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("defects", [QUICK, COMPILED], ids=["Python", "compiled"])
def test_planted_defects_are_found(defects: list[Defect], counted: Counted) -> None:
    outcomes = plant(defects, 1, lambda outcome: None)
    survivors = [(outcome.defect.name, outcome.said) for outcome in outcomes if not outcome.found]
    assert survivors == []
    counted.add("planted defects found", len(outcomes))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_is_no_mistake_survives(tmp_path: Path) -> None:
    """The tool does not find what is not there."""
    harmless = Defect(
        "nothing",
        "G1",
        "ffrecord/system/atomic_file.py",
        "COPY_CHUNK = 8 << 20\n",
        "COPY_CHUNK = 1 << 23\n",
        ("test_atomic_file.py",),
    )
    (outcome,) = plant([harmless], 1, lambda outcome: None)
    assert (outcome.found, outcome.said) == (False, "survived: every test passed")
