"""Cases (all guarantees): former defects, each as the smallest program that showed it."""

import gc
import itertools
import os
import resource
import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import builders
import ffr_twin
import numpy as np
import pytest
from builders import IO_MODES

from ffrecord import ChecksumError, DatasetWriter, FileReader, FileWriter, _aio
from ffrecord.format import extension, ffr_layout
from ffrecord.system import atomic_file
from ffrecord.utils import dump


def test_a_short_read_while_samples_are_moved_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [bytes([i % 256]) * 3000 for i in range(2000)]
    real = os.pread
    monkeypatch.setattr(atomic_file, "insert_range", lambda *_: False)  # no fallocate: copy
    monkeypatch.setattr(os, "pread", lambda fd, size, offset: real(fd, max(1, size // 3), offset))
    with FileWriter(tmp_path / "a.ffr") as writer:
        for sample in samples:
            writer.write_one(sample)
    monkeypatch.undo()
    assert [bytes(sample) for sample in FileReader(tmp_path / "a.ffr")] == samples


def test_a_file_of_another_length_is_not_published(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path / "a.ffr", 1)
    writer.write_one(b"x" * 5000)
    writer._drain()
    os.ftruncate(writer._part.fd, 100 + 5000)
    with pytest.raises(OSError, match=r"5100 bytes on the disk, but its 1 sample end at 5024"):
        writer.close()
    assert os.listdir(tmp_path) == []


def test_a_payload_dense_in_objects_costs_no_memory_at_open(tmp_path: Path) -> None:
    # {"schema": {"x": [[], [], …]}}: a byte of msgpack for each list, 56 bytes of memory for each once decoded.
    count = ffr_layout.PAYLOAD_MAX - 20
    payload = b"\x81\xa6schema\x81\xa1x\xdd" + struct.pack(">I", count) + b"\x90" * count
    size = 12 + extension.block_size(payload)
    block = extension.seal(payload, extension.block_size(payload), size)
    (tmp_path / "a.ffr").write_bytes(struct.pack("<Iq", zlib.crc32(bytes(8)), 0) + block)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = FileReader(tmp_path / "a.ffr")
    assert reader.extension is not None
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10  # KiB


@pytest.mark.parametrize("renames", range(4, 11))
def test_a_dump_killed_while_it_moves_shards_is_not_read_as_a_smaller_one(tmp_path: Path, renames: int) -> None:
    (tmp_path / "notes.txt").write_text("here before")
    program = f"""
import os
from ffrecord.utils import dump
real, calls = os.rename, iter(range(100))
def rename(*args):
    if next(calls) == {renames}: os._exit(9)
    real(*args)
import ffrecord.dataset_writer.part_directory as module
module.os.rename = rename
dump([bytes([i]) for i in range(40)], {str(tmp_path)!r}, 4)
"""
    killed = subprocess.run([sys.executable, "-c", program]).returncode == 9
    left = [name for name in os.listdir(tmp_path) if name.endswith(".ffr")]
    if len(left) < 4:
        assert killed
        with pytest.raises((FileNotFoundError, ValueError)):  # a missing shard, or none at all
            FileReader(tmp_path)
    else:
        assert FileReader(tmp_path).n == 40


def test_a_child_forked_during_a_read_can_close_its_copy(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "a.ffr", 64) as writer:
        for i in range(64):
            writer.write_one(bytes([i]) * 500_000)
    program = f"""
import os, threading
from ffrecord import FileReader
reader, stop = FileReader({str(tmp_path / "a.ffr")!r}), threading.Event()
def read():
    while not stop.is_set():
        reader.read(range(64))
thread = threading.Thread(target=read)
thread.start()
still_open = 0
for _ in range(10):
    child = os.fork()
    if child == 0:
        reader.close()
        names = [os.path.realpath(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd")]
        os._exit(any(name.endswith("a.ffr") for name in names))
    still_open += os.waitpid(child, 0)[1]
stop.set()
thread.join()
raise SystemExit(still_open != 0)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0


def test_no_more_than_a_limit_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FileWriter(tmp_path / "a.ffr", 5) as writer:
        for i in range(5):
            writer.write_one(bytes([i]))
    damaged = bytearray((tmp_path / "a.ffr").read_bytes())
    damaged[-5:] = b"wrong"
    (tmp_path / "a.ffr").write_bytes(damaged)
    monkeypatch.setattr("ffrecord.reading.store.SKIPPED_MOST", 3)
    reader = FileReader(tmp_path / "a.ffr", on_error="skip")
    assert reader.read([0, 1, 2]) == []
    assert reader.skipped == 3
    with pytest.raises(ChecksumError, match="Sample 3"):
        reader.read([3])


def test_a_replacement_is_flat(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "a.ffr", 1) as writer:
        writer.write_one(b"right")
    damaged = (tmp_path / "a.ffr").read_bytes()[:-1] + b"!"
    (tmp_path / "a.ffr").write_bytes(damaged)
    reader = FileReader(tmp_path / "a.ffr", on_error=lambda error: np.zeros((2, 3), np.uint8))
    assert reader.read([0])[0].shape == (6,)
    assert reader.read_packed([0])[0].shape == (6,)


def test_idle_contexts_are_few(tmp_path: Path) -> None:
    with FileWriter(tmp_path / "a.ffr", 64) as writer:
        for i in range(64):
            writer.write_one(bytes([i]) * 100_000)
    reader = FileReader(tmp_path / "a.ffr", io="direct")
    threads = [threading.Thread(target=lambda: [reader.read(range(64)) for _ in range(5)]) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _aio.stats()["idle"] <= 4


def test_the_working_directory_can_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    DatasetWriter(".", num_workers=0).from_indexed_dataset([b"one", b"two"])
    assert [bytes(record) for record in FileReader(".")] == [b"one", b"two"]
    assert Path.cwd() == tmp_path


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_an_empty_directory_of_ones_own_in_one_that_is_not(tmp_path: Path) -> None:
    program = """
import os, sys, tempfile, ffrecord
ffrecord.DatasetWriter, ffrecord.FileReader  # imported as somebody who may read them
parent = tempfile.mkdtemp()
os.chmod(parent, 0o755)
mine = os.path.join(parent, "mine")
os.mkdir(mine)
os.chown(mine, 65534, 65534)
child = os.fork()
if child == 0:
    os.setuid(65534)
    ffrecord.DatasetWriter(mine, num_workers=0).from_indexed_dataset([b"one"])
    os._exit(0 if [bytes(r) for r in ffrecord.FileReader(mine)] == [b"one"] else 3)
status = os.waitpid(child, 0)[1]
import shutil
shutil.rmtree(parent)
sys.exit(status != 0)
"""
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"stuck_after": "x"}, TypeError),
        ({"stuck_after": True}, TypeError),
        ({"stuck_after": 0}, ValueError),
        ({"stuck_after": -1.0}, ValueError),
        ({"stuck_after": float("nan")}, ValueError),
        ({"serializer": 5}, TypeError),
    ],
)
def test_arguments_of_the_dataset_writer(tmp_path: Path, arguments: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        DatasetWriter(tmp_path / "set", **arguments)


def test_a_dump_among_other_files_leaves_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("here before")
    dump([bytes([i]) for i in range(40)], str(tmp_path), 4)
    assert sorted(os.listdir(tmp_path)) == [*(f"PART_{i:05d}.ffr" for i in range(4)), "notes.txt"]
    assert list(itertools.chain.from_iterable(FileReader(tmp_path))) == list(range(40))


WAYS: dict[str, Callable[[FileReader], object]] = {
    "read_one": lambda reader: reader.read_one(1),
    "read": lambda reader: reader.read([0, 1]),
    "read_packed": lambda reader: reader.read_packed([0, 1]),
    "iteration": list,
    "iter_batches": lambda reader: list(reader.iter_batches([[0, 1]])),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("io", IO_MODES)
def test_an_error_does_not_keep_its_batch(tmp_path: Path, way: str, io: str) -> None:
    (tmp_path / "a.ffr").write_bytes(builders.flip(-1)(ffr_twin.build([b"good", bytes(1 << 20)])))
    with FileReader(tmp_path / "a.ffr", io=io) as reader:
        gc.collect()
        gc.disable()
        try:
            noticed = fails(WAYS[way], reader)
            left = gc.collect()
        finally:
            gc.enable()
    assert (noticed, left) == (True, 0)  # reference counts alone gave all of it back


def fails(work: Callable[[FileReader], object], reader: FileReader) -> bool:
    try:
        work(reader)
    except ChecksumError:
        return True
    return False
