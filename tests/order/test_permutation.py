"""`_permutation`: bijections, as the twin says, for ever."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from order_twin import GAMMA, Network, derive

from ffrecord.errors import SampleIndexError
from ffrecord.kernels import _permutation

KEYS = st.integers(0, (1 << 64) - 1)
# Around the sizes at which the number of rounds or the rectangle changes, and far beyond 32 bits.
EDGES = (1, 2, 3, 4, 5, 15, 16, 17, 255, 256, 257, 65535, 65536, 65537, (1 << 32) - 1, (1 << 32) + 1, 1 << 62)
LENGTHS = st.one_of(st.sampled_from(EDGES), st.integers(1, 1 << 62), st.integers(1, 3000))


def permuted(positions: object, n: int, key: int) -> list[int]:
    array = np.array(positions, np.int64)
    _permutation.permute(array, n, key)
    return array.tolist()


def unpermuted(indices: object, n: int, key: int) -> list[int]:
    array = np.array(indices, np.int64)
    _permutation.unpermute(array, n, key)
    return array.tolist()


@given(st.data(), LENGTHS, KEYS)
def test_as_the_twin(data, n, key):
    positions = data.draw(st.lists(st.one_of(st.integers(0, n - 1), st.sampled_from([0, n - 1])), max_size=20))
    twin = Network(n, key)
    found = permuted(positions, n, key)
    assert found == [twin(position) for position in positions]
    assert unpermuted(found, n, key) == positions


@pytest.mark.parametrize("n", [*range(1, 40), 255, 256, 257, 1000, 65535, 65536, 65537])
def test_bijection(n):
    for key in (0, 1, (1 << 64) - 1):
        found = permuted(range(n), n, key)
        assert sorted(found) == list(range(n))
        assert unpermuted(found, n, key) == list(range(n))


@pytest.mark.parametrize("n", [(1 << 32) + 12_345, 10**12, (1 << 62) - 1])
def test_runs_of_large_permutations_come_back(n):
    positions = np.arange(n - 50_000, n)
    found = np.array(permuted(positions, n, 7))
    assert (len(np.unique(found)), found.min() >= 0, found.max() < n) == (50_000, True, True)
    assert unpermuted(found, n, 7) == positions.tolist()


def test_seek_equals_walk():
    whole = permuted(range(5000), 5000, 3)
    assert [permuted([position], 5000, 3)[0] for position in range(5000)] == whole


@pytest.mark.parametrize("n", [0, 1, 10])
def test_nothing_to_permute(n):
    assert permuted([], n, 5) == unpermuted([], n, 5) == []


@pytest.mark.parametrize("change", [_permutation.permute, _permutation.unpermute])
@pytest.mark.parametrize("n, wrong", [(0, 0), (1, 1), (10, 10), (10, -1), (10, -(1 << 63)), (10, (1 << 63) - 1)])
def test_out_of_range(change, n, wrong):
    array = np.array([wrong, 0], np.int64)
    with pytest.raises(SampleIndexError, match=f"position is {wrong}, expected 0 <= position < {n}"):
        change(array, n, 0)
    assert array.tolist() == [wrong, 0]


def test_check():
    for n, positions in ((0, []), (1, [0]), (1 << 62, [(1 << 62) - 1, 0])):
        _permutation.check(np.array(positions, np.int64), n)
    for n, wrong in ((0, 0), (5, 5), (5, -1)):
        with pytest.raises(SampleIndexError, match=f"position is {wrong}, expected 0 <= position < {n}"):
            _permutation.check(np.array([wrong]), n)


@pytest.mark.parametrize("wrong", [None, [1], np.zeros(3, np.int32), np.zeros((2, 2), np.int64), np.arange(8)[::2]])
def test_no_such_array(wrong):
    with pytest.raises((TypeError, ValueError)):
        _permutation.permute(wrong, 100, 0)


@pytest.mark.parametrize("n, key", [(-1, 0), (10, -1), (10, 1 << 64)])
def test_no_such_number(n, key):
    with pytest.raises(OverflowError):
        _permutation.permute(np.zeros(1, np.int64), n, key)


def test_keys_are_splitmix64():
    """The first three numbers that its authors' code gives from 0."""
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [_permutation.derive(GAMMA * i % (1 << 64)) for i in range(3)] == expected


@given(st.lists(KEYS, max_size=6))
def test_keys_as_the_twin(words):
    assert _permutation.derive(*words) == derive(*words)


@pytest.mark.parametrize("wrong", [-1, 1 << 64])
def test_keys_of_64_bits_only(wrong):
    with pytest.raises(OverflowError):
        _permutation.derive(1, wrong)
