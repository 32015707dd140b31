"""T4 (guarantees G1, G2): the package as users have it, with errors that strace puts in the place of system calls."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import builders
import children
import ffr_twin
import figures
import pytest

OLD = [b"old"]
SAMPLES = [b"x" * 100, b"", b"y" * 5000]
WRITER = """
import sys
from ffrecord import FileWriter
path, samples = sys.argv[1], eval(sys.argv[2])
try:
    with FileWriter(path, len(samples)) as writer:
        writer.write_many(samples)
except OSError as error:
    assert isinstance(error, RuntimeError) and path in str(error), error
    print(error.errno, "is in place" in str(error))
else:
    print(0, True)
"""
READER = """
import sys
from ffrecord import FileReader
path, samples = sys.argv[1], eval(sys.argv[2])
try:
    with FileReader(path, io=sys.argv[3]) as reader:
        found = [bytes(sample) for sample in reader.read([0, 1, 2])]
except OSError as error:
    assert path in str(error), error
    print(error.errno)
else:
    assert found == samples
    print(0)
"""
# As strace calls them, and at which calls; the start of Python makes none of these.
WRITES = {"pwrite64": (1, 2, 3), "fsync": (1, 2), "rename": (1,), "fallocate": (1,)}
READS = {"preadv2": "auto", "io_setup": "direct", "io_submit": "direct", "io_getevents": "direct"}


@pytest.fixture(scope="module")
def strace() -> str:
    """The tool, where the machine lets it trace."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("strace is not installed: no errors are put in the place of a release build's calls")
    done = subprocess.run([found, "-f", "-o", "/dev/null", "-e", "inject=rename:error=EIO:when=9", "true"], check=False)
    if done.returncode:
        pytest.skip("this machine does not let strace trace (ptrace) or inject")
    return found


def injected(strace: str, what: str, code: str, *args: object) -> tuple[str, bool]:
    """What a child that runs `code` printed, and whether the error was put in."""
    log = Path(str(args[0])).with_name("strace.log")
    call = what.partition(":")[0]
    command = [
        strace,
        "-f",
        "-o",
        str(log),
        "-e",
        f"trace={call}",
        "-e",
        f"inject={what}",
        "-E",
        "PYTHONDONTWRITEBYTECODE=1",
    ]
    command += [sys.executable, "-W", "error", "-c", code, *map(str, args)]
    done = subprocess.run(command, cwd=children.HERE.parent, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, "(INJECTED)" in log.read_text()


@pytest.mark.parametrize("call", WRITES)
def test_writing(tmp_path: Path, counted: figures.Counted, strace: str, call: str) -> None:
    """The error is told, and the old file stays."""
    for when in WRITES[call]:
        path = tmp_path / "a.ffr"
        path.write_bytes(ffr_twin.build(OLD))
        said, was = injected(strace, f"{call}:error=EIO:when={when}", WRITER, path, repr(SAMPLES))
        number, in_place = said.split()
        assert was and int(number) == errno.EIO, said
        assert ffr_twin.parse(path.read_bytes()) == (SAMPLES if in_place == "True" else OLD)
        assert sorted(each.name for each in tmp_path.iterdir()) == ["a.ffr", "strace.log"]
        counted.add("injected errors")


@pytest.mark.parametrize("call", READS)
def test_reading(tmp_path: Path, counted: figures.Counted, strace: str, call: str) -> None:
    """What fails there is done in another way."""
    path = builders.write_samples(tmp_path / "a.ffr", SAMPLES)
    said, was = injected(strace, f"{call}:error=EINVAL:when=1+", READER, path, repr(SAMPLES), READS[call])
    if not was:
        pytest.skip(f"{call} is not called here")
    assert said == "0\n"
    counted.add("injected errors")
