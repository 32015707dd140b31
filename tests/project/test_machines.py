"""machines.py and release.py: what they read from a run, and what they write. No machine is made."""

import json
import os
import subprocess
import sys
import zipfile
from importlib import import_module, metadata
from pathlib import Path

import pytest

import ffrecord

sys.path.insert(0, str(Path(__file__).parent))
machines, release = import_module("machines"), import_module("release")

RESULT = {
    "machine": "debian-12",
    "python": "3.11.2",
    "failed": [],
    "commit": "abc",
    "cpus": 2,
    "date": "2026-11-26",
    "digits": 83.4,
    "again": 11.2,
    "accuracy": "99.44%",
    "megabytes": 412,
}


@pytest.mark.parametrize(
    "printed, expected",
    [
        ("===== 14295 passed, 57 skipped in 700.12s (0:11:40) =====\n", "14295 passed, 57 skipped in 700.12s"),
        ("..\n9807 passed, 171 skipped in 60.1s (0:01:00)\n", "9807 passed, 171 skipped in 60.1s (0:01:00)"),
        ("making\nrun.py: torch cannot be had\n", "run.py: torch cannot be had"),
        ("accuracy: 99%\nall in 10.8 s\n", "all in 10.8 s"),
        ("", "it printed nothing"),
    ],
)
def test_how_a_command_ended(printed, expected):
    assert machines.closing_line(printed) == expected


def test_the_page_has_the_newest_result_of_each_machine(tmp_path, monkeypatch, capsys):
    page, results = tmp_path / "machines.md", tmp_path / "machines.jsonl"
    page.write_text("# Machines\n\n<!-- results -->\nold\n<!-- end of results -->\n\nMore.\n")
    older, other = (
        RESULT | {"digits": 500.0},
        RESULT | {"machine": "python3.15", "accuracy": "no torch", "failed": ["again"], "load": 7.6},
    )
    newer = RESULT | {"tests": "test --quick", "outcome": "9807 passed"}
    results.write_text("".join(json.dumps(each) + "\n" for each in (older, other, newer)))
    monkeypatch.setattr(machines, "PAGE", page)
    monkeypatch.setattr(machines, "RESULTS", results)
    machines.page()
    text = page.read_text()
    assert "| debian-12 | 3.11.2 | 83 s | 11 s | 412 MB | test --quick: 9807 passed | 2 | 2026-11-26, abc |\n" in text
    assert "| python3.15 | 3.11.2 | no torch | – | 412 MB | not run | 2, load 8 | 2026-11-26, abc |\n" in text
    assert "old" not in text and "500" not in text and text.startswith("# Machines\n") and text.endswith("\nMore.\n")


def test_torch_does_not_count(tmp_path):
    for name in ("torch/a", "nvidia_cuda/b", "numpy/c", "torchdata/d"):
        path = tmp_path / "lib" / "site-packages" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(2_000_000))
    assert machines.megabytes(tmp_path) == 4


def test_pythons_of_this_computer_run():
    found = list(machines.local_pythons())
    assert found and all(Path(each.python).is_absolute() and machines.OURS not in each.python for each in found)


def test_the_version_is_one():
    assert release.read_version()[0] == ffrecord.__version__ == metadata.version("ffrecord")


def test_a_version_that_is_not_yet_released_is_a_trial(tmp_path, monkeypatch):
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "2.1.0"\n')
    changes = tmp_path / "CHANGELOG.md"
    changes.write_text("# Changelog\n\n## 2.1.0 (2026-12-01)\n\n## 2.0.0 (not yet released)\n")
    assert release.read_version() == ("2.1.0", "")
    changes.write_text("# Changelog\n\n## 2.1.0 (not yet released)\n")
    assert release.read_version() == ("2.1.0", 'CHANGELOG.md says that 2.1.0 is "not yet released"')
    changes.write_text("# Changelog\n\n## 2.0.0 (2026-12-01)\n")
    with pytest.raises(SystemExit, match=r"has version 2\.1\.0, the newest in CHANGELOG\.md is 2\.0\.0"):
        release.read_version()


def test_files_that_are_not_committed(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init")
    for name in ("same", "old name", "changed", "removed"):
        (tmp_path / name).write_text(name * 100)
    git("add", ".")
    git("commit", "--message", "All")
    assert release.uncommitted_files(tmp_path) == []
    git("mv", "old name", "new name")
    (tmp_path / "changed").write_text("x")
    (tmp_path / "removed").unlink()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "file äö").touch()
    assert sorted(release.uncommitted_files(tmp_path)) == ["changed", "new name", "new/file äö", "removed"]


def test_only_an_earlier_release_is_replaced(tmp_path, monkeypatch, capsys):
    for name in ("SHA256SUMS", "CONTENTS.txt", "ffrecord-2.0.0.tar.gz", "ffrecord-2.0.0-cp312-cp312-linux.whl"):
        (tmp_path / name).touch()
    (tmp_path / release.WORK).mkdir()
    assert release.foreign_files(tmp_path) == release.foreign_files(tmp_path / "none") == []
    (tmp_path / "work").mkdir()
    assert release.foreign_files(tmp_path) == ["work"]
    for out, told in ((tmp_path, "holds work, which"), (tmp_path / "SHA256SUMS", "/SHA256SUMS, which")):
        monkeypatch.setattr(sys, "argv", ["release.py", "--out", str(out)])
        with pytest.raises(SystemExit):
            release.main()
        assert told in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == 6


def test_a_wrong_version_leaves_the_earlier_release(tmp_path, monkeypatch):
    (tmp_path / "SHA256SUMS").touch()

    def refuse():
        raise SystemExit("release: versions differ")

    monkeypatch.setattr(release, "read_version", refuse)
    monkeypatch.setattr(sys, "argv", ["release.py", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="versions differ"):
        release.main()
    assert (tmp_path / "SHA256SUMS").exists()


@pytest.mark.parametrize("program", ["machines", "release"])
def test_ctrl_c_is_no_traceback(tmp_path, program):
    """Whichever of the programs' own lines it arrives at: here they are asked for help."""
    code = (
        "import argparse, runpy, sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "def interrupt(*given): raise KeyboardInterrupt\n"
        "argparse.ArgumentParser.parse_args = interrupt\n"
        f"runpy.run_module({program!r}, run_name='__main__')\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (130, "")


def test_sigterm_ends_what_was_started():
    code = (
        "import subprocess, sys; sys.path.insert(0, sys.argv[1]); import machines\n"
        "machines.run_program(lambda: subprocess.run(['sh', '-c', 'sleep 0.5; echo $$; exec sleep 60']).returncode)\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait(timeout=30) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_sums_and_contents(tmp_path):
    with zipfile.ZipFile(tmp_path / "ffrecord-1-py3-none-any.whl", "w") as archive:
        archive.writestr("ffrecord/__init__.py", "x" * 1234)
    release.describe(tmp_path)
    assert (tmp_path / "SHA256SUMS").read_text().endswith("  ffrecord-1-py3-none-any.whl\n")
    assert "     1,234  ffrecord/__init__.py" in (tmp_path / "CONTENTS.txt").read_text()
