"""The cut into shards: arithmetic that depends on sizes in index order and on nothing else."""

import errno
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ffrecord
from ffrecord import DatasetWriter
from ffrecord.dataset_writer import shards as shard_file
from ffrecord.dataset_writer.layout import (
    FIRST_BYTES,
    SLOTS_MAX,
    ByBytes,
    ByCount,
    Segment,
    ShardLayout,
    Start,
    shard_count,
    shard_name,
    split_evenly,
)
from ffrecord.dataset_writer.part_directory import PartDirectory, check_no_shards, check_vacant
from ffrecord.dataset_writer.sample_sources import dataset_length, select, shuffle
from ffrecord.dataset_writer.shards import ShardFinisher
from ffrecord.errors import ArgumentError, CountError, SampleIndexError
from ffrecord.format import ffr_layout
from ffrecord.format.manifest import Shard

SIZES = st.lists(st.integers(0, 40), max_size=60)
CUTS = st.one_of(st.builds(ByCount, st.integers(1, 20)), st.builds(ByBytes, st.integers(1, 200)))
TOTALS = st.one_of(st.none(), st.integers(0, 80))


def layout_of(
    sizes: list[int],
    cut: ByCount | ByBytes,
    pieces: list[int] | None = None,
    payload: int | None = 0,
    total: int | None = None,
) -> tuple[ShardLayout, list[tuple[int, int]]]:
    """(a layout at its end, (shard, offset) of every sample), the sizes given in pieces of these lengths."""
    layout, places = ShardLayout(cut, payload, total), []
    waiting: list[int] = []
    rest = sizes
    for piece in [*(pieces or []), len(sizes)]:
        part, rest = rest[:piece], rest[piece:]
        waiting += part
        if layout.learn(np.array(part, np.int64)) or not rest:
            places += place(layout, waiting)
            waiting = []
    layout.end()
    assert layout.placed == len(sizes)
    assert layout.closed == len(layout.data_starts) == len(layout.final_starts) == (places[-1][0] + 1 if places else 1)
    return layout, places


def place(layout: ShardLayout, sizes: list[int]) -> list[tuple[int, int]]:
    places, taken = [], 0
    for shard, offset, samples in layout.place(np.array(sizes, np.int64)):
        for size in sizes[taken : taken + samples]:
            places.append((shard, offset))
            offset += size
        taken += samples
    return places


