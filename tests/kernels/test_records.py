"""`_records`: records of a piece, with sizes and CRC-32, in memory that is used again."""

import os
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.fields import Schema
from ffrecord.kernels._records import Indexed, Records


@given(st.lists(st.binary(max_size=200), max_size=40), st.integers(1, 500))
def test_records_grow_and_are_used_again(samples: list[bytes], capacity: int) -> None:
    records = Records(capacity)
    for _ in range(2):
        for i, sample in enumerate(samples):
            records.append(sample if i % 2 else memoryview(bytearray(sample)), 7 - i)
        assert (records.count, records.size) == (len(samples), sum(map(len, samples)))
        assert records.capacity >= max(records.size, capacity)
        assert bytes(records.view(0, records.size)) == b"".join(samples)
        assert records.sizes().tolist() == [len(sample) for sample in samples]
        assert records.indices().tolist() == [7 - i for i in range(len(samples))]
        assert records.checksums().tolist() == [zlib.crc32(sample) for sample in samples]
        records.clear()
        assert (records.count, records.size, len(records.sizes())) == (0, 0, 0)


def test_many_and_large() -> None:
    records = Records(1 << 20)
    data = np.random.default_rng(0).bytes(300_000)
    for index in range(3000):
        records.append(b"x", index)
    records.append(data, 2**63 - 1)
    assert records.count == 3001
    assert records.indices().tolist() == [*range(3000), 2**63 - 1]
    assert records.checksums()[-1] == zlib.crc32(data)
    assert bytes(records.view(3000, 303_000)) == data


def test_what_is_taken_out_stays() -> None:
    records = Records(100)
    records.append(b"abc", 5)
    sizes, indices, view = records.sizes(), records.indices(), records.view(0, 3)
    records.clear()
    records.append(b"defghi" * 100, 6)  # in larger memory
    assert (sizes.tolist(), indices.tolist(), bytes(view)) == ([3], [5], b"abc")


@pytest.mark.parametrize("wrong", [None, 5, "text", memoryview(np.zeros((3, 3))[:, 1])])
def test_what_is_no_bytes(wrong: object) -> None:
    records = Records(100)
    with pytest.raises((TypeError, BufferError, ValueError)):
        records.append(wrong, 0)  # type: ignore[arg-type]
    assert (records.count, records.size) == (0, 0)


@pytest.mark.parametrize("index", [2**63, -(2**63) - 1])
def test_an_index_beyond_64_bits(index: int) -> None:
    records = Records(100)
    with pytest.raises(OverflowError):
        records.append(b"abc", index)
    assert (records.count, records.size) == (0, 0)


def test_the_memory_is_shared() -> None:
    records = Records(4096)
    records.append(b"parent", 0)
    child = os.fork()
    if child == 0:
        records.view(0, 6)[:] = b"child!"
        os._exit(0)
    os.waitpid(child, 0)
    assert bytes(records.view(0, 6)) == b"child!"


def no_words() -> memoryview:
    return memoryview(bytearray(24)).cast("q")


@given(st.lists(st.binary(max_size=50), max_size=30), st.integers(1, 200), st.integers(1, 12))
def test_filled_up_to_either_limit(samples: list[bytes], bytes_most: int, count_most: int) -> None:
    """Piece after piece gives every sample, and each piece ends with the first sample that makes it full."""
    words, indices, pieces = no_words(), iter(range(len(samples))), []
    records = Records(1 << 10)
    ended = False
    while not ended:
        records.clear()
        ended = records.fill(indices, samples.__getitem__, memoryview, words, 1, bytes_most, count_most)
        pieces.append(records.indices().tolist())
        sizes = records.sizes().tolist()
        full = sum(sizes) >= bytes_most or len(sizes) == count_most
        assert full is not ended
        assert not sizes[:-1] or (sum(sizes[:-1]) < bytes_most and len(sizes) <= count_most)
        assert bytes(records.view(0, records.size)) == b"".join(samples[index] for index in pieces[-1])
    assert [index for piece in pieces for index in piece] == list(range(len(samples)))
    assert words.tolist() == [0, max(0, len(samples) - 1), 0]


def test_what_raises_while_filling_is_used_up() -> None:
    records, words, indices = Records(100), no_words(), iter([4, 0, 5])
    with pytest.raises(ZeroDivisionError):
        records.fill(indices, lambda index: 100 // index, lambda value: bytes([value]), words, 2, 100, 100)
    assert words.tolist() == [0, 0, 0]
    assert records.fill(indices, lambda index: 100 // index, lambda value: bytes([value]), words, 2, 100, 100)
    assert words.tolist() == [0, 0, 5]
    assert (records.indices().tolist(), bytes(records.view(0, 2))) == ([4, 5], bytes([25, 20]))


def test_bytes_that_are_elsewhere() -> None:
    """Taken out part by part, while sizes, indices and checksums stay."""
    records, words, indices = Records(100), no_words(), iter(range(30))
    found = b""
    while not records.fill(indices, lambda index: index, lambda index: b"%03d" % index, words, 0, 20, 100):
        found += bytes(records.view(0, records.size))
        records.rewind()
        assert records.size == 0
    found += bytes(records.view(0, records.size))
    assert found == b"".join(b"%03d" % i for i in range(30))
    assert records.indices().tolist() == list(range(30))
    assert records.sizes().tolist() == [3] * 30
    assert records.checksums().tolist() == [zlib.crc32(b"%03d" % i) for i in range(30)]
    records.clear()
    assert records.count == 0


class Rows:
    """Whatever it is asked for."""

    def __getitem__(self, index: int) -> dict[str, object]:
        if index == 7:
            raise KeyError("seven")
        return {"x": index, "y": np.full(3, index, np.uint8)}


def test_a_dataset_and_a_schema_are_asked_as_any_function_is() -> None:
    schema = Schema.infer([Rows()[0]])
    get, pieces = Indexed(Rows()), schema.pieces()
    assert get(5)["x"] == 5
    found = []
    for ask, encode in ((get, pieces), (get.__call__, pieces.__call__), (get, schema.encode), (get.__call__, pieces)):
        records, words, indices = Records(100), no_words(), iter([5, 7, 6])
        with pytest.raises(KeyError, match="seven"):
            records.fill(indices, ask, encode, words, 0, 1000, 100)
        assert words[0] == 7 and records.indices().tolist() == [5]
        assert records.fill(indices, ask, encode, words, 0, 1000, 100)
        found.append((bytes(records.view(0, records.size)), records.indices().tolist()))
    assert found == [(schema.encode(Rows()[5]) + schema.encode(Rows()[6]), [5, 6])] * 4


@pytest.mark.parametrize("dataset", [None, 5, object()])
def test_a_dataset_without_samples(dataset: object) -> None:
    with pytest.raises(TypeError, match="not subscriptable"):
        Records(100).fill(iter([0]), Indexed(dataset), bytes, no_words(), 0, 10, 10)


def test_no_memory_is_no_fault_of_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(100)

    def refuse(*_: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("mmap.mmap", refuse)
    with pytest.raises(MemoryError, match="Cannot allocate memory"):
        records.append(bytes(1000), 0)
    assert (records.count, records.size) == (0, 0)
