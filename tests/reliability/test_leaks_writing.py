"""T11 (guarantee G7): writers leave nothing behind, above all aborted ones: no temporary file, descriptor, process."""

from pathlib import Path

import leaking
import pytest
from figures import Counted, counts

# What one writer does, and what it leaves in the directory. `path` and `data` are given.
FILES = {
    "published": ({"a.ffr"}, """
def work():
    with FileWriter(path, 3) as writer:
        for _ in range(3):
            writer.write_one(data)
"""),
    "without n": ({"a.ffr"}, """
def work():
    with FileWriter(path) as writer:
        for _ in range(3):
            writer.write_one(data)
"""),
    "aborted": (set(), """
def work():
    try:
        with FileWriter(path, 3) as writer:
            writer.write_one(data)
            1 / 0
    except ArithmeticError:
        pass
"""),
    "too few": (set(), """
def work():
    try:
        with FileWriter(path, 3) as writer:
            writer.write_one(data)
    except RuntimeError:
        pass
"""),
    "dropped": (set(), """
def work():
    FileWriter(path, 3).write_one(data)
"""),
    "dropped complete": ({"a.ffr"}, """
def work():
    FileWriter(path, 1).write_one(data)
"""),
    "cannot be made": (set(), """
def work():
    for arguments in (("/missing/a.ffr", 1), (path, 2**62), (path, -1), (path, "x"), (path + "x", 1)):
        try:
            FileWriter(*arguments)
        except (OSError, ValueError, TypeError):
            continue
        raise SystemExit("no error")
"""),
    "other formats aborted": (set(), """
from ffrecord.sources import RecordIOWriter, TFRecordWriter
def work():
    for Writer, suffix in ((TFRecordWriter, "tfrecord"), (TFRecordWriter, "tfrecord.gz"), (RecordIOWriter, "recordio")):
        try:
            with Writer(path.removesuffix("ffr") + suffix) as writer:
                writer.write(data.tobytes())
                1 / 0
        except ArithmeticError:
            continue
        raise SystemExit("no error")
"""),
    "folder not packed": (set(), """
import ffrecord, pathlib, tempfile
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "file").write_bytes(data[:9000].tobytes())
os.mkfifo(folder / "pipe")
def work():
    try:
        ffrecord.pack_folder(folder, path)
    except (FFRecordError, OSError, ValueError):
        return
    raise SystemExit("no error")
"""),
}  # fmt: skip
WRITERS = {"cannot be made": 5, "other formats aborted": 3}  # in one round, where they are several

# The same with processes. `directory` and `workers` are given.
DATASETS = {
    "a sample raises": """
class Samples(list):
    def __getitem__(self, index):
        if index == 30:
            raise KeyError(index)
        return super().__getitem__(index)
def work():
    try:
        DatasetWriter(directory, num_workers=workers).from_indexed_dataset(Samples(samples), chunksize=5)
    except (WorkerError, KeyError):
        shutil.rmtree(directory, ignore_errors=True)  # shards that are complete stay, for who resumes
        return
    raise SystemExit("no error")
""",
    "a worker dies": """
class Samples(list):
    def __getitem__(self, index):
        if index == 30:
            os._exit(0)
        return super().__getitem__(index)
def work():
    try:
        DatasetWriter(directory, num_workers=workers).from_indexed_dataset(Samples(samples), chunksize=5)
    except WorkerError:
        shutil.rmtree(directory, ignore_errors=True)
        return
    raise SystemExit("no error")
""",
    "the iterable raises": """
def broken():
    yield from samples[:30]
    1 / 0
def work():
    try:
        DatasetWriter(directory, num_workers=workers).from_iterable(broken(), chunksize=5)
    except ArithmeticError:
        shutil.rmtree(directory, ignore_errors=True)
        return
    raise SystemExit("no error")
""",
}


@pytest.mark.parametrize("kind", FILES)
@counts(100, 1000)
def test_files(tmp_path: Path, kind: str, count: int, counted: Counted) -> None:
    left, work = FILES[kind]
    code = f"path, data = sys.argv[1], np.zeros(50_000, np.uint8)\n{work}"
    leaking.run(code, count, 1000, tmp_path / "a.ffr", files=[tmp_path])
    assert {path.name for path in tmp_path.iterdir()} == left
    counted.add("writers checked for leaks", count * WRITERS.get(kind, 1))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", DATASETS)
@counts(8, 60)
def test_datasets(tmp_path: Path, kind: str, count: int, counted: Counted) -> None:
    code = f"""
import shutil
from ffrecord import DatasetWriter
from ffrecord.errors import WorkerError
warnings.simplefilter("ignore", DeprecationWarning)  # of forks
directory, samples, workers = sys.argv[1], [bytes([i]) * 1000 for i in range(60)], 2
{DATASETS[kind]}"""
    leaking.run(code, count, 2000, tmp_path / "set", files=[tmp_path])
    assert list(tmp_path.iterdir()) == []
    counted.add("writers checked for leaks", count)
