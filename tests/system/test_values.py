"""Any buffer as bytes, without a copy where they lie in order. All kinds are written in test_writer_buffers.py."""

import re

import numpy as np
import pytest

from ffrecord import FileWriter
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.system.values import as_bytes, check_flag, check_offsets, describe, path_text

GRID = np.arange(12, dtype=np.uint16).reshape(3, 4)


@pytest.mark.parametrize(
    "given", [b"abc", bytearray(b"abc"), memoryview(b"abcdef").cast("H"), GRID, GRID[1], np.array(7)]
)
def test_no_copy(given):
    view = as_bytes(given)
    assert np.shares_memory(np.frombuffer(view, np.uint8), np.frombuffer(given, np.uint8))
    assert view == memoryview(given).tobytes()


@pytest.mark.parametrize("given", [GRID.T, GRID[:, ::2], memoryview(b"abcdef")[::-1], np.broadcast_to(np.int8(3), 5)])
def test_copied_where_bytes_lie_otherwise(given):
    assert as_bytes(given) == memoryview(given).tobytes()


@pytest.mark.parametrize("given", [b"abc", GRID, GRID.T, np.array(1.5), b"", np.empty((0, 3)), memoryview(b"")])
def test_one_dimension_of_bytes(given):
    view = as_bytes(given)
    assert (view.ndim, view.itemsize, view.c_contiguous) == (1, 1, True)
    assert len(view) == memoryview(given).nbytes


@pytest.mark.parametrize("wrong", ["text", 3, None, [1], np.array([None])])
def test_no_buffer(wrong):
    with pytest.raises(TypeError, match=r"buffer|objects"):
        as_bytes(wrong)


@pytest.mark.parametrize(
    "value, words",
    [
        (np.True_, r"numpy bool_? True"),
        (np.int8(3), "numpy int8 3"),
        (np.float32(1.5), "numpy float32 1.5"),
        (np.longdouble(2), r"numpy \w+ 2\.0"),
        (np.str_("zz"), "numpy str_ 'zz'"),
        (np.bytes_(b"zz"), "numpy bytes_ b'zz'"),
        (np.timedelta64(5, "s"), "numpy timedelta64 5 seconds"),
        (np.datetime64("2020-01-01T00:00:00.5", "ns"), r"numpy datetime64 2020-01-01T00:00:00\.5\d*"),
    ],
)
def test_scalars_of_numpy_say_their_type_once(value, words):
    assert re.fullmatch(words, describe(value))


@pytest.mark.parametrize("wrong", [[[0], [1, 2]], [0.5], "ab", None, 3, [[0, 1]], []])
def test_offsets_that_are_none(tmp_path, wrong):
    with pytest.raises(ArgumentTypeError, match=r"^offsets is .*, expected ints \[k \+ 1\]$"):
        check_offsets(wrong)
    with pytest.raises(TypeError, match=r"^offsets is "), FileWriter(tmp_path / "x.ffr") as writer:
        writer.write_packed(b"abc", wrong)


def test_a_path_as_text(tmp_path):
    assert path_text("fname", tmp_path) == path_text("fname", str(tmp_path)) == str(tmp_path)
    for wrong, words in ((3, "fname is int 3, expected str"), (b"x", "fname is a bytes of 1, expected str")):
        with pytest.raises(ArgumentTypeError, match=words):
            path_text("fname", wrong)
    with pytest.raises(ArgumentError, match="without null characters"):
        path_text("fname", "a\0b")


def test_a_flag_is_a_bool():
    assert check_flag("resume", np.True_) is True and check_flag("resume", False) is False
    with pytest.raises(ArgumentTypeError, match="resume is str 'no', expected True or False"):
        check_flag("resume", "no")
