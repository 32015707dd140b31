"""No command makes a directory called "~": a path that only the shell expands is a wrong argument."""

from pathlib import Path

import numpy as np
import pytest
from cli_runs import run

import ffrecord
from ffrecord import DatasetWriter

COMMANDS = (
    "convert set {}",
    "export set {}.zip",
    "pack folder {}.ffr",
    "unpack packed.ffr {}",
    "shuffle set {}",
    "merge set set -o {}",
    "split set {}=0.5 other=0.5",
    "write set.npy {}",
    "bench set --plot {}.png",
    "stats set --plot {}.png",
    "info {}",
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"a")
    DatasetWriter(tmp_path / "set", num_workers=0).from_indexed_dataset([{"x": index} for index in range(3)])
    ffrecord.pack_folder(tmp_path / "folder", tmp_path / "packed.ffr")
    np.save(tmp_path / "set.npy", np.arange(3))
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_refused(place: Path, command: str) -> None:
    before = sorted(place.rglob("*"))
    done = run(*command.format("~/new").split(), cwd=place)
    assert done.code == 2 and "expected a path without ~, which only the shell expands: pass '/" in done.err, done
    assert sorted(place.rglob("*")) == before
