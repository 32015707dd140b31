"""An interrupted write is gone on with, to the same bytes; never from what is damaged, nor for other arguments."""

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from interrupting import N, Stopping, interrupted, kept_files, record, write
from written_datasets import files_in

from ffrecord import FileReader, MismatchError
from ffrecord.dataset_writer import write_log
from ffrecord.dataset_writer.resume import LOOKED, compare_requests
from ffrecord.dataset_writer.write_log import differences
from ffrecord.errors import WorkerError
from ffrecord.fields import IntField
from ffrecord.format import manifest

CUTS = [{"shard_size": 3000}, {"samples_per_shard": 70}, {"num_shards": 6}]


@pytest.mark.parametrize("cut", CUTS, ids=lambda cut: next(iter(cut)))
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("typed", [False, True], ids=["plain", "typed"])
def test_the_same_bytes_as_uninterrupted(tmp_path: Path, cut: dict[str, int], workers: int, typed: bool) -> None:
    whole, target = tmp_path / "whole", tmp_path / "set"
    write(whole, Stopping(typed=typed), **cut)
    kept = 0
    # 133: between the samples that are looked at beforehand.
    for at in (133, 134, 250, 390):
        interrupted(target, at, typed, **cut, num_workers=workers, chunksize=17)
        if (tmp_path / ".set.part").exists():
            assert sorted(os.listdir(tmp_path / ".set.part")) == ["finished", "ledger"]
            assert len(kept_files(target)) >= kept
            kept = len(kept_files(target))
    dataset = Stopping(typed=typed)
    summary = write(target, dataset, **cut, chunksize=23)
    # Another worker may have been far behind the one that failed.
    assert summary.kept_shards == kept and (kept > 1 or workers)
    assert files_in(target) == files_in(whole)
    assert sorted(os.listdir(tmp_path)) == ["set", "whole"]
    expected = write(tmp_path / "another", Stopping(typed=typed), **cut)
    assert (summary.samples, summary.bytes, summary.shards) == (expected.samples, expected.bytes, expected.shards)