def finally_at(layout: ShardLayout, places: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """(shard, offset) of every sample after shards were moved."""
    return [(shard, offset - layout.data_starts[shard] + layout.final_starts[shard]) for shard, offset in places]


@given(sizes=SIZES, cut=CUTS, pieces=st.lists(st.integers(1, 30), max_size=10), total=TOTALS)
def test_places_depend_neither_on_the_pieces_nor_on_the_total(
    sizes: list[int], cut: ByCount | ByBytes, pieces: list[int], total: int | None
) -> None:
    expected = finally_at(*layout_of(sizes, cut, [1] * len(sizes), total=len(sizes)))
    assert finally_at(*layout_of(sizes, cut, pieces, total=total)) == expected


@given(sizes=SIZES, cut=CUTS, skipped=st.integers(0, 9))
def test_skipped_samples_leave_no_trace(sizes: list[int], cut: ByCount | ByBytes, skipped: int) -> None:
    layout = ShardLayout(cut, 0, len(sizes) + skipped)
    layout.learn(np.array(sizes, np.int64))
    layout.skip(skipped)
    places = place(layout, sizes)
    layout.end()
    assert finally_at(layout, places) == finally_at(*layout_of(sizes, cut))
    assert not isinstance(cut, ByCount) or layout.data_starts == layout.final_starts


@given(sizes=SIZES, cut=CUTS)
def test_shards_of_a_known_number_of_samples_by_count_are_not_moved(sizes: list[int], cut: ByCount | ByBytes) -> None:
    layout, _ = layout_of(sizes, cut, total=len(sizes))
    assert isinstance(cut, ByBytes) or layout.data_starts == layout.final_starts


def test_shards_of_equal_samples_by_bytes_are_not_moved_either() -> None:
    layout, _ = layout_of([10] * 57, ByBytes(100), total=57)
    assert len(layout.data_starts) == 6 and layout.data_starts == layout.final_starts


@given(sizes=SIZES, cut=CUTS, payload=st.integers(0, 9))
def test_shards_are_filled_one_after_the_other_and_without_gaps(
    sizes: list[int], cut: ByCount | ByBytes, payload: int
) -> None:
    layout, places = layout_of(sizes, cut, [], payload)
    ends = dict(enumerate(layout.data_starts))
    for (shard, offset), size in zip(places, sizes, strict=True):
        assert offset == ends[shard]
        ends[shard] += size
    assert [shard for shard, _ in places] == sorted(shard for shard, _ in places)


@given(sizes=SIZES, cut=CUTS)
def test_limits_are_kept(sizes: list[int], cut: ByCount | ByBytes) -> None:
    layout, places = layout_of(sizes, cut)
    shards: dict[int, list[int]] = {}
    for (shard, _), size in zip(places, sizes, strict=True):
        shards.setdefault(shard, []).append(size)
    for number, inside in shards.items():
        exact = ffr_layout.tables_end(len(inside)) + ffr_layout.BLOCK.size
        assert layout.final_starts[number] >= exact
        if isinstance(cut, ByCount) or number == len(shards) - 1:
            assert layout.final_starts[number] == exact
        if isinstance(cut, ByCount):
            assert len(inside) == cut.samples or number == len(shards) - 1
        else:
            assert sum(inside) <= cut.size or len(inside) == 1


def test_exact_tables_without_a_block() -> None:
    layout = ShardLayout(ByCount(3), None, 5)
    assert layout.place(np.array([10, 0, 5, 7, 1])) == [Segment(0, 48, 3), Segment(1, 36, 2)]
    assert layout.data_starts == [12 + 12 * 3, 12 + 12 * 2]
    layout.end()
    assert layout.final_starts == layout.data_starts


def test_exact_tables_in_the_end_though_nobody_knew_the_number() -> None:
    layout = ShardLayout(ByCount(3), None)
    assert layout.place(np.array([10, 0, 5, 7, 1])) == [Segment(0, 48, 3), Segment(1, 48, 2)]
    layout.end()
    assert layout.final_starts == [12 + 12 * 3, 12 + 12 * 2]


def test_a_sample_larger_than_the_limit_has_a_shard_to_itself() -> None:
    assert [shard for shard, _ in layout_of([1, 100, 1, 1], ByBytes(10))[1]] == [0, 1, 2, 2]
    assert [shard for shard, _ in layout_of([100, 1, 100, 100], ByBytes(10))[1]] == [0, 1, 2, 3]


def test_a_sample_of_the_very_limit_fits() -> None:
    assert [shard for shard, _ in layout_of([4, 6, 10, 0, 1], ByBytes(10))[1]] == [0, 0, 1, 1, 2]


def test_table_space_follows_the_mean_so_far() -> None:
    layout = ShardLayout(ByBytes(100_000), 0)
    assert not layout.learn(np.full(7, 1000, np.int64)) and layout.learn(np.full(99, 1000, np.int64))
    layout.place(np.full(1, 10, np.int64))
    # 100 samples of 1,000 bytes, a quarter more, and the spare ones
    assert layout.data_starts == [ffr_layout.tables_end(125 + 16) + ffr_layout.BLOCK.size]
    layout.place(np.full(141, 10, np.int64))
    # now 10,000 samples of 10 bytes, a sixteenth more, and the spare ones
    assert layout.data_starts[1] == ffr_layout.tables_end(10625 + 16) + ffr_layout.BLOCK.size


def test_large_samples_need_not_be_eight_to_be_learnt_from() -> None:
    assert ShardLayout(ByBytes(1 << 40), 0).learn(np.array([FIRST_BYTES]))
    assert not ShardLayout(ByBytes(1 << 40), 0).learn(np.array([FIRST_BYTES - 1]))


def test_table_space_is_bounded_by_what_remains_and_by_a_million() -> None:
    assert ShardLayout(ByBytes(1 << 40), 0, 10**9).place(np.zeros(1, np.int64))[0].offset == (
        ffr_layout.tables_end(SLOTS_MAX) + ffr_layout.BLOCK.size
    )
    assert ShardLayout(ByBytes(1 << 40), 0, 7).place(np.zeros(1, np.int64))[0].offset == (
        ffr_layout.tables_end(7) + ffr_layout.BLOCK.size
    )


@pytest.mark.parametrize("total", [None, 0, 9])
def test_nothing_to_place_is_one_empty_shard(total: int | None) -> None:
    layout = ShardLayout(ByCount(5), None, total)
    layout.end()
    assert (layout.final_starts, layout.closed, layout.place(np.empty(0, np.int64))) == ([12], 1, [])


@pytest.mark.parametrize(
    "total, files, count", [(200, 64, 50), (10, 16, 10), (200, 8, 8), (101, 7, 7), (0, 5, 1), (1, 1, 1)]
)
def test_ceil_split(total: int, files: int, count: int) -> None:
    assert shard_count(total, split_evenly(total, files)) == count


def test_names() -> None:
    assert [shard_name(n) for n in (0, 12, 123456)] == ["PART_00000.ffr", "PART_00012.ffr", "PART_123456.ffr"]


def test_selected_indices() -> None:
    assert select(4, None) == range(4)
    assert list(select(4, [0, -1, 3, 3])) == [0, 3, 3, 3]
    assert list(select(4, (i for i in (1, np.int8(-4))))) == [1, 0]
    assert list(select(4, np.array([2, 1], np.uint64))) == [2, 1]
    assert list(select(4, range(3, -1, -1))) == [3, 2, 1, 0]
    assert list(select(0, [])) == []


@pytest.mark.parametrize("indices", [[0, 4], [-5], [2**70], np.array([2**64 - 1], np.uint64), range(5)])
def test_indices_out_of_range(indices: list[int]) -> None:
    with pytest.raises(IndexError):
        select(4, indices)


def test_message_of_an_index_out_of_range() -> None:
    with pytest.raises(SampleIndexError, match=r"indices\[2\] is -5, expected -4 <= index < 4"):
        select(4, [0, 1, -5])


@pytest.mark.parametrize("indices", [[0.5], 3, "01", np.array([0.0]), np.zeros((2, 2), int), [None], slice(2)])
def test_indices_of_wrong_type(indices: object) -> None:
    with pytest.raises(TypeError):
        select(4, indices)  # type: ignore[arg-type]


def test_shuffle_is_the_same_for_ever() -> None:
    assert [int(i) for i in shuffle(range(10), 0)[0]] == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]
    assert [int(i) for i in shuffle(np.arange(10) * 10, 0)[0]] == [20, 80, 40, 90, 10, 60, 70, 30, 0, 50]
    _, drawn = shuffle(range(10), None)
    assert 0 <= drawn < 2**32


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_seeds_out_of_range(seed: int) -> None:
    with pytest.raises(ValueError, match=f"seed is {seed}, expected 0 <= seed < 4294967296"):
        shuffle(range(10), seed)


