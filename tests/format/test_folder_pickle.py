"""The reader of pickled trees agrees with pickle, and executes nothing."""

import pickle
import pickletools
import struct
import time
from collections import OrderedDict

import children
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.errors import FormatError
from ffrecord.format.folder_index import Tree, read_tree

PROTOCOLS = range(6)
NAMES = st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=6).filter(
    lambda name: name not in (".", "..")
)


def build(nested: dict, counter: list[int]) -> Tree:
    """A tree shaped like `nested`, its files (None) numbered as they come."""
    tree: Tree = OrderedDict()
    for name, child in nested.items():
        if child is None:
            tree[name] = counter[0]
            counter[0] += 1
        else:
            tree[name] = build(child, counter)
    return tree


def count(tree: Tree) -> int:
    return sum(1 if isinstance(child, int) else count(child) for child in tree.values())


TREES = st.recursive(
    st.dictionaries(NAMES, st.none(), max_size=4),
    lambda inner: st.dictionaries(NAMES, st.none() | inner, max_size=4),
    max_leaves=20,
).map(lambda nested: build(nested, [0]))


@settings(deadline=None)
@given(TREES, st.sampled_from(PROTOCOLS))
def test_same_as_pickle(tree, protocol):
    assert read_tree(pickle.dumps(tree, protocol), 0, count(tree)) == tree


@settings(deadline=None)
@given(TREES, st.sampled_from(PROTOCOLS))
def test_same_as_pickle_in_python(tree, protocol):
    assert read_tree(pickle._dumps(tree, protocol), 0, count(tree)) == tree


@settings(deadline=None)
@given(TREES, st.sampled_from(PROTOCOLS))
def test_without_needless_memo(tree, protocol):
    assert read_tree(pickletools.optimize(pickle.dumps(tree, protocol)), 0, count(tree)) == tree


@settings(deadline=None)
@given(TREES, st.sampled_from(PROTOCOLS), st.data())
def test_damaged_is_refused_or_means_the_same_to_pickle(tree, protocol, data):
    damaged = bytearray(pickle.dumps(tree, protocol))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    try:
        found = read_tree(bytes(damaged), 0, count(tree))
    except FormatError:
        return
    # What was accepted names nothing but OrderedDict, so that pickle may see it.
    assert pickle.loads(damaged) == found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_shared_names_and_many_frames(protocol):
    names = [f"{i:05d}" * 3 for i in range(1200)]
    tree = OrderedDict(
        (d, OrderedDict((name, k * 1200 + i) for i, name in enumerate(names))) for k, d in enumerate("ab")
    )
    tree["x" * 300] = 2400
    tree["𝄞\u20ac\\ \n"] = 2401
    tree["undecodable \udcff"] = 2402
    tree["empty"] = OrderedDict()
    data = pickle.dumps(tree, protocol)
    assert read_tree(data, 0, 2403) == pickle.loads(data) == tree


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_any_order_of_numbers(protocol):
    tree = OrderedDict((f"{i}", i) for i in [70000, *range(69999, -1, -1)])
    assert read_tree(pickle.dumps(tree, protocol), 0, 70001) == tree


def test_from_the_middle_of_bytes():
    assert read_tree(b"magic" + pickle.dumps(OrderedDict(a=0), 4), 5, 1) == {"a": 0}


NEW = b"ccollections\nOrderedDict\n)R"
A = b"\x8c\x01a"
B = b"\x8c\x01b"


def refuse(data: bytes, files: int = 1) -> str:
    with pytest.raises(FormatError) as caught:
        read_tree(data, 0, files)
    return str(caught.value)


def other_classes() -> list[bytes]:
    """The lines that name the class, each with another byte."""
    lines = b"collections\nOrderedDict\n"
    return [lines[:i] + b"_" + lines[i + 1 :] for i in range(len(lines))]


