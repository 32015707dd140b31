"""The index record: its bytes, its bounds, and the order of a walk."""

import pickle
from collections import OrderedDict

import pytest

from ffrecord.errors import FormatError
from ffrecord.format import folder_index
from ffrecord.format.folder_index import DEPTH_MAX, MAGIC_BYTES, decode_index, encode_index, walk

TREE = OrderedDict([("a", 0), ("d", OrderedDict([("b", 1), ("e", OrderedDict([("f", OrderedDict())]))])), ("z", 2)])


def chain(levels: int) -> OrderedDict:
    """`levels` directories in each other."""
    tree = OrderedDict()
    for _ in range(levels - 1):
        tree = OrderedDict(d=tree)
    return tree


def pickled_chain(levels: int) -> bytes:
    """The pickle of `chain`, for more levels than pickle can write."""
    new, inner = b"ccollections\nOrderedDict\n\x94)R", b"\x8c\x01dh\x00)R"
    return new + inner * (levels - 1) + b"s" * (levels - 1) + b"."


def test_magic():
    assert bytes.fromhex("70696f75686a676272") == MAGIC_BYTES


def test_bytes():
    assert encode_index(OrderedDict(a=0), "folder") == bytes.fromhex(
        "70696f75686a676272"  # magic
        "8004 95 2900000000000000"  # protocol 4, a frame of 41 bytes
        "8c0b 636f6c6c656374696f6e73 94 8c0b 4f72646572656444696374 94 93 94"  # collections OrderedDict
        "29 52 94"  # called without arguments
        "8c01 61 94 4b00 73 2e"  # a: 0
    )


def test_round_trip():
    assert decode_index(encode_index(TREE, "folder"), 3) == TREE
    assert encode_index(TREE, "folder") == MAGIC_BYTES + pickle.dumps(TREE, 4)


@pytest.mark.parametrize("record", [b"", b"p", MAGIC_BYTES[:-1], b"x" + MAGIC_BYTES, pickle.dumps(TREE, 4)])
def test_no_magic(record):
    with pytest.raises(FormatError, match="its last sample starts with"):
        decode_index(record, 3)


def test_magic_without_body():
    with pytest.raises(FormatError, match="cut short"):
        decode_index(MAGIC_BYTES, 0)


def test_depth_of_what_is_read():
    assert decode_index(MAGIC_BYTES + pickled_chain(DEPTH_MAX), 0) is not None
    with pytest.raises(FormatError, match="more than 2048 levels"):
        decode_index(MAGIC_BYTES + pickled_chain(DEPTH_MAX + 1), 0)


def test_depth_of_what_is_written():
    with pytest.raises(ValueError, match=r"some/folder: its directories are nested too deeply"):
        encode_index(chain(100_000), "some/folder")


def test_size_of_what_is_written(monkeypatch):
    size = len(encode_index(TREE, "folder"))
    monkeypatch.setattr(folder_index, "INDEX_MAX", size)
    assert len(encode_index(TREE, "folder")) == size
    monkeypatch.setattr(folder_index, "INDEX_MAX", size - 1)
    with pytest.raises(ValueError, match=rf"some/folder: its index has {size} bytes, expected at most {size - 1}"):
        encode_index(TREE, "some/folder")


def test_walk():
    assert [(path, child if isinstance(child, int) else "dir") for path, child in walk(TREE)] == [
        ("a", 0),
        ("d", "dir"),
        ("d/b", 1),
        ("d/e", "dir"),
        ("d/e/f", "dir"),
        ("z", 2),
    ]
    assert list(walk(OrderedDict())) == []


def test_walk_deep():
    assert max(len(path) for path, _ in walk(chain(DEPTH_MAX))) == 2 * (DEPTH_MAX - 1) - 1
