"""The README is short and true: its order, its code, its commands; and the pages of all names and of installing."""

import importlib
import re
import subprocess
import sys

import pytest
from documents import ROOT, blocks, broken_links, run_elsewhere

README = ROOT / "README.md"
TEXT = README.read_text()
CODE = [block for block in blocks(TEXT) if block.language == "python"]
SHELL = "".join(block.text for block in blocks(TEXT) if block.language == "sh")
NAMES = (ROOT / "docs" / "names.md").read_text()
INSTALL = (ROOT / "docs" / "install.md").read_text()
ORDER = ["Install", "The main job", "Your files as they are", "Stop and go on", "Figures", "Limits", "More"]


def test_code_runs(tmp_path):
    done = run_elsewhere(README, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^train/: 1000 samples, 3\.0\d MB in 1 shard", done.stdout, re.MULTILINE)


def test_main_job_is_short():
    assert "DatasetWriter" in CODE[0].text
    assert len(CODE[0].text.splitlines()) <= 15


def test_is_short_and_in_order():
    lines = TEXT.splitlines()
    assert len(lines) <= 130
    assert next(i for i, line in enumerate(lines, 1) if line.startswith("pip install")) < 40
    assert [line.removeprefix("## ") for line in lines if line.startswith("## ")] == ORDER
    picture = re.search(r"^!\[.+\]\((docs/plots/\S+)\)$", TEXT.split("\n## ")[0], re.MULTILINE)
    assert (ROOT / picture[1]).stat().st_size < 50_000


def test_figures_are_those_of_the_benchmarks():
    """Of each row with a ratio: it is a median in benchmarks/tables, losses included."""
    ratios = re.findall(r"^\|.*\| (\d+\.\d+) \|$", section("Figures"), re.MULTILINE)
    tables = "".join(table.read_text() for table in (ROOT / "benchmarks" / "tables").glob("*.md"))
    measured = re.findall(r"^\| .* / .* \| (\d+\.\d+) \(", tables, re.MULTILINE)
    assert len(ratios) == 10
    assert [ratio for ratio in ratios if ratio not in measured] == []
    assert sum(float(ratio) < 1 for ratio in ratios) >= 3


def test_links_lead_somewhere():
    assert broken_links(README) == []


def section(heading: str) -> str:
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def names_listed() -> list[str]:
    return sorted(set(re.findall(r"`(ffrecord\.[\w.]+)", NAMES)))


@pytest.mark.parametrize("name", names_listed())
def test_names_exist(name):
    module, _, attribute = name.rpartition(".")
    if name.startswith("ffrecord.ray"):
        pytest.importorskip("ray", reason="ray is not installed: ffrecord.ray cannot be imported")
    try:
        assert hasattr(importlib.import_module(module), attribute)
    except AssertionError:
        importlib.import_module(name)


def test_everything_public_is_named():
    import ffrecord
    import ffrecord.torch

    old = {"checkFsAlign", "fileio", "package"}  # kept for programs written for 1.x
    public = {f"ffrecord.{name}" for name in dir(ffrecord) if not name.startswith("_") and name not in old}
    beside = ["BatchSampler", "IterableDataset", "Sampler", "collate"]  # public, though a star does not bring them
    public |= {f"ffrecord.torch.{name}" for name in [*ffrecord.torch.__all__, *beside]}
    named = names_listed()
    assert {name for name in public if not any(each == name or each.startswith(f"{name}.") for each in named)} == set()


def test_commands_are_tasks():
    tasks = set(re.findall(r"python3 run\.py ([a-z]\w*)", TEXT + INSTALL + (ROOT / "docs" / "programs.md").read_text()))
    assert {"digits", "test"} <= tasks
    listed = subprocess.run([sys.executable, ROOT / "run.py", "--help"], capture_output=True, text=True, check=True)
    assert tasks <= set(re.findall(r"^  (\w+) ", listed.stdout, re.MULTILINE))


def test_build_runs_the_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    (command,) = re.findall(r"^exec (python3 run\.py test)\b", script, re.MULTILINE)
    assert command in SHELL


def test_extras_are_those_there_are():
    listed = re.findall(r"^\| `(\w+)` \|", NAMES.split("## Optional packages")[1], re.MULTILINE)
    metadata = (ROOT / "pyproject.toml").read_text()
    extras = metadata.split("[project.optional-dependencies]")[1].split("\n[")[0]
    assert sorted(listed) == sorted(re.findall(r"^(\w+) = ", extras, re.MULTILINE))
    everything = re.search(r"\[([\w,]+)\]\"  # everything$", INSTALL, re.MULTILINE)
    assert sorted(everything[1].split(",")) == sorted(listed)