def test_smallest_trees():
    assert read_tree(NEW + b".", 0, 0) == {}
    assert read_tree(NEW + A + b"K\0s.", 0, 1) == {"a": 0}
    assert read_tree(NEW + b"(" + A + b"K\0u.", 0, 1) == {"a": 0}
    assert read_tree(NEW + b"(u.", 0, 0) == {}


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"K\x01", "sample is 1, expected 0 <= index < 1"),
        (b"\x94K\x01", "sample is 1, expected 0 <= index < 1"),
        (b"\x94J\xff\xff\xff\xff", "sample is -1, expected"),
        (b"J\xff\xff\xff\xff", "sample is -1, expected"),
        (b"I-1\n", "b'-1', expected a number >= 0"),
        (b"\x8a\x01\xff", "sample is -1, expected"),
        (b"\x8a\x08" + b"\xff" * 7 + b"\x7f", f"sample is {2**63 - 1}, expected"),
        (b"\x8a\x09" + b"\xff" * 9, "the int has 9 bytes, expected at most 8"),
        (b"\x8b" + struct.pack("<I", 2**31), "the int has 2147483648 bytes"),
        (b"I" + b"9" * 5000 + b"\n", "the line does not end within 24 bytes"),
        (b"I00\n", "b'00'"),
        (b"I01\n", "b'01'"),
        (b"I1_0\n", "b'1_0'"),
        (b"I\n", "b''"),
        (b"L0\n", "a tree of names does not have this opcode here"),
        (b"\x88", "opcode 0x88 at byte 30: it is not an opcode of a tree of names"),
        (b"\x89", "opcode 0x89"),
        (b"G" + struct.pack(">d", 0.0), "opcode 0x47"),
        (b"F0.0\n", "opcode 0x46"),
        (b"N", "opcode 0x4e"),
        (b"}", "opcode 0x7d"),
        (b"]", "opcode 0x5d"),
        (b"C\x010", "opcode 0x43"),
        (B, "a tree of names does not have this opcode here"),
    ],
)
def test_value_that_is_no_index(value, says):
    assert says.replace(" at byte 30", " at byte 30 of its last sample") in refuse(NEW + A + value + b"s.")


