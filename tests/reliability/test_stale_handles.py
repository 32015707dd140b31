"""T13 (guarantee G9): a server forgets an open file (ESTALE); it is opened again if it is still the same."""

import os
import shutil
from pathlib import Path

import builders
import faults
import pytest
from figures import Counted

CALLING_MODES = ("pread", "direct")  # of which every read is a system call

PROGRAM = """
import errno, os, sys
import builders, children
from ffrecord import FileReader
from ffrecord.system import _calls
from ffrecord.errors import FFRecordError

path, io, other = sys.argv[1:]
SITES = ("pread", "preadv", "preadv2", "fstat", "io_getevents")
with FileReader(path, io=io) as reader:
    samples = builders.read_all(reader)
    reads = [
        lambda: builders.read_all(reader),
        lambda: builders.unpack(reader.read_packed(range(reader.n))),
        lambda: [sample.tobytes() for sample in reader],
        lambda: [sample for packed in reader.iter_batches([range(9), range(9, reader.n)], packed=True)
                 for sample in builders.unpack(packed)],
        lambda: [reader.read_one(i).tobytes() for i in range(reader.n)],
    ]
    before = children.descriptors()

    def stale(site, call, **more):
        _calls.clear()
        action = "event fails" if site == "io_getevents" else "fail"
        _calls.fault(site, call, action, errno.ESTALE, **more)

    fired = 0
    for read in reads:
        for site in SITES:
            for call in (1, 2, 5, 9):
                stale(site, call)
                assert read() == samples, (site, call)
                fired += _calls.fired()
    _calls.clear()
    assert len(children.descriptors()) == len(before), children.descriptors()

    stale("pread", 1, for_good=True)
    if io != "direct":
        _calls.fault(("preadv", "preadv2"), 1, "fail", errno.ESTALE, for_good=True)
        try:
            reader.read(range(reader.n))
        except OSError as error:
            assert error.errno == errno.ESTALE and path in str(error), error
        else:
            sys.exit("no error though it is stale for good")
    _calls.clear()
    assert builders.read_all(reader) == samples

    os.replace(other, path)
    stale("pread", 1)
    _calls.fault(("preadv", "preadv2"), 1, "fail", errno.ESTALE, for_good=True)
    _calls.fault("io_getevents", 1, "event fails", errno.ESTALE)
    try:
        reader.read(range(reader.n))
    except OSError as error:
        assert error.errno == errno.ESTALE and "was replaced or removed" in str(error), error
    else:
        sys.exit("no error though it is another file")
    _calls.clear()
    assert builders.read_all(reader) == samples  # what is open is open still
print(fired)
"""


@pytest.mark.parametrize("io", CALLING_MODES)
def test_stale(tmp_path: Path, io: str, counted: Counted) -> None:
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([3000, 0, 70_000, 1, 4096] * 8))
    other = builders.write_samples(tmp_path / "b.ffr", builders.records([3000] * 40))
    fired = int(faults.run(PROGRAM, path, io, other, timeout=200))
    assert fired > 10
    counted.add("stale handles", fired)


GONE = """
import errno, sys, os
import builders
from ffrecord import FileReader
from ffrecord.system import _calls

path = sys.argv[1]
with FileReader(path, io="pread") as reader:
    samples = builders.read_all(reader)
    os.unlink(path)
    _calls.fault(("pread", "preadv"), 1, "fail", errno.ESTALE, for_good=True)
    try:
        reader.read([3, 4])
    except OSError as error:
        assert error.errno == errno.ESTALE and "was replaced or removed" in str(error), error
    else:
        sys.exit("no error")
    _calls.clear()
    os.rename(sys.argv[2], path)  # the same file, by its inode
    _calls.fault("pread", 1, "fail", errno.ESTALE)
    assert builders.read_all(reader) == samples
    assert [reader.read_one(i).tobytes() for i in range(8)] == samples
"""


def test_gone_and_there_again(small_file, tmp_path: Path) -> None:
    """Under another name meanwhile."""
    os.link(small_file.path, tmp_path / "kept.ffr")
    faults.run(GONE, small_file.path, tmp_path / "kept.ffr")


THREADS = """
import errno, sys, threading
import builders
from ffrecord import FileReader
from ffrecord.system import _calls

path, io = sys.argv[1:]
with FileReader(path, io=io) as reader:
    samples = builders.read_all(reader)
    wrong, stop = [], threading.Event()

    def work():
        while not stop.is_set():
            try:
                if builders.unpack(reader.read_packed(range(reader.n))) != samples:
                    wrong.append("other bytes")
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    fired = 0
    for turn in range(30):
        _calls.clear()
        for site in ("pread", "preadv", "preadv2"):
            _calls.fault(site, 1 + turn % 7, "fail", errno.ESTALE)
        while _calls.count(("pread", "preadv", "preadv2", "io_getevents")) < 40:
            pass
        fired += _calls.fired()
    stop.set()
    for thread in threads:
        thread.join()
assert not wrong, wrong
print(fired)
"""


@pytest.mark.parametrize("io", CALLING_MODES)
def test_others_read_the_same_descriptor_meanwhile(tmp_path: Path, io: str, counted: Counted) -> None:
    """Which is led to the new one in one step."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([3000, 0, 70_000, 1, 4096] * 8))
    shutil.copy(path, tmp_path / "b.ffr")
    counted.add("stale handles", int(faults.run(THREADS, path, io, timeout=100)))
