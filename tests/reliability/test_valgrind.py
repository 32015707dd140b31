"""T18 (guarantees G3, G4): twenty core tests under valgrind, which sees memory that is used before it is written."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from planted.defect import path_of

ROOT = Path(__file__).parents[2]
TESTS = [
    "test_reader.py::test_read_one",
    "test_reader.py::test_read_packed",
    "test_reader.py::test_order_is_kept",
    "test_reader.py::test_only_empty_samples",
    "test_aio.py::test_spans",
    "test_aio.py::test_end_of_file",
    "test_aio.py::test_out_is_too_small",
    "test_records.py::test_many_and_large",
    "test_records.py::test_what_is_taken_out_stays",
    "test_writer.py::test_with_n_the_bytes_are_those_of_the_original",
    "test_writer.py::test_with_n_and_an_extension",
    "test_crc.py::test_published_vectors",
    "test_iter_batches.py::test_errors_in_their_turn",
    "test_read_columns.py::test_into_memory_of_the_caller",
    "test_resample.py::test_golden",
    "test_permutation.py::test_check",
    "test_zip.py::test_by_name",
    "test_tar.py::test_prefixes",
    "test_recordio.py::test_nothing_in_it",
    "test_snappy.py::test_the_limit",
    "test_example_parser.py::test_samples_are_rows",
]
ERROR = re.compile(r"^==\d+== [A-Z].*\n(?:==\d+==    .*\n)+", re.MULTILINE)  # what it is, then the stack


def ours(log: str) -> list[str]:
    """Errors that modules of ffrecord were part of; Python and numpy have some of their own."""
    return [error for error in ERROR.findall(log) if "ffrecord/_" in error or "/ffrecord" in error]


def memcheck(log: Path, *command: object) -> tuple[int, list[str]]:
    """Exit status of a Python program under it, and the errors."""
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    if os.environ.get("LD_PRELOAD"):
        pytest.skip("preloads something else already, such as a sanitizer")
    options = ["--tool=memcheck", "--leak-check=no", f"--log-file={log}", "--num-callers=20"]
    environment = {**os.environ, "PYTHONMALLOC": "malloc", "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
    words = ["valgrind", *options, sys.executable, *map(str, command)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    print(done.stdout[-4000:], done.stderr[-4000:])
    return done.returncode, ours(log.read_text(errors="replace"))


def test_all_of_the_core_is_there() -> None:
    """Else the long test finds nothing, because it has nothing to run."""
    for test in TESTS:
        path, _, name = path_of(ROOT, test).partition("::")
        assert path, test
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE), test


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_core(tmp_path: Path) -> None:
    tests = [path_of(ROOT, name) for name in TESTS]
    status, errors = memcheck(
        tmp_path / "log", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3000", *tests
    )
    assert (status, errors) == (0, [])


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_is_planted_is_found(tmp_path: Path) -> None:
    source, library = tmp_path / "planted.c", tmp_path / "ffrecord/_planted.so"
    library.parent.mkdir()
    source.write_text("#include <stdlib.h>\nint plant(void) { int *p = malloc(8); return p[1] > 3 ? p[2] : 0; }\n")
    subprocess.run(
        [shutil.which("cc") or pytest.skip("no C compiler"), "-shared", "-fPIC", source, "-o", library], check=True
    )
    status, errors = memcheck(tmp_path / "log", "-c", f"import ctypes; ctypes.CDLL({str(library)!r}).plant()")
    assert status == 0
    assert any("uninitialised" in error for error in errors)
