"""dump: the layout of the original, byte for byte, and none of its silence about failures."""

import hashlib
import os
import pickle
import shutil
import signal
import struct
from pathlib import Path
from typing import Any

import ffr_twin
import numpy as np
import pytest
from calls import dies_before
from written_datasets import files_in, grown

from ffrecord import FileReader
from ffrecord.dataset_writer import DatasetWriter
from ffrecord.dataset_writer.dump import dump
from ffrecord.errors import WorkerError

PARTS = Path(__file__).parents[1] / "golden" / "ffrecord" / "parts"


def test_golden_parts_are_reproduced(tmp_path: Path) -> None:
    golden = files_in(PARTS)
    samples = [sample for data in golden.values() for sample in ffr_twin.parse(data)]
    assert (len(samples), len(golden)) == (101, 7)
    dump(samples, tmp_path / "parts", 7)
    assert files_in(tmp_path / "parts") == golden


@pytest.mark.parametrize(
    "n, nfiles, sizes",
    [(200, 8, [25] * 8), (101, 7, [15] * 6 + [11]), (5, 2, [3, 2]), (2, 2, [1, 1])],
)
def test_every_byte_of_several_files(tmp_path: Path, n: int, nfiles: int, sizes: list[int]) -> None:
    samples = grown(n)
    dump(samples, tmp_path / "out", nfiles)
    expected, first = {}, 0
    for number, size in enumerate(sizes):
        expected[f"PART_{number:05d}.ffr"] = ffr_twin.build(samples[first : first + size])
        first += size
    assert files_in(tmp_path / "out") == expected


def test_one_file_is_a_plain_file(tmp_path: Path) -> None:
    dump(grown(20), tmp_path / "one.ffr", 1)
    assert (tmp_path / "one.ffr").read_bytes() == ffr_twin.build(grown(20))


@pytest.mark.parametrize("n, nfiles, count", [(200, 64, 50), (10, 16, 10)])
def test_fewer_files_than_asked(tmp_path: Path, n: int, nfiles: int, count: int) -> None:
    target = tmp_path / "x.ffr"
    target.mkdir()
    with pytest.warns(UserWarning, match=f"^Split into {count} files rather than {nfiles} files$") as caught:
        dump(grown(n), target, nfiles)
    assert caught[0].filename == __file__
    reader = FileReader(target)
    assert len(os.listdir(target)) == count
    assert [bytes(sample) for sample in reader.read(range(n))] == grown(n)
    reader.close()


def test_no_samples(tmp_path: Path) -> None:
    dump([], tmp_path / "one.ffr", 1)
    assert (tmp_path / "one.ffr").read_bytes() == ffr_twin.build([])
    with pytest.warns(UserWarning, match="Split into 1 files rather than 4 files"):
        dump([], tmp_path / "several", 4)
    assert files_in(tmp_path / "several") == {"PART_00000.ffr": ffr_twin.build([])}


@pytest.mark.parametrize("nfiles", [0, -3])
def test_no_files(tmp_path: Path, nfiles: int) -> None:
    with pytest.raises(ValueError, match=f"nfiles is {nfiles}, expected >= 1"):
        dump(grown(3), tmp_path / "x", nfiles)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("nfiles", [1.0, "2", None])
def test_number_of_files_of_wrong_type(tmp_path: Path, nfiles: Any) -> None:
    with pytest.raises(TypeError):
        dump(grown(3), tmp_path / "x", nfiles)


@pytest.mark.parametrize("nfiles", [1, 2])
def test_any_buffer_in_c_order(tmp_path: Path, nfiles: int) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    samples = [array, array.T, array[:, ::2], array[::-1], np.float32(1.5), bytearray(b"ab"), memoryview(b"cd")]
    dump(samples, tmp_path / "x.ffr", nfiles)
    with FileReader(tmp_path / "x.ffr") as reader:
        assert [bytes(sample) for sample in reader.read(range(7))] == [bytes(memoryview(s).tobytes()) for s in samples]


class Reused:
    """Hands out one buffer again and again, as some decoders do."""

    def __init__(self) -> None:
        self.buffer = bytearray(8)

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> bytearray:
        self.buffer[:] = struct.pack("<q", index)
        return self.buffer


@pytest.mark.parametrize("nfiles", [1, 2])
def test_a_buffer_may_be_used_again(tmp_path: Path, nfiles: int) -> None:
    dump(Reused(), tmp_path / "x.ffr", nfiles)
    with FileReader(tmp_path / "x.ffr") as reader:
        assert [struct.unpack("<q", s)[0] for s in reader.read(range(50))] == list(range(50))


@pytest.mark.parametrize("nfiles", [1, 3])
def test_serializer_by_keyword_and_as_fourth_argument(tmp_path: Path, nfiles: int) -> None:
    samples = [b"as it is", bytearray(b"this too"), {"a": 1}, (2, "b"), None, memoryview(b"x").tobytes()]
    expected = [s if isinstance(s, bytes | bytearray) else pickle.dumps(s) for s in samples]
    dump(samples, tmp_path / "a.ffr", nfiles, serializer=pickle.dumps)
    dump(samples, tmp_path / "b.ffr", nfiles, pickle.dumps)
    for name in ("a.ffr", "b.ffr"):
        with FileReader(tmp_path / name) as reader:
            assert [bytes(sample) for sample in reader.read(range(6))] == expected


