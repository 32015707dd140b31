"""Indices: every kind of collection and integer, and a rule that is checked before anything is read."""

import array
import operator
from collections import deque

import builders
import numpy as np
import pytest
from builders import IO_MODES

from ffrecord import FileReader

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
WANTED = [5, 1, 5, 0]


class Index:
    """Integer-like, as `operator.index` has it."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class ArrayLike:
    """As tensors are: no ndarray, but convertible."""

    def __array__(self, dtype=None, copy=None):
        return np.array(WANTED, np.int64)

    def __iter__(self):
        return iter(WANTED)


@pytest.fixture
def small_reader(small_file):
    with FileReader(small_file.path) as reader:
        yield reader


COLLECTIONS = {
    "list": lambda: WANTED,
    "tuple": lambda: tuple(WANTED),
    "generator": lambda: (i for i in WANTED),
    "iterator": lambda: iter(WANTED),
    "deque": lambda: deque(WANTED),
    "array": lambda: array.array("i", WANTED),
    "dict keys": lambda: dict.fromkeys([5, 1, 0]).keys(),
    "objects with __index__": lambda: [Index(i) for i in WANTED],
    "mixed": lambda: [5, np.int8(1), Index(5), False],
    "numpy integers": lambda: [np.uint16(5), np.int64(1), np.uint64(5), np.int32(0)],
    "array-like": lambda: ArrayLike(),
    "strided": lambda: np.repeat(WANTED, 2)[::2],
    "reversed": lambda: np.array(WANTED[::-1])[::-1],
    "big-endian": lambda: np.array(WANTED, ">i8"),
    "read-only": lambda: np.broadcast_to(np.array(5), (4,)),
    "range": lambda: range(5, -1, -2),
    "set": lambda: {5, 1, 0},
    "frozenset": lambda: frozenset([5, 1, 0]),
    "booleans": lambda: [True, False, True],
}


@pytest.mark.parametrize("kind", COLLECTIONS)
@pytest.mark.parametrize("method", ["read", "read_packed"])
def test_collections(small_reader, small_file, kind, method):
    got = getattr(small_reader, method)(COLLECTIONS[kind]())
    got = builders.unpack(got) if method == "read_packed" else [sample.tobytes() for sample in got]
    assert got == [small_file.samples[operator.index(i)] for i in COLLECTIONS[kind]()]


@pytest.mark.parametrize("dtype", [f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)])
def test_every_integer_dtype(small_reader, small_file, dtype):
    got = small_reader.read(np.array(WANTED, dtype))
    assert [sample.tobytes() for sample in got] == [small_file.samples[i] for i in WANTED]
    assert small_reader.read_one(np.dtype(dtype).type(5)).tobytes() == small_file.samples[5]


@pytest.mark.parametrize("empty", [[], (), range(0), set(), np.array([]), np.array([], np.int64), iter([])])
def test_nothing(small_reader, empty):
    assert small_reader.read(empty) == []


def test_nothing_packed(small_reader):
    data, offsets = small_reader.read_packed([])
    assert (data.shape, data.dtype, offsets.tolist(), offsets.dtype) == ((0,), np.uint8, [0], np.int64)


WRONG_COLLECTIONS = [
    3, 3.0, None, "3", b"3", bytearray(b"3"), slice(0, 3), [1.0], [1, 2.0], ["1"], [None], [[1], [2]], [1, [2]],
    [[1], [2, 3]], np.array([1.0]), np.array(3), np.array([[1, 2]]), np.array([[1], [2]]), np.array(["1"]),
    np.array([True]), [False] * 98 + [True] * 2, np.array([1], object), [np.array([1, 2])], np.array([1], "m8[s]"),
    [1, np.float32(2)],
    [1j], (i / 1 for i in range(2)),
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG_COLLECTIONS)
@pytest.mark.parametrize("method", ["read", "read_packed"])
def test_wrong_types(small_reader, wrong, method):
    with pytest.raises(TypeError):
        getattr(small_reader, method)(wrong)


@pytest.mark.parametrize(
    "wrong", [1.0, "1", None, [1], (1,), slice(1), np.float64(1), np.array([1]), b"1", 1j], ids=repr
)
def test_wrong_type_of_one_index(small_reader, wrong):
    with pytest.raises(TypeError):
        small_reader.read_one(wrong)


def test_negative_indices_count_from_the_end(small_reader, small_file):
    for i in range(-8, 8):
        assert small_reader.read_one(i).tobytes() == small_file.samples[i]
    got = small_reader.read([-1, 0, -8, 7])
    assert [sample.tobytes() for sample in got] == [small_file.samples[i] for i in (-1, 0, -8, 7)]


OUTSIDE = [8, 9, 1000, 2**31, 2**32, 2**62, 2**63 - 1, 2**63, 2**64, 10**30]
BELOW = [-9, -1000, -(2**31) - 1, -(2**62), -(2**63), -(2**63) - 1, -(10**30)]


@pytest.mark.parametrize("wrong", [1.5, None, np.float64(2)])
def test_what_an_index_may_be_is_said(small_reader, wrong):
    with pytest.raises(TypeError, match=r"^index is .*, expected an int, a slice or a collection of ints$"):
        small_reader[wrong]
    with pytest.raises(TypeError, match=r"^index is .*, expected an int or a slice$"):
        small_reader[2:][wrong]


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("index", OUTSIDE + BELOW)
def test_outside(small_file, io, index):
    with FileReader(small_file.path, io=io, check_data=False) as reader:
        for call in (
            reader.read_one,
            lambda i: reader.read([0, i, 1]),
            lambda i: reader.read_packed([i]),
            reader.__getitem__,
        ):
            with pytest.raises(IndexError) as caught:
                call(index)
            assert isinstance(caught.value, RuntimeError)
            assert str(index) in str(caught.value)
            if index >= 8:
                assert f"index >= number of samples ({index}" in str(caught.value)


def test_outside_names_the_file_and_both_numbers(small_reader, small_file):
    with pytest.raises(IndexError, match=r"index >= number of samples \(8 >= 8\)") as caught:
        small_reader.read([7, 8, 900])
    assert small_file.path in str(caught.value)
    with pytest.raises(IndexError, match=r"-9, expected -8 <= index < 8"):
        small_reader.read([-9])


@pytest.mark.parametrize("io", IO_MODES)
def test_all_indices_are_checked_before_anything_is_read(tmp_path, io):
    """A damaged sample before a wrong index: the index is what is said."""
    path = builders.write(tmp_path / "a.ffr", builders.flip(-1)(builders.ffr_twin.build(builders.small())))
    with FileReader(path, io=io) as reader, pytest.raises(IndexError):
        reader.read([7, 8])


def test_a_reader_without_samples(tmp_path):
    with FileReader(builders.write_samples(tmp_path / "a.ffr", [])) as reader:
        assert (reader.n, reader.read([]), list(reader)) == (0, [], [])
        for index in (0, -1):
            with pytest.raises(IndexError, match=r"samples|expected"):
                reader.read([index])


def test_an_index_that_raises(small_reader):
    def broken():
        yield 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        small_reader.read(broken())
