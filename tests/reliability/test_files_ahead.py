"""T5 (guarantee G2): folders of files read the same with and without hints to the kernel.

In the build with faults, see faults.py.
"""

from pathlib import Path

import faults

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


def test_files_that_are_waited_for_are_read_ahead(tmp_path: Path) -> None:
    """Once one was: those of the next parts, of large ones the beginning. What the kernel answers does not matter."""
    for number in range(FILES):
        size = {0: 0, 1: 128 * 1024 + 1, 2: 3 << 20}.get(number, 1000)
        (tmp_path / f"{number:03}").write_bytes(bytes([number]) * size)
    both = str(FILES - 3 + 2 + 8)  # the kernel takes 128 KiB at a time, and 1 MiB is the most
    assert faults.run(CODE, tmp_path).split() == ["80", both, both]