@pytest.mark.parametrize("nfiles", [1, 2])
def test_nothing_is_pickled_unasked(tmp_path: Path, nfiles: int) -> None:
    with pytest.raises((TypeError, WorkerError), match=r"TypeError|buffer") as caught:
        dump([b"x", {"a": 1}], tmp_path / "x.ffr", nfiles)
    assert nfiles == 1 or isinstance(caught.value.__cause__, TypeError)
    assert os.listdir(tmp_path) == []


def test_verbose_shows_a_bar(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dump(grown(9), tmp_path / "one.ffr", 1, True)
    assert "9.00/9.00" in capfd.readouterr().err
    dump(grown(9), tmp_path / "several", 3, verbose=True)
    assert "9.00/9.00" in capfd.readouterr().err
    dump(grown(9), tmp_path / "quiet", 3)
    assert capfd.readouterr().err == ""


class Bad:
    """Good samples but for number 13."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> bytes:
        if index == 13:
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == "exits":
                os._exit(0)
            raise KeyError("sample 13 is broken")
        return bytes(index)


@pytest.mark.parametrize(
    "how, words",
    [
        ("raises", "KeyError"),
        ("killed", "was ended by SIGKILL.*: probably out of memory"),
        ("exits", "exited with code 0"),
    ],
)
def test_a_failing_worker_fails_the_dump(tmp_path: Path, how: str, words: str) -> None:
    with pytest.raises(WorkerError, match=words) as caught:
        dump(Bad(how), tmp_path / "out", 4)
    assert caught.value.index == 13 and "at sample 13" in str(caught.value)
    assert how != "raises" or "in __getitem__\n    raise KeyError(" in str(caught.value.__cause__.__cause__)
    assert os.listdir(tmp_path) == []


def test_a_failure_in_this_process_passes_unchanged(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="sample 13 is broken"):
        dump(Bad("raises"), tmp_path / "out.ffr", 1)
    assert os.listdir(tmp_path) == []


def test_older_shards_are_not_mixed_in(tmp_path: Path) -> None:
    dump(grown(10), tmp_path / "out", 4)
    before = files_in(tmp_path / "out")
    with pytest.raises(FileExistsError, match=r"out holds PART_00000\.ffr, which readers would mix"):
        dump(grown(10), tmp_path / "out", 2)
    assert files_in(tmp_path / "out") == before


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(WorkerError):
        dump(Bad("raises"), tmp_path, 4)
    assert os.listdir(tmp_path) == ["notes.txt"]
    dump(grown(6), tmp_path, 3)
    assert sorted(os.listdir(tmp_path)) == ["PART_00000.ffr", "PART_00001.ffr", "PART_00002.ffr", "notes.txt"]
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(FileExistsError):
        dump(grown(6), tmp_path / "out", 3)
    assert (tmp_path / "out").read_text() == "mine"


@pytest.mark.parametrize("again", ["dump", "writer"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_killed_before_any_call_beside_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str, step: int
) -> None:
    """Shards are moved one by one there. The next one undoes that, or all had arrived."""
    monkeypatch.setattr("ffrecord.dataset_writer.dump.usable_workers", lambda: 0)
    target, died, at, complete = tmp_path / "set", True, 1, 0
    while died:
        target.mkdir()
        monkeypatch.chdir(target)
        died = dies_before(at, lambda: dump(grown(7), target, 3))
        try:
            if again == "dump":
                dump(grown(7), target, 3)
            else:
                DatasetWriter(target, num_workers=0, samples_per_shard=3).from_indexed_dataset(grown(7))
        except FileExistsError:
            complete += 1
        with FileReader(target) as reader:
            assert [bytes(sample) for sample in reader] == grown(7), at
        assert len([name for name in os.listdir(target) if name.endswith(".ffr")]) == 3
        monkeypatch.chdir(tmp_path)
        shutil.rmtree(target)
        at += step
    assert at > 40 and complete > 1


def test_paths_of_any_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dump(grown(4), "deep/er/out/", 2)
    assert sorted(os.listdir("deep/er/out")) == ["PART_00000.ffr", "PART_00001.ffr"]
    with pytest.raises(TypeError, match=r"fname is .*, expected str"):
        dump(grown(4), 3, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"out does not end with \.ffr"):
        dump(grown(4), "out", 1)


def test_no_length(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"list\(dataset\)"):
        dump((i for i in range(3)), tmp_path / "x", 2)


def test_many_samples_over_many_workers_are_in_order(tmp_path: Path) -> None:
    samples = [hashlib.sha256(bytes([i % 256, i // 256])).digest()[: i % 33] for i in range(5000)]
    dump(samples, tmp_path / "out", 16)
    with FileReader(tmp_path / "out") as reader:
        assert [bytes(sample) for sample in reader.read(range(5000))] == samples