def test_what_is_kept_is_neither_read_nor_written_again(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", 300, samples_per_shard=70, serializer=bytes)
    before = {path.name: path.stat() for path in kept_files(tmp_path / "set")}
    assert sorted(before) == [f"PART_0000{number}.ffr" for number in range(4)]
    dataset = Stopping()
    assert write(tmp_path / "set", dataset, samples_per_shard=70, serializer=bytes).kept_shards == 4
    assert dataset.asked == list(range(280, 400))
    for name, status in before.items():
        after = (tmp_path / "set" / name).stat()
        assert (after.st_ino, after.st_mtime_ns) == (status.st_ino, status.st_mtime_ns)


def test_the_error_says_what_stays(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    error = interrupted(tmp_path / "set", samples_per_shard=70)
    said = "\n".join([*getattr(error, "__notes__", []), caplog.text])
    assert f"4 finished shards stay in {tmp_path / '.set.part'}; repeat the same call to continue" in said
    write(tmp_path / "set", Stopping(), samples_per_shard=70)
    assert "keeping 4 finished shards of an interrupted write" in caplog.text


def test_nothing_stays_where_nothing_was_finished(tmp_path: Path) -> None:
    error = interrupted(tmp_path / "set", 60, samples_per_shard=70, serializer=bytes)
    assert not getattr(error, "__notes__", []) and os.listdir(tmp_path) == []


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def flip(where: Callable[[int], int]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        data = bytearray(path.read_bytes())
        data[where(len(data))] ^= 16
        path.write_bytes(data)

    return damage


DAMAGES = {
    "missing": os.unlink,
    "cut": cut_short,
    "grown": grow,
    "empty": lambda path: os.truncate(path, 0),
    "header checksum": flip(lambda size: 1),
    "count": flip(lambda size: 4),
    "a checksum": flip(lambda size: 20),
    "an offset": flip(lambda size: 12 + 4 * 70 + 3),
    "first record": flip(lambda size: 12 + 12 * 70),
    "last record": flip(lambda size: size - 1),
    "zeros": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "another shard": lambda path: shutil.copy(path.with_name("PART_00000.ffr"), path),
    "a directory": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_shards_are_written_again(tmp_path: Path, how: str) -> None:
    write(tmp_path / "whole", Stopping(), samples_per_shard=70)
    interrupted(tmp_path / "set", samples_per_shard=70)
    damaged = kept_files(tmp_path / "set")[2]
    DAMAGES[how](damaged)
    summary = write(tmp_path / "set", Stopping(), samples_per_shard=70)
    assert summary.kept_shards == 2
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


@pytest.mark.parametrize("step", [41, pytest.param(1, marks=pytest.mark.long)])
def test_every_byte_of_a_kept_shard_counts(tmp_path: Path, step: int) -> None:
    """Padding and extension block too."""
    options: dict[str, Any] = {"shard_size": 300, "chunksize": 5}
    write(tmp_path / "whole", Stopping(n=60), **options)
    with pytest.raises(WorkerError):
        write(tmp_path / "set", Stopping(40, n=60), **options)
    pristine = tmp_path / "pristine"
    shutil.copytree(tmp_path / ".set.part", pristine)
    size = kept_files(tmp_path / "set")[1].stat().st_size
    for offset in range(0, size, step):
        flip(lambda size, offset=offset: offset)(kept_files(tmp_path / "set")[1])  # type: ignore[misc]
        assert write(tmp_path / "set", Stopping(n=60), **options).kept_shards == 1, offset
        assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")
        shutil.rmtree(tmp_path / "set")
        shutil.copytree(pristine, tmp_path / ".set.part")


@pytest.mark.parametrize(
    "change, words",
    [
        ({"samples_per_shard": 71}, "samples_per_shard was 70, is 71"),
        ({"samples_per_shard": None, "num_shards": 6}, "samples_per_shard was 70, is None; num_shards was None, is 6"),
        ({"samples_per_shard": None}, "samples_per_shard was 70, is nothing"),
        ({"indices": range(1, N)}, "samples was 400, is 399"),
        ({"indices": [*range(1, N), 0]}, "indices was '"),
        ({"shuffle_indices": True, "seed": 3}, "seed was None, is 3"),
        ({"serializer": pickle.dumps}, "serializer was None, is '_pickle.dumps'"),
        ({"fields": {"x": IntField()}}, "schema was None, is {"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_arguments_are_refused_and_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    options: dict[str, Any] = {"samples_per_shard": 70}
    interrupted(tmp_path / "set", **options)
    before = files_in(tmp_path / ".set.part" / "finished")
    with pytest.raises(MismatchError, match="4 finished shards of an interrupted write") as caught:
        write(tmp_path / "set", Stopping(typed="fields" in change), **{**options, **change})
    assert words in str(caught.value) and "resume=False" in str(caught.value)
    assert any(words.split("; ")[0] in difference for difference in caught.value.differences)
    assert files_in(tmp_path / ".set.part" / "finished") == before
    assert write(tmp_path / "set", Stopping(), **options).kept_shards == 4


def test_changed_samples_are_noticed_where_they_were_looked_at(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", shard_size=3000)

    class Changed(Stopping):
        def __getitem__(self, index: int) -> bytes:
            return b"else" * 3 if index == 0 else record(index)

    with pytest.raises(
        MismatchError, match=r"samples looked at: 1 of the \d that were compared differ, the first"
    ) as caught:
        write(tmp_path / "set", Changed(), shard_size=3000)
    assert [each.partition(" differ, ")[2] for each in caught.value.differences] == ["the first is sample 0"]


def test_samples_of_two_requests_are_counted() -> None:
    before = {"a": 1, LOOKED: {"0": [4, 7], "3": [4, 8], "9": [4, 9]}}
    assert compare_requests(before, {"a": 1, LOOKED: {"0": (4, 7), "3": (4, 8), "9": (4, 9)}}) == []
    assert compare_requests(before, {"a": 2, LOOKED: {"0": [4, 7], "3": [4, 1], "8": [5, 9]}}) == [
        "a was 1, is 2",
        "samples looked at: 1 of the 2 that were compared differ, the first is sample 3",
    ]
    assert compare_requests(before, {"a": 1, LOOKED: {}}) == ["samples looked at were 0, 3, 9, are none"]
    assert compare_requests(before, {"a": 1}) == differences(before, {"a": 1}) != []


def test_a_schema_that_changed_is_noticed(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", typed=True, num_shards=6)
    with pytest.raises(MismatchError, match=r"schema\S* was .*'x'"):
        write(tmp_path / "set", [{"y": 1.5, "name": record(index)} for index in range(N)], num_shards=6)


def test_afresh_if_asked(tmp_path: Path) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    dataset = Stopping()
    summary = write(tmp_path / "set", dataset, samples_per_shard=90, resume=False, serializer=bytes)
    assert (summary.kept_shards, dataset.asked) == (0, list(range(N)))
    assert os.listdir(tmp_path) == ["set"]


def test_a_drawn_seed_is_kept(tmp_path: Path) -> None:
    options: dict[str, Any] = {"shuffle_indices": True, "samples_per_shard": 20, "serializer": bytes}
    for at in range(300, 310):
        with pytest.raises(WorkerError):
            write(tmp_path / "set", Stopping(at), **options)
        if (tmp_path / ".set.part").exists():
            break
    summary = write(tmp_path / "set", Stopping(), **options)
    assert summary.kept_shards > 0
    order = np.random.RandomState(summary.seed).permutation(N)
    with FileReader(tmp_path / "set") as reader:
        assert builders.read_all(reader) == [record(int(index)) for index in order]


def test_num_workers_and_chunks_may_differ(tmp_path: Path) -> None:
    write(tmp_path / "whole", Stopping(), shard_size=2000)
    interrupted(tmp_path / "set", 150, shard_size=2000, chunksize=7)
    interrupted(tmp_path / "set", 330, shard_size=2000, num_workers=1, start_method="spawn")
    assert write(tmp_path / "set", Stopping(), shard_size=2000, num_workers=3, chunksize=50).kept_shards > 0
    assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")


@pytest.mark.parametrize(
    "garbage", [b"", b"\0" * 99, b"{}\n", b'{"type":"begun","version":2,"request":{}}\n', b"\xff\n"]
)
def test_a_ledger_that_tells_nothing_is_no_ledger(tmp_path: Path, garbage: bytes) -> None:
    interrupted(tmp_path / "set", samples_per_shard=70)
    (tmp_path / ".set.part" / "ledger").write_bytes(garbage)
    assert write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards == 0
    assert os.listdir(tmp_path) == ["set"]


def test_a_ledger_cut_anywhere(tmp_path: Path) -> None:
    """What a power cut may leave: fewer shards are kept, and what is kept is right."""
    write(tmp_path / "whole", Stopping(), samples_per_shard=70)
    interrupted(tmp_path / "set", samples_per_shard=70)
    shutil.copytree(tmp_path / ".set.part", tmp_path / "pristine")
    data, kept = (tmp_path / "pristine" / "ledger").read_bytes(), set()
    for size in range(0, len(data) + 1, 29):
        shutil.rmtree(tmp_path / ".set.part", ignore_errors=True)
        shutil.copytree(tmp_path / "pristine", tmp_path / ".set.part")
        (tmp_path / ".set.part" / "ledger").write_bytes(data[:size] + b"\0" * (size % 3))
        kept.add(write(tmp_path / "set", Stopping(), samples_per_shard=70).kept_shards)
        assert files_in(tmp_path / "set") == files_in(tmp_path / "whole")
        shutil.rmtree(tmp_path / "set")
    assert kept == {0, 1, 2, 3}


def test_ledger_lines(tmp_path: Path) -> None:
    """What a ledger looks like; a later version may add kinds of lines, and ends what this one reads."""
    interrupted(tmp_path / "set", samples_per_shard=70)
    state = write_log.load_state(str(tmp_path / ".set.part" / "ledger"))
    assert state.request is not None and state.request["samples_per_shard"] == 70
    assert sorted(state.finished) == [f"PART_0000{number}.ffr" for number in range(4)]
    last = state.finished["PART_00003.ffr"]
    assert last.next == (4, 280, sum(len(record(index)) for index in range(280)), 0)
    assert isinstance(last.shard, manifest.Shard) and state.publishing is None
    assert write_log.load_state(str(tmp_path / "missing")) == write_log.LogState()
