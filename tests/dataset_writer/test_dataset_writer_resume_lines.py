"""Going on with lists of lines, and with what can be had only once."""

import os
from pathlib import Path
from typing import Any

import pytest
from interrupting import Stopping, ctrl_c, interrupted, write
from written_datasets import files_in

from ffrecord import MismatchError
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.errors import WorkerError
from ffrecord.fields import IntField
from ffrecord.format import manifest


def line_of(line: str) -> dict[str, int]:
    number = int(line)
    if Gate.closed_at == number:
        raise KeyError("not yet")
    return {"x": number}


class Gate:
    """At which line `line_of` fails."""

    closed_at: int | None = None


def write_lines(path: Path, lines: Any, **options: Any) -> Summary:
    return DatasetWriter(path, **{"num_workers": 0, "samples_per_shard": 30, **options}).from_list(lines, line_of, 20)


@pytest.mark.parametrize("fields", [None, {"x": IntField()}], ids=["inferred", "given"])
@pytest.mark.parametrize("kind", [list, tuple, "file"])
def test_lines_are_gone_on_with(tmp_path: Path, monkeypatch: Any, kind: Any, fields: Any) -> None:
    lines: Any = [str(number) if number % 7 else "" for number in range(1, 300)]
    if kind == "file":
        (tmp_path / "list.txt").write_text("\n".join(lines))
        lines = tmp_path / "list.txt"
    else:
        lines = kind(lines)
    write_lines(tmp_path / "whole", lines, fields=fields)
    monkeypatch.setattr(Gate, "closed_at", 200)
    with pytest.raises(WorkerError, match="failed at line 200: KeyError"):
        write_lines(tmp_path / "set", lines, fields=fields)
    monkeypatch.setattr(Gate, "closed_at", 1)  # which is not asked for again
    assert write_lines(tmp_path / "set", lines, fields=fields).kept_shards == 5
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


def test_other_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [str(number) for number in range(100)]
    monkeypatch.setattr(Gate, "closed_at", 80)
    with pytest.raises(WorkerError):
        write_lines(tmp_path / "set", lines)
    monkeypatch.undo()
    for others in (lines[1:], [*lines[:50], lines[50] + lines[51], *lines[52:]]):
        with pytest.raises(MismatchError, match="lines was '"):
            write_lines(tmp_path / "set", others)
    with pytest.raises(MismatchError, match="call was 'from_list', is 'from_indexed_dataset'"):
        write(tmp_path / "set", [{"x": 1}], samples_per_shard=30)
    with pytest.raises(MismatchError, match="which this one cannot continue"):
        write_lines(tmp_path / "set", iter(lines))
    assert write_lines(tmp_path / "set", lines).kept_shards == 2


def test_what_can_be_had_only_once_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gate, "closed_at", 80)
    with pytest.raises(WorkerError) as caught:
        write_lines(tmp_path / "set", (str(number) for number in range(100)))
    assert os.listdir(tmp_path) == [] and not getattr(caught.value, "__notes__", [])


def test_what_can_be_had_only_once_leaves_alone_what_another_call_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("ffrecord.dataset_writer.resume.take_over", ctrl_c)
        write_lines(tmp_path / "set", iter(["1"]))
    with pytest.raises(MismatchError, match="4 finished shards of an interrupted write, which this one cannot"):
        write_lines(tmp_path / "set", iter(["1"]))
    assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards == 4


def test_skipped_samples_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [str(number) if number % 10 else "bad" for number in range(100)]
    options: dict[str, Any] = {"on_error": "skip", "samples_per_shard": 18}
    expected = write_lines(tmp_path / "whole", lines, **options)

    monkeypatch.setattr(manifest, "save", ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        write_lines(tmp_path / "set", lines, **options)
    monkeypatch.undo()
    (tmp_path / ".set.part" / "finished" / "PART_00003.ffr").unlink()
    summary = write_lines(tmp_path / "set", lines, **options)
    assert (summary.skipped, summary.samples, summary.kept_shards) == (expected.skipped, expected.samples, 3)
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")
