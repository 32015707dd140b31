"""Names without an object for each: against lists of strings."""

import os
import pickle
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.kernels import _names
from ffrecord.sources.names import DECODED_AT_ONCE, Names

# Names that begin each other, repeat, are empty, or hold bytes that are no UTF-8.
words = st.text(st.sampled_from("ab/é\udcff\U0001f600"), max_size=5)


def as_bytes(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


@given(st.lists(words, max_size=40), st.lists(words, max_size=5))
def test_against_a_list(given_names, others):
    names = Names.of(given_names)
    # Surrogates beside each other may be one character; what counts is that the bytes are the same.
    expected = [os.fsdecode(as_bytes(name)) for name in given_names]
    assert list(names) == expected == [names[i] for i in range(len(names))] == names[:]
    assert names[1:-1:2] == expected[1:-1:2]
    assert names.order.tolist() == sorted(range(len(expected)), key=lambda i: as_bytes(expected[i]))
    for name in expected + others:
        same = [i for i, each in enumerate(expected) if as_bytes(each) == as_bytes(name)]
        assert names.find(name) == (same[-1] if same else -1)
        assert (name in names) == bool(same)
        assert names.find_each([name, "", name]).tolist() == [names.find(each) for each in (name, "", name)]
        assert names.place(name) == sum(as_bytes(each) < as_bytes(name) for each in expected)


@given(st.lists(st.text(st.sampled_from("aJpG.é\udcff"), max_size=6), max_size=8), st.integers(1, 9))
def test_endings(given_names, piece):
    names = Names.of(given_names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ffrecord.sources.names.LOOKED_AT_ONCE", piece)
        for suffixes in ((".jpg",), (".jpg", "g", ""), (), ("pg", "a")):
            assert names.end_in(suffixes) == all(name.lower().endswith(suffixes) for name in given_names)


@pytest.mark.parametrize("count", [0, 1, DECODED_AT_ONCE, DECODED_AT_ONCE + 1, 20_000])
def test_many(count):
    expected = [f"{(i * 7919) % 20_011}.jpg" for i in range(count)]
    names = Names.of(expected)
    assert len(names) == count and names == expected
    assert [expected[i] for i in names.order] == sorted(expected)
    assert all(names.find(expected[i]) == i for i in range(0, count, 97))
    assert names.find("20012.jpg") == -1


def test_sequence():
    names = Names.of(["a", "b", "a"])
    assert names[-1] == "a" and names.index("b") == 1 and names.count("a") == 2
    assert 1 not in names and "c" not in names and "\ud800" not in names
    assert names.find("\ud800") == -1
    assert names.find_each(["b", "\ud800", "a"]).tolist() == [1, -1, 2]
    assert names.find_each([]).tolist() == []
    with pytest.raises(ValueError, match="expected text that can be encoded"):
        names.place("\ud800")
    with pytest.raises(IndexError):
        names[3]
    assert names != ["a", "b"] and names != Names.of(["a"]) and names != "aba"
    assert repr(names) == "<Names of 3 records: 'a', 'b', 'a'>"
    assert repr(Names.of("abcd")) == "<Names of 4 records: 'a', 'b', 'c', …>"
    with pytest.raises(TypeError):
        hash(names)


def test_arrays_and_pickle():
    names = Names.of(["x/é", "", "\udcff"])
    assert Names.from_arrays(names.arrays()) == names == pickle.loads(pickle.dumps(names))
    frozen = {name: np.array(array) for name, array in names.arrays().items()}
    for array in frozen.values():
        array.flags.writeable = False
    assert Names.from_arrays(frozen).find("\udcff") == 2


@pytest.mark.parametrize("offsets", [[0, 2, 1, 3], [0, 4], [1, 3], [0, 2], [0, -1, 3], [0, 2**62, 3]])
def test_offsets_that_do_not_ascend(offsets):
    with pytest.raises(ValueError, match=r"do not ascend from 0 to 3"):
        Names(np.zeros(3, np.uint8), np.array(offsets, np.int64))


def test_no_offsets():
    with pytest.raises(ValueError, match="one more than there are names"):
        Names(np.zeros(0, np.uint8), np.zeros(0, np.int64))


def test_order_of_another_length():
    names = Names.of(["a", "b"])
    with pytest.raises(ValueError, match="order has 1 names, expected 2"):
        _names.NameOrder(names.blob, names.offsets, np.zeros(1, np.int64))


def test_offsets_that_do_not_ascend_any_more():
    """As of a file that was cut after it was opened."""
    names = Names.of(["same"] * 9)
    names.offsets[5:] = 0
    assert sorted(names.order.tolist()) == list(range(9))


def test_a_child_of_a_process_that_sorts_meanwhile():
    names = Names.of(["b", "a"])
    names._lock.acquire()  # as the thread has that sorts
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        os._exit(0 if names.find("b") == 0 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_picked():
    names = Names.of(["alpha", "", "be", "gamma"])
    assert names.pick(np.array([3, 0, 3, 1])) == ["gamma", "alpha", "gamma", ""]
    assert names.pick(np.array([0, 3]), np.array([2, 0])) == ["al", ""]
    assert names.pick(np.empty(0, np.int64)) == []
