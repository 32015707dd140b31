"""T5 (guarantee G2): folders of files read the same with and without hints to the kernel.

And sweeps in forked children (G6). In the build with faults, see faults.py.
"""

from pathlib import Path

import builders
import faults
import numpy as np
import pytest
import situations

FILES = 160  # two parts of what is open at once
CODE = """
import sys
from pathlib import Path
from ffrecord.system import _calls
from ffrecord.sources import PathListReader

def told(paths) -> int:
    \"""How often the kernel was told of files while all are read.\"""
    with PathListReader(paths, labels=False) as reader:
        before = _calls.count("posix_fadvise")
        assert [record.tobytes() for record in reader.read(range(len(paths)))] == [path.read_bytes() for path in paths]
        return _calls.count("posix_fadvise") - before

paths = sorted(Path(sys.argv[1]).iterdir())
_calls.fault("pread", 1, "delay", 1, for_good=True)
print(told(paths), told(paths))
_calls.fault("posix_fadvise", 1, "fail", 22, for_good=True)
print(told(paths))
_calls.clear()
while told(paths[10:]):  # a busy machine may look like a slow disk
    pass
"""

FORKED = """
import os, signal, sys, threading, time
import numpy as np
import situations
from ffrecord import FileReader
from ffrecord.system import _calls

def batch(reader, size: int, seed: int) -> None:
    indices = np.random.default_rng(seed).integers(0, len(reader), size)
    data, offsets = reader.read_packed(indices)
    assert (data[offsets[:-1]] == indices % 251).all()

reader = FileReader(sys.argv[1], False)
reader.get_offsets(0), reader.get_checksums(0)
situations.evict(sys.argv[1])
_calls.fault("pread", 1, "delay", 10, for_good=True)
long = threading.Thread(target=batch, args=(reader, 400, 0))  # so nothing is swept until it ends
long.start()
batch(reader, 64, 1)  # lends the sweep some of its time
for seed in range(3):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        start = time.monotonic()
        batch(reader, 32, seed + 2)
        os._exit(int(10 * (time.monotonic() - start)))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) / 10)
long.join()
"""


def test_files_that_are_waited_for_are_read_ahead(tmp_path: Path) -> None:
    """Once one was: those of the next parts, of large ones the beginning. What the kernel answers does not matter."""
    for number in range(FILES):
        size = {0: 0, 1: 128 * 1024 + 1, 2: 3 << 20}.get(number, 1000)
        (tmp_path / f"{number:03}").write_bytes(bytes([number]) * size)
    both = str(FILES - 3 + 2 + 8)  # the kernel takes 128 KiB at a time, and 1 MiB is the most
    assert faults.run(CODE, tmp_path).split() == ["80", both, both]


def test_a_child_that_is_forked_while_batches_wait_for_their_records(tmp_path: Path) -> None:
    """The parent's batches are not read in the child: it took them for its own, and its sweep waited for their end."""
    count, size = 8000, 4000
    offsets = np.arange(count, dtype="<i8") * size + 12 + 12 * count
    data = bytes(4) + count.to_bytes(8, "little") + bytes(4 * count) + offsets.tobytes()
    samples = np.repeat((np.arange(count) % 251).astype(np.uint8), size).tobytes()
    path = builders.write(tmp_path / "a.ffr", data + samples)
    if not situations.can_be_evicted(path):
        pytest.skip("nothing can be evicted from the page cache here, so nothing is ever swept")
    seconds = [float(line) for line in faults.run(FORKED, path, timeout=90).splitlines()]
    assert len(seconds) == 3 and all(0 <= each < 10 for each in seconds), seconds