def test_datasets_without_length_or_index() -> None:
    with pytest.raises(TypeError, match=r"dataset of type generator has no samples by index .* list\(dataset\)"):
        dataset_length(i for i in range(3))

    class Endless:
        def __getitem__(self, index: int) -> int:
            return index

    with pytest.raises(TypeError, match=r"dataset of type Endless has no length: .* pass list\(dataset\)"):
        dataset_length(Endless())


@pytest.mark.parametrize("length", [-1, 2**63, 2**70])
def test_lengths_that_cannot_be(tmp_path: Path, length: int) -> None:
    class Wrong:
        def __len__(self) -> int:
            return length

        def __getitem__(self, index: int) -> dict[str, int]:
            return {"x": index}

    said = rf"dataset of type Wrong has the length int {length}, expected 0 <= len < 2\*\*63"
    for call in (
        lambda: DatasetWriter(tmp_path / "out", num_workers=0).from_indexed_dataset(Wrong()),
        lambda: ffrecord.convert(Wrong(), tmp_path / "out", num_workers=0),
        lambda: ffrecord.export(Wrong(), tmp_path / "out.zip"),
    ):
        with pytest.raises(ArgumentError, match=said):
            call()
    assert os.listdir(tmp_path) == []


def test_errors_of_the_length_itself_come_through() -> None:
    class Closed:
        def __len__(self) -> int:
            raise ValueError("the file is closed")

        def __getitem__(self, index: int) -> int:
            return index

    with pytest.raises(ValueError, match=r"^the file is closed$"):
        dataset_length(Closed())