@pytest.mark.parametrize("name", ["", ".", "..", "/", "/abs", "a/b", "a/", "\0", "a\0b"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_name_that_is_none(name, protocol):
    assert "is not the name of a file" in refuse(pickle.dumps(OrderedDict([("ok", 0), (name, 1)]), protocol), 2)
    assert "is not the name of a file" in refuse(pickle.dumps(OrderedDict([(name, OrderedDict())]), protocol), 0)


@pytest.mark.parametrize("name", [b"a", 0, None, ("a",)])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_name_that_is_no_str(name, protocol):
    refuse(pickle.dumps(OrderedDict([(name, 0)]), protocol))


@pytest.mark.parametrize(
    "tree", [{}, {"a": 0}, [], None, "a", 0, (), OrderedDict(a={"b": 0}), OrderedDict(a="b"), OrderedDict]
)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_other_objects(tree, protocol):
    refuse(pickle.dumps(tree, protocol))


@pytest.mark.parametrize(
    ("data", "files", "says"),
    [
        (NEW + b"(" + A + b"K\0" + A + b"K\x01u.", 2, "a directory has a name twice"),
        (NEW + A + b"K\0s" + A + b"K\x01s.", 2, "a directory has a name twice"),
        (NEW + b"(" + A + b"K\0" + B + b"K\0u.", 2, "sample 0 has two names"),
        (NEW + A + b"K\0s.", 2, "the tree has 1 file, expected 2"),
        (NEW + b".", 1, "the tree has 0 files, expected 1"),
        (NEW + A + b"K\0s..", 1, "1 byte after the tree"),
        (NEW + NEW + b".", 0, "without one complete tree"),
        (b".", 0, "without one complete tree"),
        (A + b".", 0, "without one complete tree"),
        (b"ccollections\nOrderedDict\n.", 0, "without one complete tree"),
        *((b"c" + line + b")R.", 0, "the class is b'") for line in other_classes()),
        (NEW + b"(.", 0, "without one complete tree"),
        (NEW + b"(" + A + b"u.", 0, "a tree of names does not have this opcode here"),
        (NEW + b"u.", 0, "a tree of names does not have this opcode here"),
        (NEW + b"s.", 0, "a tree of names does not have this opcode here"),
        (NEW + A + b"s.", 0, "a tree of names does not have this opcode here"),
        (NEW + b"((", 0, "a tree of names does not have this opcode here"),
        (b")", 0, "a tree of names does not have this opcode here"),
        (b"R", 0, "a tree of names does not have this opcode here"),
        (b"t", 0, "a tree of names does not have this opcode here"),
        (b"K\0.", 1, "a tree of names does not have this opcode here"),
        (b"\x93.", 1, "a tree of names does not have this opcode here"),
        (A + b"\x93.", 1, "a tree of names does not have this opcode here"),
        (NEW + A + b"\x93.", 1, "a tree of names does not have this opcode here"),
        (A * 4 + b".", 1, "a tree of names does not have this opcode here"),
        (b"h\0.", 0, "object 0 was not stored before"),
        (b"\x94.", 0, "there is no object to remember"),
        (b"q\0.", 0, "there is no object to remember"),
        (NEW + b"\x94\x94.", 0, "there is no object to remember"),
        (NEW + b"p-1\n.", 0, "expected a number >= 0"),
        (b"\x80\x06" + NEW + b".", 0, "the pickle protocol is 6, expected at most 5"),
        (NEW + b"\x80\x04.", 0, "a tree of names does not have this opcode here"),
        (b"\x95" + struct.pack("<Q", 2**63) + NEW + b".", 0, f"the frame has {2**63} bytes"),
        (b"\x8d" + struct.pack("<Q", 2**63) + b"a", 0, f"{2**63} bytes are expected, 1 are left"),
        (b"X" + struct.pack("<I", 2**32 - 1) + b"a", 0, f"{2**32 - 1} bytes are expected, 1 are left"),
        (NEW + b"\x8c\x01\xffK\0s.", 1, "cannot be decoded"),
        (NEW + b"\x8c\x01\xff\x94K\0s.", 1, "cannot be decoded"),
        (NEW + b"V\\uzzzz\nK\0s.", 1, "cannot be decoded"),
        (NEW + b"Vname", 1, "the line does not end"),
    ],
)
def test_no_tree(data, files, says):
    assert says in refuse(data, files)


@pytest.mark.parametrize(
    "data",
    [
        NEW + b"\x94" + A + b"h\0s.",  # a directory in itself
        NEW + b"(" + A + NEW + b"\x94" + B + b"h\0u.",  # one in two places
        NEW + b"\x94" + A + NEW + b"\x94" + B + b"h\0ss.",  # two in each other
        NEW + b"q\x05" + A + b"h\x05s.",
        NEW + b"r\0\0\0\x01" + A + b"j\0\0\0\x01s.",
        NEW + b"p7\n" + A + b"g7\ns.",
    ],
)
def test_directory_in_two_places(data):
    assert "a directory is in two places" in refuse(data, 0)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_cut_anywhere(protocol):
    data = pickle.dumps(OrderedDict(a=0, d=OrderedDict(b=1, c=OrderedDict()), e=2), protocol)
    for size in range(len(data)):
        refuse(data[:size], 3)


ALLOWED = (
    "PROTO FRAME MARK STOP GLOBAL STACK_GLOBAL EMPTY_TUPLE TUPLE REDUCE SETITEM SETITEMS "
    "PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET MEMOIZE "
    "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 INT BININT BININT1 BININT2 LONG LONG1 LONG4"
)
FORBIDDEN = sorted({op.name for op in pickletools.opcodes} - set(ALLOWED.split()))


@pytest.mark.parametrize("name", FORBIDDEN)
def test_every_other_opcode_is_refused(name):
    opcode = next(op.code for op in pickletools.opcodes if op.name == name).encode("latin-1")
    for before in (b"", NEW, NEW + A, NEW + b"(", b"ccollections\nOrderedDict\n"):
        assert "it is not an opcode of a tree of names" in refuse(before + opcode + b"\0" * 16 + b".", 0)


def test_forbidden_opcodes_are_the_dangerous_ones():
    assert {"BUILD", "OBJ", "INST", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"} < set(
        FORBIDDEN
    )
    assert {"DUP", "POP", "NEXT_BUFFER", "READONLY_BUFFER", "BYTEARRAY8"} < set(FORBIDDEN)


def nested(levels: int) -> bytes:
    """`levels` directories in each other."""
    return NEW.replace(b")R", b"\x94)R") + (A + b"h\0)R") * (levels - 1) + b"s" * (levels - 1) + b"."


def test_depth_costs_no_recursion():
    start = time.monotonic()
    tree = read_tree(nested(200_000), 0, 0)
    assert time.monotonic() - start < 10 * children.PATIENCE
    levels = 1
    while tree:
        tree = tree["a"]
        levels += 1
    assert levels == 200_000


@pytest.mark.parametrize("junk", [b"(", b")", b"R", b"\x94", b"K\0", A, b"(u", b"h\0", A + b"\x94", A + b"K\0"])
def test_junk_is_refused_early(junk):
    start = time.monotonic()
    refuse(NEW + junk * 200_000, 0)
    refuse(NEW + b"\x94(" + junk * 200_000, 0)
    assert time.monotonic() - start < 10 * children.PATIENCE
