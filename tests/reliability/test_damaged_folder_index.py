"""T9 (guarantee G5): the index of a packed folder, each byte wrong behind a right checksum, under audit hooks."""

import children
import pytest
from builders import GOLDEN

AUDITED = """
import sys
from pathlib import Path
import ffr_twin
from ffrecord import FormatError
from ffrecord.folders.folder import PackedFolder

# What no reading of a file has to do.
FORBIDDEN = {"import", "exec", "compile", "marshal.loads", "pickle.find_class", "os.system", "os.exec", "os.fork",
             "os.posix_spawn", "subprocess.Popen", "ctypes.dlopen", "code.__new__", "socket.connect", "os.remove"}
path, (*files, index) = Path(sys.argv[2]), ffr_twin.parse(Path(sys.argv[1]).read_bytes())
happened, watching, outcomes = [], False, {True: 0, False: 0}

def hook(event, arguments):
    if watching and event in FORBIDDEN:
        happened.append((event, arguments))

def read(index):
    path.write_bytes(ffr_twin.build([*files, index]))
    try:
        with PackedFolder(path) as packed:
            assert packed.num_files() == len(files) == len(packed.read(list(packed)))
            return True
    except FormatError:
        return False

def changed():
    for i in range(len(index)):
        values = range(256) if sys.argv[3] == "every value" else [index[i] ^ 1 << bit for bit in range(8)]
        yield from (index[:i] + bytes([value]) + index[i + 1:] for value in values)

assert read(index) and not read(b"")
sys.addaudithook(hook)
watching = True
for each in (index[:size] for size in range(len(index))):
    assert not read(each), each
for each in changed():
    outcomes[read(each)] += 1
assert not happened, happened
print(*outcomes.values())
"""


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("values", ["every bit", pytest.param("every value", marks=pytest.mark.long)])
def test_every_change_of_an_index(in_memory, values, counted):
    """Other names or refused; and the interpreter's own audit hooks see that nothing is imported, called or started."""
    done = children.run(AUDITED, GOLDEN / "packed_folder.ffr", in_memory / "a.ffr", values, timeout=1200)
    read, refused = map(int, done.split())
    assert read > 0 and refused > read
    counted.add("packed-folder attacks", read + refused)
