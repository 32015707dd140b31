"""Records that wait on the disk."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ffrecord.dataset_writer.encoder import SpillFile

pytestmark = pytest.mark.usefixtures("nothing_leaks")


@pytest.mark.parametrize("copies", [True, False], ids=["in the kernel", "by hand"])
@pytest.mark.parametrize("unnamed", [True, False])
def test_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: bool, unnamed: bool) -> None:
    monkeypatch.setattr("ffrecord.dataset_writer.encoder.STEP", 1000)
    if not copies:
        monkeypatch.setattr(os, "copy_file_range", refusing(errno.EXDEV))
    if not unnamed:
        monkeypatch.setattr(os, "O_TMPFILE", os.O_DIRECTORY)  # what kernels without it make of the flag
    data = np.random.default_rng(0).bytes(5000)
    spill = SpillFile(str(tmp_path), "set")
    assert os.listdir(tmp_path) == []
    assert [spill.put(memoryview(part)) for part in (data[:3000], data[3000:])] == [0, 3000]
    with open(tmp_path / "target", "wb") as target:
        spill.copy(3000, 2000, target.fileno(), 3000)
        spill.forget(2000)
        spill.copy(0, 3000, target.fileno(), 0)
        spill.forget(3000)
    assert (tmp_path / "target").read_bytes() == data
    assert spill.put(memoryview(b"again")) == 0
    spill.close()
    spill.close()


def refusing(code: int) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return refuse


def test_spool_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spill = SpillFile(str(tmp_path), "set")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refusing(errno.ENOSPC))
        with pytest.raises(OSError, match="set: 3 bytes could not be written to a spill file") as caught:
            spill.put(memoryview(b"abc"))
    assert caught.value.errno == errno.ENOSPC
    with (
        open(tmp_path / "target", "wb") as target,
        pytest.raises(OSError, match="the spill file ends at 0, 5 bytes early"),
    ):
        spill.copy(0, 5, target.fileno(), 0)
    spill.close()
    with pytest.raises(FileNotFoundError, match="set: a spill file could not be created"):
        SpillFile(str(tmp_path / "none"), "set")
