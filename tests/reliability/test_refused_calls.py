"""T4 (guarantees G2, G6): every system call that a container may not have, or not allow, refused in three ways.

What only makes things faster is done without, to the same bytes. What cannot be done without is an error that names the
file, the call, and the way out, and leaves nothing behind. The kernel itself refuses, so calls of Python, numpy and the
C library are refused, too.
"""

import contextlib
import errno
import io
import os
import platform
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import builders
import children
import ffr_twin
import pytest
from figures import Counted

import ffrecord
from ffrecord import DatasetWriter, FileReader, FileWriter
from ffrecord.cli import main
from ffrecord.sources import TFRecordWriter, unpack

ERRORS = (errno.ENOSYS, errno.EPERM, errno.EINVAL)
SAMPLES = builders.records([i * 997 % 40_000 for i in range(60)])
NEEDLESS = (
    "sync_file_range",
    "epoll_create1",
    *("copy_file_range", "dup3", "fadvise64", "fallocate", "fchown", "fgetxattr", "flock", "fsetxattr"),
    *("fstatfs", "getrlimit", "getrusage", "getxattr", "io_destroy", "io_getevents", "io_setup", "io_submit"),
    *("madvise", "membarrier", "memfd_create", "mincore", "pidfd_open", "prctl", "preadv", "preadv2"),
    *("prlimit64", "sched_getaffinity", "pwritev2", "statx", "syncfs", "sysinfo", "close_range"),
    *("link", "linkat"),
)
# Of these not every use must fail.
NEEDED = (
    "fsync",
    "ftruncate",
    "pwrite64",
    "pread64",
    "getdents64",
    "mkdir",
    "rename",
    "socketpair",
    "fchmod",
    "mkdirat",
    "renameat",
    "setsockopt",
    "unlinkat",
)
# What messages call them, if not by the name in the kernel.
CALLED = {"pread64": "pread", "pwrite64": "pwrite", "mkdirat": "mkdir", "renameat": "rename"}
WAYS_OUT = ("allow this call where it is refused", "pass num_workers=0")
# Without these nothing can be removed, or not what is found by listing a directory.
REMOVING = ("unlinkat", "getdents64")
# Refused by container runtimes that are in use, or by kernels that somebody has.
EVERYDAY = (
    *("fallocate", "fsync", "io_setup", "memfd_create", "preadv2", "prlimit64"),
    *("sched_getaffinity", "sync_file_range"),
)
pytestmark = pytest.mark.unsanitized("a sanitizer does not live without these calls")

Work = Callable[[Path], None]


def columns(samples: list[bytes]) -> list[dict[str, bytes]]:
    return [{"data": sample} for sample in samples]


def write_file(place: Path) -> None:
    with FileWriter(place / "a.ffr") as writer:
        writer.write_many(SAMPLES[:30])
        writer.flush()
        writer.write_many(SAMPLES[30:])
    assert ffr_twin.parse((place / "a.ffr").read_bytes()) == SAMPLES


def replace_file(place: Path) -> None:
    (place / "a.ffr").write_bytes(ffr_twin.build(SAMPLES[:2]))
    (place / "a.ffr").chmod(0o604)
    write_file(place)
    assert (place / "a.ffr").stat().st_mode & 0o777 == 0o604


def write_dataset(place: Path) -> None:
    options = {"samples_per_shard": 20, "progress": False}
    DatasetWriter(place / "set", num_workers=2, **options).from_indexed_dataset(SAMPLES)
    DatasetWriter(place / "set", num_workers=0, mode="append", **options).from_iterable(iter(SAMPLES))
    with FileReader(place / "set") as reader:
        assert builders.read_all(reader) == SAMPLES * 2


def read(place: Path) -> None:
    path = builders.write_samples(place / "read.ffr", SAMPLES)
    for mode in builders.IO_MODES:
        with FileReader(path, io=mode) as reader:
            for _ in range(6):
                assert builders.read_all(reader) == SAMPLES
                assert [bytes(sample) for sample in reader.read(range(59, -1, -7))] == SAMPLES[::-7]
            assert [bytes(sample) for sample in reader] == SAMPLES


def export_and_unpack(place: Path) -> None:
    for name in ("a.zip", "a.tar", "a.tfrecord"):
        ffrecord.export(columns(SAMPLES), place / name, progress=False)
    ffrecord.export(columns(SAMPLES), place / "folder", format="folder", progress=False)
    unpack(place / "a.zip", place / "unpacked")
    for directory in ("folder", "unpacked"):
        found = [place / directory / f"{i:06}.bin" for i in range(len(SAMPLES))]
        assert [path.read_bytes() for path in found] == SAMPLES
    ffrecord.convert(place / "a.zip", place / "converted", num_workers=0, progress=False)


