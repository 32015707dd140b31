"""A command that runs out of memory says so in one line: the file, the size, what to do; exit code 3."""

import re
from pathlib import Path

import children
import numpy as np
import pytest

from ffrecord import DatasetWriter, export
from ffrecord.cli.terminal.messages import explain_memory, format_error, format_notes, is_out_of_memory
from ffrecord.errors import SampleError, WorkerError, add_note
from ffrecord.reading.prefetch import BEGUN

SIZE = 128 << 20

PROGRAM = """
import os, resource, sys
import numpy, ffrecord.conversion, ffrecord.dataset_writer
from ffrecord.cli import main

os.chdir(sys.argv[1])
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (100 << 20),) * 2)
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("large")
    samples = [{"x": np.zeros(size, np.uint8)} for size in (1, SIZE)]
    DatasetWriter(directory / "large", num_workers=0).from_indexed_dataset(samples)
    export(directory / "large", directory / "large.zip", num_workers=0)
    return directory


@pytest.mark.parametrize("source", ["large", "large.zip"])
@pytest.mark.parametrize(
    "command",
    ["export {} out.tar -j 1", "convert {} out -j 1", "verify {} -j 1", "get {} 1", "shuffle {} out -j 1"],
)
def test_one_line(directory: Path, command: str, source: str) -> None:
    done = children.finished(PROGRAM, directory, *command.format(source).split())
    name = command.split()[0]
    assert done.returncode == 3, done.stderr
    # Linux may lack memory, or requests of all programs together, for AIO, which is told before.
    told = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("Linux AIO was refused"))
    assert told.startswith(f"ffrecord {name}: ") and told.count("\n") == 1, told
    assert re.search(rf"{source}(/PART_00000.ffr: sample 1)?: ", told), told
    assert "out of memory: " in told and "MemoryError" not in told and "File " not in told
    assert told.endswith("; a record must fit into memory: free some memory\n")
    assert "--max-skipped" not in told
    assert sorted(path.name for path in directory.iterdir()) == ["large", "large.zip"]


def test_a_bare_error_says_what_it_is() -> None:
    assert format_error(MemoryError()) == "out of memory"
    assert format_error(MemoryError("out of memory: 7 bytes")) == "out of memory: 7 bytes"
    assert format_error(MemoryError("a.zip: out of memory: 7 bytes")) == "a.zip: out of memory: 7 bytes"


@pytest.mark.parametrize(
    "text, told",
    [
        ("failed at sample 1: MemoryError", "failed at sample 1: out of memory"),
        ("failed at sample 1: numpy._ArrayMemoryError: no 7 MiB", "failed at sample 1: out of memory: no 7 MiB"),
        (
            "failed at sample 1: ffrecord.errors.OutOfMemoryError: a: out of memory: 7 bytes",
            "failed at sample 1: a: out of memory: 7 bytes",
        ),
    ],
)
def test_an_error_of_a_worker_says_it_in_words(text: str, told: str) -> None:
    error = SampleError(text)
    error.__cause__ = MemoryError()
    assert format_error(error) == told


def test_advice_names_the_jobs_that_there_are() -> None:
    assert explain_memory("out of memory", ["a", "b"], 8) == (
        "a …: out of memory; use fewer --jobs than 8, or free some memory"
    )
    assert explain_memory("a: out of memory", ["a"], 1).startswith("a: out of memory; a record must fit")


def test_a_worker_out_of_memory_counts() -> None:
    error = SampleError("worker 1 failed")
    error.__cause__ = MemoryError()
    assert is_out_of_memory(error)
    assert is_out_of_memory(WorkerError("killed", exitcode=-9)) and not is_out_of_memory(WorkerError("x", exitcode=3))


def test_notes_with_tracebacks_are_left_out() -> None:
    error = ValueError("x")
    add_note(error, f"{BEGUN}\n  File x, line 3")
    add_note(error, "repeat it")
    assert format_notes(error) == "; repeat it"
