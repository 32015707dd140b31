"""Nothing is left behind: descriptors, AIO contexts, memory, files. Loops in children, which count their own."""

import builders
import children
import ffr_twin
import pytest
from builders import IO_MODES

COUNTING = """
import gc, logging, os, resource, sys, warnings
import numpy as np
import builders
from ffrecord import FFRecordError, FileReader, FileWriter, _aio
warnings.simplefilter("ignore", ResourceWarning)
logging.disable()

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def contexts():
    with open("/proc/self/maps") as lines:
        return sum("[aio]" in line for line in lines)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def loop(work, times, slope):
    '''Run it `times` after a warm-up; nothing may grow but memory, by less than `slope` bytes a time.'''
    for _ in range(max(10, times // 5)):
        work()
    gc.collect()
    before, memory = (descriptors(), contexts()), resident()
    for _ in range(times):
        work()
    gc.collect()
    assert (descriptors(), contexts()) == before, (descriptors(), contexts(), before)
    grown = resident() - memory
    # A thread of the engine that ended and came again has a new stack, and an arena of malloc.
    assert grown <= max(slope * times, 2 << 20), f"{grown} bytes after {times}"

def refused(*arguments, **options):
    try:
        FileReader(*arguments, **options)
    except (FFRecordError, OSError, AssertionError):
        return
    raise SystemExit(f"{arguments} was opened")
"""

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
import logging
logging.getLogger("ffrecord").setLevel(logging.ERROR)
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


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("kind", WORKS)
def test_reading(good_and_damaged, kind, io):
    times, work = WORKS[kind]
    code = f"{COUNTING}\npath, damaged, io = sys.argv[1:]\n{work}\nloop(work, {times}, 100)"
    children.run(code, *good_and_damaged, io)


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


def test_failing_opens(tmp_path):
    """100 of them leaked 100 descriptors in the original."""
    for number, data in enumerate(BAD_FILES.values()):
        builders.write(tmp_path / f"bad{number}.{'ffr' if data else 'txt'}", data)
    code = f"""{COUNTING}
bad = [os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1]) if name.startswith("bad")]
bad += ["/missing.ffr", sys.argv[1]]
assert len(bad) == {len(BAD_FILES) + 2}
def work():
    for path in bad:
        refused(path)
        refused([sys.argv[2], sys.argv[2], path])
loop(work, 100, 1000)
"""
    children.run(code, tmp_path, builders.write_samples(tmp_path / "good.ffr", [b"x"]))


# What a loop does, and what it leaves in the directory. `path` and `data` are given.
WRITING = {
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
}  # fmt: skip


@pytest.mark.parametrize("kind", WRITING)
def test_writing(tmp_path, kind):
    left, work = WRITING[kind]
    code = f"{COUNTING}\npath, data = sys.argv[1], np.zeros(200_000, np.uint8)\n{work}\nloop(work, 50, 1000)"
    children.run(code, tmp_path / "a.ffr")
    assert {path.name for path in tmp_path.iterdir()} == left


def test_no_shared_memory_and_no_threads(good_and_damaged):
    """Names in /dev/shm would be left behind by a kill, threads do not survive a fork."""
    code = f"""{COUNTING}
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