def read_formats(place: Path) -> None:
    with TFRecordWriter(place / "r.tfrecord") as writer:
        for sample in SAMPLES:
            writer.write(sample)
    with zipfile.ZipFile(place / "r.zip", "w") as archive:
        for i, sample in enumerate(SAMPLES):
            archive.writestr(f"{i:03}.bin", sample)
    for _ in range(2):
        with ffrecord.open(place / "r.tfrecord", index_cache=True) as store:
            assert builders.read_all(store) == SAMPLES
    with ffrecord.open(place / "r.zip") as store:
        assert builders.read_all(store) == SAMPLES


def command_line(place: Path) -> None:
    path = builders.write_samples(place / "c.ffr", SAMPLES)
    for given in (["info", path], ["verify", path], ["split", path, f"{place}/x=20", f"{place}/y=rest"]):
        assert main([*given, "--quiet", "--json"]) == 0, given


def write_deep(place: Path) -> None:
    DatasetWriter(place / "a" / "b" / "c.ffr", num_workers=0, progress=False).from_iterable(iter(SAMPLES))


def pack(place: Path) -> None:
    (place / "files" / "a").write_bytes(SAMPLES[1])
    ffrecord.pack_folder(place / "files", place / "packed.ffr")


def split(place: Path) -> None:
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        status = main(
            ["split", f"{builders.write_samples(place / 's.ffr', SAMPLES)}", f"{place}/x=20", f"{place}/y=rest"]
        )
    if status:
        raise ffrecord.FFRecordError(said.getvalue())


EXPORTS = ("zip", "tar", "tfrecord", "folder")


def export(kind: str) -> Work:
    def work(place: Path) -> None:
        suffix = "" if kind == "folder" else f".{kind}"
        ffrecord.export(columns(SAMPLES), place / f"out{suffix}", format=kind, progress=False)

    return work


WORKS: tuple[Work, ...] = (write_file, replace_file, write_dataset, read, export_and_unpack, read_formats)
MORE: tuple[Work, ...] = (write_deep, pack, split, *map(export, EXPORTS))


def attempt(call: str, number: int, works: tuple[Work, ...], told: Callable[[Work, Path, Exception], None]) -> bool:
    """Whether the works go well where a call is refused, or `told` has no complaint about their errors."""
    directory = Path(tempfile.mkdtemp(prefix="ffrecord-refused-"))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        places = [directory / f"{number}" for number in range(len(works))]
        for place in places:
            (place / "files").mkdir(parents=True)
        children.refuse(call, number)
        for work, place in zip(works, places, strict=True):
            try:
                work(place)
            except Exception as error:
                told(work, place, error)
        return True
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def unforgiving(work: Work, place: Path, error: Exception) -> None:
    raise AssertionError(f"{work.__name__} ended with {type(error).__name__}: {error}") from error


def names_its_call(call: str, number: int, work: Work, place: Path, error: Exception) -> None:
    """The call, the file by its path, and the way out; nothing is left that begins with a dot."""
    told = f"{work.__name__}: {error!r}"
    assert type(error).__module__ == "ffrecord.errors", told
    assert isinstance(error, OSError) or work is split, told
    said = str(error)
    assert str(place) in said or "num_workers=0" in said, f"{told} names no file"
    assert f": {CALLED.get(call, call)} is refused: {os.strerror(number)}; " in said, f"{told} names no call"
    assert any(way in said for way in WAYS_OUT), f"{told} names no way out"
    if call not in REMOVING:
        kept = "".join(getattr(error, "__notes__", [])) + said
        left = [path for path in place.rglob(".*") if str(path) not in kept and not path.name.endswith(".split")]
        assert not left, f"{told} leaves {left}"


@pytest.fixture(scope="module", autouse=True)
def filters(tmp_path_factory: pytest.TempPathFactory) -> None:
    """All is imported before a call is refused that imports make, too."""
    for work in (*WORKS, *MORE, command_line):
        place = tmp_path_factory.mktemp(work.__name__)
        (place / "files").mkdir()
        work(place)
    if platform.machine() not in children.SYSCALLS:
        pytest.skip(f"the numbers of system calls of {platform.machine()} are not known here")
    if children.in_child(lambda: children.refuse("sysinfo", errno.EPERM) is None):
        pytest.skip("this machine allows no filters of system calls")


def known(call: str) -> None:
    if call not in children.SYSCALLS[platform.machine()]:
        pytest.skip(f"{platform.machine()} has no call {call}")


