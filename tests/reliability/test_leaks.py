"""T11 (guarantee G7): readers leave nothing behind, also after failures: descriptors, AIO contexts, threads, memory."""

from pathlib import Path

import builders
import children
import ffr_twin
import leaking
import pytest
from builders import IO_MODES
from figures import Counted, counts, left_to_long

# What a loop does, and how often. `path`, `damaged` and `io` are given.
WORKS = {
    "open and close": (1000, """
def work():
    FileReader(path, io=io).close()
"""),
    "open and drop": (1000, """
def work():
    FileReader(path, io=io).read(range(5))
"""),
    "batches": (1000, """
reader = FileReader(path, io=io)
def work():
    reader.read(range(40))
    reader.read_packed(range(40))
    reader.read_one(3)
"""),
    "columns": (1000, """
reader, same = FileReader(path, io=io), [30] * 40
out = [np.empty(40 * 15_000, np.uint8), np.empty((40, 8), np.uint8)]
def work():
    reader.read_columns(same, 15_000, [(0, 15_000), (1, 8)])
    reader.read_columns(same, 15_000, [(0, 15_000), (1, 8)], out)
    for wrong in ((same, 9, []), ([30, 31], 15_000, []), (same, 15_000, [(0, 15_001)]), (same, 15_000, [(0, 1)], out)):
        try:
            reader.read_columns(*wrong)
        except (FFRecordError, ValueError):
            continue
        raise SystemExit("no error")
"""),
    "kept and dropped arrays": (1000, """
reader, kept = FileReader(path, io=io), []
def work():
    kept.append(reader.read(range(40)))
    del kept[:-5]
"""),
    "failing batches": (300, """
reader = FileReader(damaged, io=io)
def work():
    for call in (reader.read, reader.read_packed):
        try:
            call(range(40))
        except FFRecordError:
            continue
        raise SystemExit("no error")
"""),
    "skipping batches": (300, """
reader = FileReader(damaged, io=io, on_error="skip")
def work():
    reader.read(range(40))
    reader.read_packed(range(40))
"""),
    "wrong indices": (1000, """
reader = FileReader(path, io=io)
def work():
    for wrong in ([0, 1, 10**6], ["x"], [1.5]):
        try:
            reader.read(wrong)
        except (IndexError, TypeError):
            continue
        raise SystemExit("no error")
"""),
    "tables": (1000, """
reader = FileReader(path, io=io)
def work():
    reader.get_offsets(0), reader.get_checksums(0), reader.validate(), reader.loc([1])
"""),
    "pickling": (500, """
import pickle
reader = FileReader(path, io=io)
def work():
    pickle.loads(pickle.dumps(reader)).close()
"""),
    "iteration broken off": (500, """
reader = FileReader(path, io=io)
def work():
    for _ in reader:
        break
    next(iter(reader[3:]))
"""),
}  # fmt: skip


@pytest.mark.timeout(900)
@counts(1, 10)
@pytest.mark.parametrize(
    "kind", left_to_long(WORKS, "open and drop", "skipping batches", "pickling", "iteration broken off")
)
def test_reading(good_and_damaged: tuple[str, str], kind: str, count: int) -> None:
    times, work = WORKS[kind]
    code = f"(path, damaged), io = sys.argv[1:], turn\n{work}"
    leaking.run(code, times * count, 100, *good_and_damaged, turns=IO_MODES)


BAD_FILES = {
    "short": b"x" * 5,
    "n": builders.set_n(10**6)(ffr_twin.build([b"x"])),
    "first offset": builders.set_offset(0, 5)(ffr_twin.build([b"x"])),
    "header checksum": builders.set_header_crc(1)(ffr_twin.build([b"x"])),
    "gap": ffr_twin.build([b"x"], b"hidden"),
    "block": builders.set_block("crc", 1, 24)(ffr_twin.build_extended([b"x"], b"\x80")),
    "payload": ffr_twin.build_extended([b"x"], b"\xc1"),
    "old, offsets": builders.chain(builders.set_offset(1, 30), builders.set_header_crc(0))(
        ffr_twin.build([b"x", b"y"])
    ),
    "suffix": b"",
}


@counts(200, 10_000)
def test_failing_opens(tmp_path: Path, count: int, counted: Counted) -> None:
    """100 of them leaked 100 descriptors in the original."""
    for number, data in enumerate(BAD_FILES.values()):
        builders.write(tmp_path / f"bad{number}.{'ffr' if data else 'txt'}", data)
    good = builders.write_samples(tmp_path / "good.ffr", [b"x"])
    bad = [*sorted(map(str, tmp_path.glob("bad*"))), "/missing.ffr", str(tmp_path)]
    assert len(bad) == len(BAD_FILES) + 2
    work = """
good, *bad = sys.argv[1:]
def work():
    for path in bad:
        refused(FileReader, path)
        refused(FileReader, [good, good, path])
"""
    times = -(-count // (2 * len(bad)))
    leaking.run(work, times, 100, good, *bad)
    counted.add("failing opens without a leaked descriptor", times * 2 * len(bad))


LEAKS = {
    "descriptor": "os.dup(0)",
    "temporary file": "os.close(tempfile.mkstemp()[0])",
    "file beside": "tempfile.mkdtemp(dir=sys.argv[1])",
    "process": "subprocess.Popen(['sleep', '1'])",
    "AIO context": "libc.syscall(children.SYSCALLS[platform.machine()]['io_setup'], 1, ctypes.byref(ctypes.c_ulong()))",
}
MEMORY = "kept.append(b'x' * 300_000)"


@pytest.mark.parametrize("kind", [*LEAKS, pytest.param("memory", marks=children.measures_memory)])
def test_leaks_are_found(tmp_path: Path, kind: str) -> None:
    """By the loop that all these tests are made of."""
    work = f"""
import ctypes, platform, subprocess
libc, kept = ctypes.CDLL(None), []
def work():
    {LEAKS.get(kind, MEMORY)}
"""
    with pytest.raises(AssertionError, match="child ended with 1"):
        leaking.run(work, 10, 100, tmp_path, files=[tmp_path])


@children.measures_memory
@counts(1_000, 10_000)
def test_a_small_leak_of_memory_is_found(tmp_path: Path, count: int) -> None:
    """Of 1 kB each time, as of an object that is not let go of, among what readers take and give back."""
    builders.write_samples(tmp_path / "a.ffr", [b"x" * 100] * 10)
    work = """
kept = []
def work():
    with FileReader(sys.argv[1]) as reader:
        reader.read(range(10))
    kept.append(bytes(SIZE))
"""
    with pytest.raises(AssertionError, match=r"bytes in the quarters|bytes after"):
        leaking.run(work.replace("SIZE", "1000"), count, 100_000, tmp_path / "a.ffr")
    leaking.run(work.replace("SIZE", "0"), count, 100, tmp_path / "a.ffr")


def test_no_shared_memory_and_no_threads(good_and_damaged):
    """Names in /dev/shm would be left behind by a kill, threads do not survive a fork."""
    code = f"""{leaking.LOOP}
tasks = len(os.listdir("/proc/self/task"))
for io in ("pread", "auto", "direct"):
    with FileReader(sys.argv[1], io=io) as reader:
        reader.read(range(40))
        reader.read_packed(range(40))
assert len(os.listdir("/proc/self/task")) == tasks
with open("/proc/self/maps") as maps:
    assert not [line for line in maps if "/dev/shm" in line and sys.argv[1] not in line]
"""
    children.run(code, good_and_damaged[0])