def test_shard_file_is_reserved_and_finished(tmp_path: Path) -> None:
    path = str(tmp_path / "a.ffr")
    shard_file.create(path, path, 36 + 100)
    assert os.path.getsize(path) == 136
    assert os.stat(path).st_blocks > 0
    with open(path, "r+b") as file:
        file.seek(136)
        file.write(b"abc")
    found = shard_file.finish(path, path, 136, np.array([1, 2]), np.array([7, 8], np.uint32), b"xy")
    assert (found.name, found.samples, found.size) == ("a.ffr", 2, 139)
    data = Path(path).read_bytes()
    assert ffr_layout.PREFIX.unpack_from(data) == (found.crc, 2)
    assert ffr_layout.BLOCK.unpack_from(data, 36)[3:] == (100, 2, 139)
    assert data[76:] == b"xy" + bytes(58) + b"abc"


def test_shard_file_of_wrong_size_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.ffr")
    shard_file.create(path, "final/a.ffr", 24)
    with pytest.raises(CountError, match=r"final/a\.ffr: it has 24 bytes, but its samples \(1\) end at offset 25"):
        shard_file.finish(path, "final/a.ffr", 24, np.array([1]), np.array([7], np.uint32), None)


def test_shard_file_is_not_made_twice_nor_through_links(tmp_path: Path) -> None:
    path = str(tmp_path / "a.ffr")
    os.symlink(tmp_path / "elsewhere", path)
    with pytest.raises(FileExistsError, match=r"Failed to open file final/a\.ffr"):
        shard_file.create(path, "final/a.ffr", 12)
    assert not (tmp_path / "elsewhere").exists()


def test_shard_file_where_nothing_can_be_reserved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no fallocate")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    shard_file.create(str(tmp_path / "a.ffr"), "a.ffr", 1000)
    assert (tmp_path / "a.ffr").read_bytes() == bytes(1000)


@pytest.mark.parametrize("start, target", [(100, 40), (40, 100)])
def test_samples_of_a_shard_file_are_moved(tmp_path: Path, start: int, target: int) -> None:
    (tmp_path / "a.ffr").write_bytes(bytes(start) + b"samples")
    shard_file.move_samples(str(tmp_path / "a.ffr"), "final/a.ffr", start, target)
    assert (tmp_path / "a.ffr").read_bytes() == bytes(target) + b"samples"


def test_samples_of_a_shard_file_that_cannot_be_moved(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"final/a\.ffr: its samples could not be moved") as caught:
        shard_file.move_samples(str(tmp_path / "a.ffr"), "final/a.ffr", 10, 20)
    assert isinstance(caught.value, RuntimeError)


def shard(number: int) -> Shard:
    return Shard(shard_name(number), 1, 30, 0)