def each(calls: tuple[str, ...]) -> pytest.MarkDecorator:
    """A test of each call; in everyday runs of a few."""
    given = [call if call in EVERYDAY else pytest.param(call, marks=pytest.mark.long) for call in calls]
    return pytest.mark.parametrize("call", given)


# Else each work has one of the errors.
with_every_error = pytest.mark.parametrize(
    "every", [pytest.param(False, id="in turns"), pytest.param(True, id="all", marks=pytest.mark.long)]
)


def refuse_in_turns(
    call: str,
    works: tuple[Work, ...],
    told: Callable[[Work, Path, Exception], None],
    every: bool,
    errors: tuple[int, ...] = ERRORS,
) -> None:
    """Refuse a call in each way, to all works or to those whose turn it is: with another call, others."""
    known(call)
    first = (NEEDLESS + NEEDED).index(call)
    for number in errors:
        turn = first + ERRORS.index(number)
        chosen = works if every else works[turn % len(ERRORS) :: len(ERRORS)]
        assert children.in_child(lambda number=number, chosen=chosen: attempt(call, number, chosen, told)) == 0, number


@pytest.mark.timeout(600)
@with_every_error
@each(NEEDLESS)
def test_what_can_be_done_without(call: str, every: bool, counted: Counted) -> None:
    refuse_in_turns(call, (*WORKS, *MORE, command_line), unforgiving, every)
    counted.add("refused calls", len(ERRORS))


@pytest.mark.parametrize("number", ERRORS)
def test_records_are_read_without_asking_for_the_end_of_a_file(tmp_path: Path, number: int) -> None:
    """The size of a file is asked for by lseek where one cached record is read; Python's tar files need it, too."""
    path = builders.write_samples(tmp_path / "a.ffr", SAMPLES)

    def read_each() -> bool:
        with FileReader(path, io="mmap") as mapped, FileReader(path) as reader:
            assert builders.read_all(reader) == SAMPLES
            children.refuse("lseek", number)
            for store in (mapped, reader):
                assert [bytes(store[i]) for i in range(60)] == SAMPLES
                assert [bytes(store.read_one(i)) for i in range(60)] == SAMPLES
        return True

    assert children.in_child(read_each) == 0


@each(("fsync", "ftruncate", "pread64", "pwrite64", "getdents64"))
@pytest.mark.parametrize("number", ERRORS)
def test_a_recovery_names_the_call_and_stays_possible(tmp_path: Path, call: str, number: int) -> None:
    known(call)

    def write_some() -> bool:
        writer = FileWriter(tmp_path / "r.ffr")
        writer.write_many(SAMPLES)
        writer.flush()
        os._exit(0)  # as if killed

    def recover() -> bool:
        children.refuse(call, number)
        with pytest.raises(OSError) as caught:
            ffrecord.recover(tmp_path / "r.ffr")
        assert type(caught.value).__module__ == "ffrecord.errors"
        said = str(caught.value)
        assert f": {CALLED.get(call, call)} is refused: {os.strerror(number)}; {WAYS_OUT[0]}" in said, said
        assert str(tmp_path) in said
        return True

    assert children.in_child(write_some) == 0
    assert children.in_child(recover) == 0
    assert ffrecord.recover(tmp_path / "r.ffr").samples == len(SAMPLES)
    assert [path.name for path in tmp_path.iterdir()] == ["r.ffr"]


@pytest.mark.timeout(600)
@with_every_error
@each(NEEDED)
def test_what_cannot_be_done_without_names_the_file(call: str, every: bool, counted: Counted) -> None:
    for number in ERRORS:
        refuse_in_turns(call, (*WORKS, *MORE), partial(names_its_call, call, number), every, (number,))
    counted.add("refused calls", len(ERRORS))


def test_all_calls_of_the_package_are_refused() -> None:
    """Every call of the compiled modules is in one of the lists, under the name that it has in the kernel."""
    header = (Path(ffrecord.__file__).parent / "system" / "calls.h").read_text()
    named = {"pread": "pread64", "pwrite": "pwrite64", "posix_fadvise": "fadvise64", "readdir": "getdents64"}
    made = {named.get(call, call) for call in re.findall(r"#define call_(\w+)", header)}
    # Without these no program runs, or not Python's own files.
    always = {
        "lseek",
        "fcntl",
        "open",
        "openat",
        "opendir",
        "close",
        "stat",
        "fstat",
        "fstatat",
        "mmap",
        "munmap",
        "pthread_create",
    }
    assert made - always - {*NEEDLESS, *NEEDED} == set()
