"""Any buffer as bytes, without a copy where they lie in order. All kinds are written in test_writer_buffers.py."""

import numpy as np
import pytest

from ffrecord.system.values import as_bytes

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
