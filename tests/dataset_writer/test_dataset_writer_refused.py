"""Calls of a `DatasetWriter` that are refused, one at a time: the error of that call, and the next write goes on.

Kills are in reliability/test_kills_at_calls.py, full disks in reliability/test_disk_full.py.
"""

import os
import shutil
from pathlib import Path

import pytest
from calls import refused_at
from interrupting import record, write
from written_datasets import files_in


def sizes(shards: int) -> list[bytes]:
    return [record(index) for index in range(shards * 10)]


@pytest.mark.parametrize("number", [5, 28])
@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_any_call_refused(tmp_path: Path, number: int, step: int) -> None:
    """The error of that call, nothing at the target; and the next one goes on."""
    target, outcomes = tmp_path / "set", set()
    write(tmp_path / "whole", sizes(4), samples_per_shard=10)
    for at in range(1, 400, step):
        outcome = refused_at(at, number, lambda: write(target, sizes(4), samples_per_shard=10))
        outcomes.add(outcome)
        if outcome == 3:
            break
        assert outcome in (0, 1), at
        assert not [name for name in os.listdir(tmp_path) if name not in ("whole", "set", ".set.part")]
        if not target.exists():
            write(target, sizes(4), samples_per_shard=10)
        assert files_in(target) == files_in(tmp_path / "whole")
        shutil.rmtree(target)
    assert outcomes >= {1, 3}
