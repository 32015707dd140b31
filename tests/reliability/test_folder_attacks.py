"""T9 (guarantee G5): nothing in hostile packed folders runs, and none costs much time or memory."""

import contextlib
import copyreg
import pickle
import re
import resource
import shlex
import struct
import time
from collections import OrderedDict
from pathlib import Path

import children
import pytest
from figures import Counted

from ffrecord import FileWriter, FormatError
from ffrecord.folders.folder import MAGIC_BYTES, PackedFolder, pack_folder
from ffrecord.format.folder_index import INDEX_MAX

NEW = b"ccollections\nOrderedDict\n)R"
A = b"\x8c\x01a"
SECONDS = 10


@pytest.fixture(autouse=True)
def attack(counted: Counted) -> None:
    """Each test is one."""
    counted.add("packed-folder attacks")


def write(path: Path, pickled: bytes, files: int = 0) -> Path:
    """A file whose last sample is `pickled` behind the magic number."""
    with FileWriter(path, files + 1) as writer:
        for _ in range(files):
            writer.write_one(b"")
        writer.write_one(MAGIC_BYTES + pickled)
    return path


@contextlib.contextmanager
def little_memory(size: int):
    """At most `size` bytes more than now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def refuse(path: Path, says: str = "", memory: int = 64 << 20) -> None:
    """Opening is refused, with checks and without, soon and in little memory."""
    for check_data in (True, False):
        start = time.monotonic()
        with (
            little_memory(memory),
            pytest.raises(FormatError, match=re.escape(f"{path} is not a packed folder: ")) as error,
        ):
            PackedFolder(path, check_data)
        assert says in str(error.value)
        assert time.monotonic() - start < SECONDS * children.PATIENCE


# Code. Each payload is first seen to work with pickle.


def text(string: str) -> bytes:
    return b"X" + struct.pack("<I", len(string)) + string.encode()


def call(module: str, name: str, argument: str) -> dict[str, bytes]:
    """A call, in all the ways pickles have."""
    function = f"c{module}\n{name}\n".encode()
    lines = f"{module}\n{name}\n".encode()
    return {
        "protocol 0": function + b"(V" + argument.encode() + b"\ntR.",
        "REDUCE": b"\x80\x02" + function + text(argument) + b"\x85R.",
        "STACK_GLOBAL": b"\x80\x04" + text(module) + text(name) + b"\x93" + text(argument) + b"\x85R.",
        "INST": b"(" + text(argument) + b"i" + lines + b".",
        "OBJ": b"(" + function + text(argument) + b"o.",
        "in a tree": NEW + A + function + text(argument) + b"\x85Rs.",
        "as a name": NEW + function + text(argument) + b"\x85RK\0s.",
        "before a tree": function + text(argument) + b"\x85R0" + NEW + b".",
        "memo": b"\x80\x04" + text(module) + b"\x94" + text(name) + b"\x94h\0h\1\x93" + text(argument) + b"\x85R.",
        "as an OrderedDict": b"\x80\x04"
        + text("collections")
        + text("OrderedDict")
        + b"00"
        + function
        + text(argument)
        + b"\x85R.",
    }


WAYS = list(call("", "", ""))
FUNCTIONS = {
    "os.system": "touch {}",
    "posix.system": "touch {}",
    "builtins.eval": "open({!r}, 'w').close()",
    "builtins.exec": "open({!r}, 'w')",
}


@pytest.fixture
def sentinel(tmp_path):
    """A file that payloads make."""
    return tmp_path / "ran"


def runs(pickled: bytes, sentinel: Path) -> bool:
    """Whether pickle runs it."""
    with contextlib.suppress(Exception):
        pickle.loads(pickled)
    ran = sentinel.exists()
    sentinel.unlink(missing_ok=True)
    return ran


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_call(tmp_path, sentinel, function, way):
    module, name = function.rsplit(".", 1)
    target = shlex.quote(str(sentinel)) if name == "system" else str(sentinel)
    pickled = call(module, name, FUNCTIONS[function].format(target))[way]
    assert runs(pickled, sentinel)
    for files in (0, 1):
        refuse(write(tmp_path / f"{files}.ffr", pickled, files))
    assert not sentinel.exists()


class Spy(OrderedDict):
    """Notes that it was made, or asked."""

    asked = 0

    def __init__(self, *args):
        type(self).asked += 1
        super().__init__(*args)

    def __setitem__(self, name, value):
        type(self).asked += 1
        super().__setitem__(name, value)


@pytest.fixture
def code():
    """The code of a copyreg extension that this process has already used."""
    Spy.asked = 0
    copyreg.add_extension(Spy.__module__, "Spy", 0x7A)
    assert type(pickle.loads(b"\x80\x02\x82\x7a)R.")) is Spy
    Spy.asked = 0
    yield 0x7A
    copyreg.remove_extension(Spy.__module__, "Spy", 0x7A)


@pytest.mark.parametrize("opcode", [b"\x82\x7a", b"\x83\x7a\0", b"\x84\x7a\0\0\0"])
def test_copyreg_extension(tmp_path, code, opcode):
    assert type(pickle.loads(b"\x80\x02" + opcode + b")R.")) is Spy
    Spy.asked = 0
    refuse(write(tmp_path / "x.ffr", b"\x80\x02" + opcode + b")R."))
    refuse(write(tmp_path / "y.ffr", NEW + A + opcode + b")Rs."))
    assert Spy.asked == 0


@pytest.mark.parametrize("opcode", [b"Pid\n", b"X\x02\0\0\0idQ"])
def test_persistent_id(tmp_path, opcode):
    refuse(write(tmp_path / "x.ffr", opcode + b"."))
    refuse(write(tmp_path / "y.ffr", NEW + A + opcode + b"s."))


def test_build_that_shadows_items(tmp_path):
    pickled = NEW + b"}" + text("items") + b"K\0sb."
    assert pickle.loads(pickled).items == 0
    refuse(write(tmp_path / "x.ffr", pickled), "it is not an opcode of a tree of names")


@pytest.mark.parametrize(
    "pickled",
    [
        b"ccollections\nOrderedDict\n)\x81.",  # NEWOBJ
        b"ccollections\nOrderedDict\n)}\x92.",  # NEWOBJ_EX
        b"ccollections\nOrderedDict\n]\x85R.",  # arguments
        b"ccollections\nChainMap\n)R.",
        b"ccollections\nOrderedDict.fromkeys\n)R.",
        b"\x80\x04" + text("collections") + text("OrderedDict.__init__") + b"\x93)R.",
        b"ctests\nOrderedDict\n)R.",
        b"c\ncollections\n)R.",
        b"ccollections\nOrderedDict",
    ],
)
def test_other_ways_to_objects(tmp_path, pickled):
    refuse(write(tmp_path / "x.ffr", pickled))


# Shapes


@pytest.mark.parametrize("check_data", [True, False])
def test_trailing_bytes(tmp_path, check_data):
    path = write(tmp_path / "x.ffr", NEW + b".")
    with PackedFolder(path, check_data) as packed:
        assert len(packed) == 0
    refuse(write(tmp_path / "y.ffr", NEW + b".\0"), "1 byte after the tree")


def test_bytes_appended_to_the_file(tmp_path):
    path = write(tmp_path / "x.ffr", NEW + b".")
    path.write_bytes(path.read_bytes() + b"more")
    with pytest.raises(FormatError, match="4 bytes after the tree"):
        PackedFolder(path, check_data=False)


def test_body_cut(tmp_path):
    body = NEW + A + b"K\0s."
    for size in range(len(body)):
        refuse(write(tmp_path / "x.ffr", body[:size], 1))


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({"a": 2, "b": 0}, "sample is 2, expected 0 <= index < 2"),
        ({"a": 3, "b": 0}, "sample is 3, expected 0 <= index < 2"),
        ({"a": -1, "b": 0}, "sample is -1, expected 0 <= index < 2"),
        ({"a": 2**62, "b": 0}, f"sample is {2**62}, expected"),
        ({"a": 2**4000, "b": 0}, "the int has 501 bytes"),
        ({"a": True, "b": 0}, "opcode 0x88"),
        ({"a": 1.0, "b": 0}, "opcode 0x47"),
        ({"a": "1", "b": 0}, "a tree of names does not have this opcode here"),
        ({"a": None, "b": 0}, "opcode 0x4e"),
        ({"a": 0, "b": 0}, "sample 0 has two names"),
        ({"a": 0, "d": OrderedDict(b=0)}, "sample 0 has two names"),
        ({"a": 0}, "the tree has 1 file, expected 2"),
        ({}, "the tree has 0 files, expected 2"),
    ],
)
def test_indices(tmp_path, tree, says):
    refuse(write(tmp_path / "x.ffr", pickle.dumps(OrderedDict(tree), 4), 2), says)


def test_aliased_and_cyclic_directories(tmp_path):
    shared = OrderedDict()
    refuse(write(tmp_path / "x.ffr", pickle.dumps(OrderedDict(a=shared, b=shared), 4)), "in two places")
    cyclic = OrderedDict()
    cyclic["a"] = OrderedDict(b=cyclic)
    refuse(write(tmp_path / "y.ffr", pickle.dumps(cyclic, 4)), "in two places")


@pytest.mark.parametrize("name", ["", ".", "..", "/abs", "a/b", "../../etc/passwd", "\0", "a\0"])
def test_names_that_are_refused(tmp_path, name):
    refuse(write(tmp_path / "x.ffr", pickle.dumps(OrderedDict([(name, 0)]), 4), 1), "is not the name of a file")
    refuse(
        write(tmp_path / "y.ffr", pickle.dumps(OrderedDict([(name, OrderedDict())]), 4)), "is not the name of a file"
    )


def test_a_name_twice(tmp_path):
    refuse(write(tmp_path / "x.ffr", NEW + A + b"K\0s" + A + b"K\1s.", 2))


def test_names_that_are_only_stored(tmp_path):
    names = ["\\", "C:\\x", "\udcff\ud800", "n" * 300, "\u00e9", "e\u0301", " ", "...", "~", "-rf", "\n", "\u202e"]
    tree = OrderedDict((name, i) for i, name in enumerate(names))
    with PackedFolder(write(tmp_path / "x.ffr", pickle.dumps(tree, 4), len(names))) as packed:
        assert packed.list() == list(packed) == names
        assert all(packed.is_file(name) for name in names)
        assert len(packed.read(names)) == len(names)


# Sizes


def nested(levels: int) -> bytes:
    """The pickle of `levels` directories in each other."""
    return NEW.replace(b")R", b"\x94)R") + (A + b"h\0)R") * (levels - 1) + b"s" * (levels - 1) + b"."


def test_200_000_levels(tmp_path):
    assert isinstance(pickle.loads(nested(200_000)), OrderedDict)
    refuse(write(tmp_path / "x.ffr", nested(200_000)), "more than 2048 levels", memory=1 << 30)


def test_deepest(tmp_path):
    with PackedFolder(write(tmp_path / "x.ffr", nested(2048))) as packed:
        assert len(packed.list(recursive=True)) == 2047
        assert packed.is_dir("/".join("a" * 2047))
        assert not packed.exists("/".join("a" * 2048))
        assert list(packed) == []


def sparse(path: Path, size: int) -> Path:
    """One sample of `size` zeros, which takes no disk."""
    path.write_bytes(struct.pack("<IqIq", 1, 1, 0, 24))
    with open(path, "r+b") as file:
        file.truncate(24 + size)
    return path


@pytest.mark.parametrize("size", [INDEX_MAX + 1, 1 << 35])
def test_index_over_the_cap(tmp_path, size):
    path = sparse(tmp_path / "x.ffr", size)
    start = time.monotonic()
    with (
        little_memory(64 << 20),
        pytest.raises(FormatError, match=f"last sample has {size} bytes, expected at most {INDEX_MAX}"),
    ):
        PackedFolder(path, check_data=False)
    assert time.monotonic() - start < SECONDS


@pytest.mark.parametrize(
    "unit", [b"(", b")", b"\x94", b"K\0", A, A + b"\x94", b"h\0", b"t", b"R", b"s", b"u", b"\x80\x04", b"2", b"0"]
)
@pytest.mark.parametrize("before", [b"", NEW, NEW + b"(", b"ccollections\nOrderedDict\n\x94"])
def test_a_million_of_one_opcode(tmp_path, before, unit):
    refuse(write(tmp_path / "x.ffr", before + unit * 1_000_000), memory=256 << 20)


@pytest.mark.parametrize(
    "pickled",
    [
        b"X" + struct.pack("<I", 2**32 - 1),
        b"\x8d" + struct.pack("<Q", 2**64 - 1),
        b"\x95" + struct.pack("<Q", 2**64 - 1),
        NEW + b"r" + struct.pack("<I", 2**32 - 1) + b"\x94.",
        NEW + A + b"\x8b" + struct.pack("<I", 2**31 - 1) + b"s.",
        NEW + A + b"I" + b"9" * 1_000_000 + b"\ns.",
        NEW + A + b"L" + b"9" * 1_000_000 + b"L\ns.",
        NEW + b"p" + b"9" * 1_000_000 + b"\n.",
        NEW + b"g" + b"9" * 1_000_000 + b"\n.",
    ],
)
def test_lengths_that_lie(tmp_path, pickled):
    refuse(write(tmp_path / "x.ffr", pickled))


def test_a_put_far_away_takes_no_memory(tmp_path):
    pickled = NEW + b"r" + struct.pack("<I", 2**32 - 1) + b"."
    with little_memory(64 << 20), PackedFolder(write(tmp_path / "x.ffr", pickled)) as packed:
        assert len(packed) == 0


# Hostile folders to pack; what else packing refuses is in test_folder_pack.py.


def test_folder_of_traps(tmp_path):
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "file").write_bytes(b"1")
    for name, target in {"again": ".", "self": "self", "null": "/dev/null", "zero": "/dev/zero"}.items():
        (trap / name).symlink_to(target)
        start = time.monotonic()
        with pytest.raises(OSError, match=name) as caught:
            pack_folder(trap, tmp_path / "out.ffr")
        assert caught.value.filename == str(trap / name)
        assert time.monotonic() - start < SECONDS
        (trap / name).unlink()
    assert [path.name for path in tmp_path.iterdir()] == ["trap"]
