"""`export`, `convert` and readers that run out of memory name the file or the sample, and leave no sample out."""

import gzip
import zipfile
from pathlib import Path

import children
import numpy as np
import pytest

from ffrecord import DatasetWriter, export
from ffrecord.errors import OutOfMemoryError, add_place_to_memory_errors, name_memory_error

SIZE = 128 << 20

PROGRAM = """
import os, resource, sys
import numpy, ffrecord.conversion, ffrecord.dataset_writer, ffrecord.sources
from ffrecord import FileReader, convert, export, open

class Foreign:
    def __len__(self):
        return 2
    def __getitem__(self, index):
        return {"x": numpy.zeros((1, 128 << 20)[index], numpy.uint8)}

os.chdir(sys.argv[1])
if "parquet" in sys.argv[2]:
    import ffrecord.conversion.parquet, pyarrow.parquet
with __builtins__.open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20),) * 2)
for call in sys.argv[2:]:
    try:
        eval(call)
        told = "it succeeded"
    except Exception as error:
        told = str(error)
        while error is not None and not isinstance(error, MemoryError):
            error = error.__cause__
        assert error is not None, told
    print(told.partition("\\n")[0])
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("large")
    samples = [{"x": np.zeros(size, np.uint8)} for size in (1, SIZE)]
    DatasetWriter(directory / "set", num_workers=0).from_indexed_dataset(samples)
    for name in ("a.zip", "a.tar", "a.tfrecord"):
        export(directory / "set", directory / name, num_workers=0)
    for name in ("a.tar", "a.tfrecord"):
        (directory / f"{name}.gz").write_bytes(gzip.compress((directory / name).read_bytes(), 1))
        (directory / name).unlink()
    with zipfile.ZipFile(directory / "deflated.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0.bin", b"x")
        archive.writestr("1.bin", bytes(SIZE))
    return directory


CALLS = [
    ('export("set", "out.tar", num_workers=0)', "set/PART_00000.ffr: sample 1: out of memory: "),
    ('export("set", "out", "zip", samples_per_shard=1, num_workers=2)', "set/PART_00000.ffr: sample 1: "),
    ('export("a.zip", "out.tar", num_workers=0)', "a.zip: member '000001.npy': out of memory: "),
    ('export("deflated.zip", "out.tar", num_workers=0)', "deflated.zip: member '1.bin': out of memory: "),
    ('export("a.tfrecord.gz", "out.tar", num_workers=0)', "Sample 1: a.tfrecord.gz: out of memory: "),
    ('export(Foreign(), "out.tar", num_workers=0)', "sample 1: out of memory: "),
    ('convert("set", "out", num_workers=0)', "set/PART_00000.ffr: sample 1: out of memory: "),
    ('convert("a.zip", "out", num_workers=0)', "a.zip: member '000000.npy' and 1 more sample: out of memory: "),
    ('convert("a.tar.gz", "out", num_workers=0)', "a.tar.gz: out of memory"),
    ('convert("a.tfrecord.gz", "out", num_workers=0, max_skipped=1)', "a.tfrecord.gz: out of memory: "),
    ('convert(Foreign(), "out", num_workers=0, max_skipped=1)', "sample 1"),
    ('FileReader("set").read_one(1)', "set/PART_00000.ffr: sample 1: out of memory: "),
    ('FileReader("set")[-1]', "set/PART_00000.ffr: sample 1: out of memory: "),
    ('FileReader("set").samples([0, 1])', "set/PART_00000.ffr: sample 0 and 1 more sample: out of memory: "),
    ('list(FileReader("set"))', "set/PART_00000.ffr: sample 1: out of memory: "),
    ('list(FileReader("set").iter_batches([[1]]))', "set/PART_00000.ffr: sample 1: out of memory: "),
    ('open("deflated.zip", on_error="skip").read([0, 1])', "deflated.zip: member '1.bin': out of memory: "),
    ('open("a.tfrecord.gz", on_error="skip").read([1])', "a.tfrecord.gz: out of memory: "),
]


@children.limits_memory
def test_file_or_sample_is_named(directory: Path) -> None:
    before = sorted(path.name for path in directory.iterdir())
    calls, words = zip(*CALLS, strict=True)
    told = children.finished(PROGRAM, directory, *calls)
    lines = told.stdout.splitlines()
    assert len(lines) == len(calls), told
    assert [(call, line) for call, line, each in zip(calls, lines, words, strict=True) if each not in line] == []
    assert sorted(path.name for path in directory.iterdir()) == before


@children.limits_memory
@pytest.mark.parametrize("max_skipped", [0, 1])
def test_parquet(directory: Path, max_skipped: int) -> None:
    """An error of pyarrow's memory is no damage that may be skipped."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"x": [b"a", bytes(SIZE)]}), directory / "a.parquet", row_group_size=1)
    call = f'convert("a.parquet", "out", num_workers=0, max_skipped={max_skipped})'
    assert "a.parquet: out of memory: " in children.finished(PROGRAM, directory, call).stdout


def test_an_error_is_named_once() -> None:
    found = name_memory_error(MemoryError("7 bytes"), "a")
    assert (type(found), str(found)) == (OutOfMemoryError, "a: out of memory: 7 bytes")
    assert name_memory_error(found, "b") is found
    assert str(name_memory_error(MemoryError(), "a\n")) == "a\\n: out of memory"
    with pytest.raises(MemoryError, match=r"^a: out of memory: 7 bytes$"), add_place_to_memory_errors(lambda: "b"):
        raise found