def test_a_signal_while_the_finisher_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ran, but Python had not noted that: `cancel` could not join it."""
    wait, note = threading.Event.wait, threading.Event.set

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        time.sleep(0.1)  # by now the thread runs
        os.kill(os.getpid(), signal.SIGINT)
        return wait(event, timeout)

    def late(event: threading.Event) -> None:
        time.sleep(0.3)
        note(event)

    finisher = ShardFinisher()
    monkeypatch.setattr(threading.Event, "wait", interrupted)
    monkeypatch.setattr(threading.Event, "set", late)
    with pytest.raises(KeyboardInterrupt):
        finisher.start()
    monkeypatch.undo()
    finisher.cancel(10)


def test_finisher_does_all_steps_or_tells_the_first_failure() -> None:
    finisher = ShardFinisher()
    finisher.start()
    for number in range(3):
        finisher.add(lambda number=number: shard(number))  # type: ignore[misc]
    assert finisher.wait(5) == [shard(0), shard(1), shard(2)]
    assert finisher.backlog == 0

    def fail() -> Shard:
        raise OSError(errno.EIO, "disk")

    failing = ShardFinisher()
    failing.start()
    failing.add(fail)
    failing.add(lambda: shard(1))
    with pytest.raises(OSError, match="disk"):
        failing.wait(5)


def test_finisher_cancelled_does_nothing_more() -> None:
    done: list[int] = []

    def step() -> Shard:
        done.append(1)
        return shard(0)

    finisher = ShardFinisher()
    finisher.add(step)
    finisher.cancel(1)
    finisher.start()
    finisher.cancel(5)
    assert done == []


def filled(part: PartDirectory) -> None:
    part.acquire()
    for number, name in enumerate(("a.ffr", "b.ffr")):
        (Path(part.open) / name).write_bytes(b"x")
        part.keep(Shard(name, 1, 30, 0), Start(number + 1, number + 1, number + 1))


@pytest.mark.parametrize("before", ["missing", "empty", "link"])
def test_part_directory_appears_whole(tmp_path: Path, before: str) -> None:
    target = real = tmp_path / "deep" / "er" / "set"
    if before != "missing":
        target.mkdir(parents=True, mode=0o750)
    if before == "link":
        target = tmp_path / "link"
        target.symlink_to(real)
    part = PartDirectory(str(target))
    filled(part)
    assert not real.exists() or not os.listdir(real)
    assert part.path == str(real.parent / ".set.part")
    part.publish(["a.ffr", "b.ffr"])
    part.discard()
    assert sorted(os.listdir(target)) == ["a.ffr", "b.ffr"]
    assert os.listdir(real.parent) == ["set"]
    assert before == "missing" or real.stat().st_mode & 0o777 == 0o750


def test_part_directory_beside_other_files(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    part = PartDirectory(str(tmp_path), among_others=True)
    filled(part)
    assert sorted(name for name in os.listdir(tmp_path) if not name.startswith(".")) == ["notes.txt"]
    part.publish(["a.ffr", "b.ffr"])
    part.discard()
    assert sorted(os.listdir(tmp_path)) == ["a.ffr", "b.ffr", "notes.txt"]


def test_part_directory_beside_other_files_publishes_all_or_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    part = PartDirectory(str(tmp_path), among_others=True)
    filled(part)
    (tmp_path / "b.ffr").write_text("someone else's")
    with pytest.raises(FileExistsError, match="nothing was published"):
        part.publish(["a.ffr", "b.ffr"])
    part.discard()
    assert sorted(os.listdir(tmp_path)) == ["b.ffr", "notes.txt"]
    assert (tmp_path / "b.ffr").read_text() == "someone else's"


def test_part_directory_does_not_replace_what_came_meanwhile(tmp_path: Path) -> None:
    part = PartDirectory(str(tmp_path / "set"))
    filled(part)
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "other").write_text("x")
    with pytest.raises(FileExistsError, match="nothing was published"):
        part.publish(["a.ffr", "b.ffr"])
    part.discard()
    assert os.listdir(tmp_path) == ["set"] and os.listdir(tmp_path / "set") == ["other"]


def test_vacancy(tmp_path: Path) -> None:
    check_vacant(str(tmp_path / "missing"))
    check_vacant(str(tmp_path))
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("")
    check_no_shards(str(tmp_path))
    with pytest.raises(FileExistsError, match=r"is not empty, it holds 0\.txt, 1\.txt, 2\.txt, …"):
        check_vacant(str(tmp_path))
    with pytest.raises(FileExistsError, match="already exists and is not a directory"):
        check_vacant(str(tmp_path / "0.txt"))
    (tmp_path / "x.ffr").write_text("")
    with pytest.raises(FileExistsError, match=r"holds x\.ffr, which readers would mix"):
        check_no_shards(str(tmp_path))


@settings(max_examples=20)
@given(name=st.text(st.characters(blacklist_characters="/\0", blacklist_categories=["Cs"]), min_size=1, max_size=40))
def test_part_names_never_end_in_the_suffix(name: str) -> None:
    assert not PartDirectory("/nonexistent/" + name).path.endswith(ffr_layout.SUFFIX)
