"""The examples run as people run them, do what they say, and draw a picture."""

import json
import re
import struct
import subprocess
import sys
from importlib import util
from pathlib import Path

import pytest
from preloaded import WARNINGS, run_preloaded

from ffrecord import FileReader, PackedFolder
from ffrecord.fields import IntField, JPEGField, NDArrayField, schema_of

EXAMPLES = Path(__file__).parents[2] / "examples"
NEEDED = ("matplotlib", "simplejpeg", "skimage", "sklearn", "torch")
MISSING = [name for name in NEEDED if util.find_spec(name) is None]

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"the examples need {', '.join(MISSING)}")


def run(name: str, out: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_preloaded(EXAMPLES / name, "--out", str(out), *arguments, directory=out)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ddp.py", "digits.py", "photographs.py"])
def test_nothing_imported_before(tmp_path, name):
    """All else runs in forks of a process that has imported the packages of others."""
    done = subprocess.run(
        [sys.executable, *WARNINGS, str(EXAMPLES / name), "--out", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def test_digits(tmp_path):
    done = run("digits.py", tmp_path, "--epochs", "8")
    assert done.returncode == 0, done.stdout + done.stderr
    accuracy = re.search(r"accuracy: ([0-9.]+)% of 360 test digits", done.stdout)
    assert accuracy, done.stdout
    assert 97 <= float(accuracy[1]) <= 100
    # The example itself compares what the two say to every test digit.
    losses = re.findall(r"^trained: .* loss ([0-9.]+), .* with (.*)$", done.stdout, re.MULTILINE)
    assert [name for _, name in losses] == ["ffrecord.torch.Loader", "torch's DataLoader"]
    assert losses[0][0] == losses[1][0]
    assert "1437 samples, 103 kB in 6 shards" in done.stdout
    assert len(re.findall(r"^(?:written|read): .* [kM]B/s$", done.stdout, re.MULTILINE)) == 4
    assert min(png_size(tmp_path / "digits.png")) > 600
    look_at("digits/train", tmp_path)


def look_at(dataset: str, out: Path) -> None:
    """The commands of the page about the programs; the page with pictures is one file here."""
    page = (EXAMPLES.parent / "docs" / "programs.md").read_text()
    for command, options, said in (
        ("verify", [], "every CRC-32 matches"),
        ("view", ["--export", "page.html"], "page.html"),
    ):
        assert f"ffrecord {command} out/{dataset} " in page
        line = [sys.executable, "-W", "error", "-m", "ffrecord", command, dataset, *options]
        done = subprocess.run(line, cwd=out, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, said in done.stdout) == (0, True), done.stdout + done.stderr
    assert '"samples": 1437' in (out / "page.html").read_text()


@pytest.mark.long
def test_digits_below_the_wanted_accuracy_fails(tmp_path):
    done = run("digits.py", tmp_path, "--epochs", "1", "--workers", "0")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "expected at least 97%" in done.stderr
    with FileReader(tmp_path / "digits" / "train") as reader:
        schema = schema_of(reader)
        assert len(reader) == 1437
        assert schema.fields == {"image": NDArrayField("uint8", (8, 8)), "label": IntField()}
        assert schema.decode(reader[0])["image"].max() <= 16


def test_photographs(tmp_path):
    done = run("photographs.py", tmp_path, "--crops", "12", "--rounds", "2", "--batch", "16")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "180 JPEG files (180 distinct) cut from 15 photographs" in done.stdout
    assert "checked: 180 samples" in done.stdout
    assert len(re.findall(r"^  (?:bytes|pixels): .* samples/s .* MB/s of JPEG$", done.stdout, re.MULTILINE)) == 5
    assert min(png_size(tmp_path / "photographs.png")) > 600
    with PackedFolder(tmp_path / "photographs" / "folder.ffr") as packed:
        assert packed.num_files() == 180
        assert bytes(packed.read_one("cat/0003.jpg")[:3]) == b"\xff\xd8\xff"
    with FileReader(tmp_path / "photographs" / "shards") as reader:
        assert schema_of(reader).fields == {"image": JPEGField(), "label": IntField()}


def test_ddp(tmp_path):
    """The example itself compares what its processes saw with the order promised; here the sum is done again."""
    done = run("ddp.py", tmp_path, "--epochs", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "run 1: 2 ranks, stopped in epoch 1 at sample 480" in done.stdout
    assert "run 2: 1 ranks, stopped in epoch 1 at sample 864" in done.stdout
    assert "run 3: 3 ranks, stopped in epoch 2 at sample 0" in done.stdout
    seen: dict[int, list[int]] = {0: [], 1: []}
    for number, ranks in ((1, 2), (2, 1), (3, 3)):
        for rank in range(ranks):
            for epoch, indices, padding in json.loads((tmp_path / "ddp" / f"seen-{number}-{rank}.json").read_text()):
                seen[epoch] += indices[: len(indices) - padding]
    assert [sorted(epoch) for epoch in seen.values()] == [list(range(1437))] * 2
    assert seen[0] != seen[1]
    accuracy = re.search(r"accuracy: ([0-9.]+)% of the test digits", done.stdout)
    assert accuracy and 85 <= float(accuracy[1]) <= 100, done.stdout


@pytest.mark.parametrize("name", ["digits.py", "photographs.py"])
def test_wrong_options(tmp_path, name):
    done = run(name, tmp_path, "--workers", "-2")
    assert done.returncode == 2
    assert "--workers 0 or more" in done.stderr
    assert list(tmp_path.iterdir()) == []
