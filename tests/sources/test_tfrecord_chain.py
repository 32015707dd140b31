"""The pass over a TFRecord that finds its records: in files and in streams that come in pieces of any size."""

import os

import mutations
import numpy as np
import pytest
import tfrecord_twin as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import records

from ffrecord._crc import crc32c
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.sources.tfrecord._tfrecord import Chain


def followed(data, check=True):
    """Through a file."""
    with open(os.memfd_create("chain"), "w+b") as file:
        file.write(data)
        file.flush()
        chain = Chain(check=check, size=len(data))
        assert chain.follow_file(file.fileno()) == 0
    return chain


def fed(data, pieces, check=True):
    """As a stream, in pieces of these sizes, again and again."""
    chain, at, turn = Chain(check=check), 0, 0
    while at < len(data):
        size = pieces[turn % len(pieces)]
        chain.feed(data[at : at + size])
        at, turn = at + size, turn + 1
    chain.finish()
    return chain


def told(chain):
    offsets, sizes, checksums = chain.tables()
    assert (offsets.dtype, sizes.dtype, checksums.dtype) == (np.int64, np.int64, np.uint32)
    assert chain.n == len(offsets) == len(sizes) == len(checksums)
    return offsets.tolist(), sizes.tolist(), checksums.tolist(), chain.at


@given(contents=records(60), pieces=st.lists(st.integers(1, 6000), min_size=1, max_size=5))
def test_every_record_is_found(contents, pieces):
    data = twin.encode(contents)
    chain = followed(data)
    offsets, sizes, checksums, at = told(chain)
    assert (chain.ending, at) == (_tfrecord.END, len(data))
    assert [data[offset : offset + size] for offset, size in zip(offsets, sizes, strict=True)] == contents
    assert checksums == list(map(crc32c, contents))
    assert told(fed(data, pieces)) == told(chain)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 11, 12, 13, 15, 16, 17, 31, 32, 33])
def test_small_pieces(size):
    contents = [b"", b"", b"a", b"bc" * 9, b"", b"d" * 15, b"e" * 16, b"f" * 17]
    assert told(fed(twin.encode(contents), [size])) == told(followed(twin.encode(contents)))


@pytest.mark.parametrize("sizes", [[100] * 20_000, [9000] * 200, [300_000] * 20, [9000, 10, 400_000, 0, 70_000] * 20])
def test_large_records_are_skipped_and_small_ones_read_over(sizes):
    contents = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    chain = followed(twin.encode(contents))
    assert told(chain)[1:3] == (sizes, list(map(crc32c, contents)))


def test_streams_end_where_files_do():
    data = twin.encode([b"first", b"", b"third"])
    for number, changed in enumerate(mutations.mutants(data, 1500, 7)):
        for check in (True, False):
            records_there, _, end = twin.decode(changed, check)
            file = followed(changed, check)
            assert told(file)[1] == [len(each) for each in records_there]
            assert (file.ending == _tfrecord.END) == (end is None)
            assert end is None or file.at == end
            stream = fed(changed, [1 + number % 40, 7], check)
            assert told(stream) == told(file)
            # Of a stream nobody knows that a length leads beyond its end; then the end says so.
            assert (stream.ending, stream.length) == (file.ending, file.length)


def test_endings():
    data = twin.encode([b"first", b"second"])
    for size in range(len(data) + 1):
        ending = followed(data[:size]).ending
        start = 21 if size >= 21 else 0
        left = size - start if size < len(data) else 0
        assert ending == (_tfrecord.END if not left else _tfrecord.TORN if left < 12 else _tfrecord.CUT)
    wrong = followed(data[:8] + b"abcd" + data[12:])
    assert (wrong.ending, wrong.at, wrong.length, wrong.n) == (_tfrecord.WRONG, 0, 5, 0)
    assert wrong.computed == crc32c(data[:8]) != wrong.stored
    assert followed(data[:8] + b"abcd" + data[12:], check=False).n == 2


def test_nothing_after_the_end():
    chain = fed(twin.encode([b"a"]) + b"no header at all", [5])
    assert (chain.ending, chain.n) == (_tfrecord.WRONG, 1)
    chain.feed(b"more")
    assert (chain.ending, chain.n) == (_tfrecord.WRONG, 1)


def test_a_file_that_cannot_be_read():
    chain = Chain(size=100)
    assert chain.follow_file(-1) == 9  # EBADF


def test_a_file_that_became_shorter():
    """Than it was when somebody looked."""
    data = twin.encode([b"first", b"x" * 20_000, b"y" * 20_000])
    with open(os.memfd_create("chain"), "w+b") as file:
        file.write(data[:-25_000])
        file.flush()
        chain = Chain(size=len(data))
        assert chain.follow_file(file.fileno()) == 0
    assert (chain.n, chain.ending) == (1, _tfrecord.CUT)


@given(contents=records(20), have=st.floats(0, 1), flips=st.sets(st.integers(0, 19)), check=st.booleans())
def test_cut(contents, have, flips, check):
    """Records of the beginning of a file, some of them damaged."""
    data = bytearray(twin.encode(contents))
    ends = np.cumsum([len(record) + 16 for record in contents]).tolist()
    flips = {place for place in flips if place < len(contents) and contents[place]}
    for place in flips:
        data[ends[place] - 5] ^= 1
    have = int(have * len(data))
    memory, chain = np.frombuffer(bytes(data) + bytes(100), np.uint8).copy(), Chain(size=len(data))
    chain.feed(memory[:have])
    found, wrong, end, following = _tfrecord.cut(memory, chain, check)
    whole = sum(each <= have for each in ends)
    assert [record.tobytes() for record in found] == twin.decode(data)[0][:whole]
    assert all(record.flags.writeable and np.shares_memory(record, memory) for record in found if len(record))
    stored = [(place, crc32c(found[place])) for place in sorted(flips) if place < whole and check]
    assert wrong == stored
    assert end == ([0, *ends])[whole]
    begun = whole < len(contents) and have - end >= 12
    assert following == (len(contents[whole]) if begun else -1)


def test_cut_of_too_few_bytes():
    data = np.frombuffer(twin.encode([b"first", b"second"]), np.uint8)
    chain = Chain()
    chain.feed(data)
    for have in (0, 20):
        with pytest.raises(ValueError, match=f"{have} bytes, but the chain has seen {len(data)}"):
            _tfrecord.cut(data[:have].copy(), chain, True)


@pytest.mark.parametrize("writeable", [True, False])
def test_cut_of_memory_that_may_be_read_only(writeable):
    data = np.frombuffer(twin.encode([b"first", b"second"]), np.uint8).copy()
    data.flags.writeable = writeable
    chain = Chain()
    chain.feed(data)
    records, wrong, *_ = _tfrecord.cut(data, chain, True)
    assert [bytes(each) for each in records] == [b"first", b"second"] and wrong == []
    assert [each.flags.writeable for each in records] == [writeable] * 2


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (12, -1), (12, 40), (12, 2**62), (2**62, 5)])
def test_cut_by_tables_that_were_changed(offset, size):
    """Nothing outside of memory is given."""
    data = np.frombuffer(twin.encode([b"first", b"second"]), np.uint8).copy()
    chain = Chain()
    chain.feed(data)
    chain.finish()
    offsets, sizes, _ = chain.tables()
    offsets[0], sizes[0] = offset, size
    with pytest.raises(ValueError, match=f"record [01] has .* in {len(data)} from"):
        _tfrecord.cut(data, chain, True)


def test_checksums():
    data = np.arange(100, dtype=np.uint8)
    starts, sizes = np.array([0, 50, 100, 3]), np.array([100, 7, 0, 0])
    expected = [crc32c(data[start : start + size]) for start, size in zip(starts, sizes, strict=True)]
    assert _tfrecord.checksums(data, starts, sizes).tolist() == expected
    assert _tfrecord.checksums(data[:0], starts[:1], sizes[2:3]).tolist() == [0]
    for start, size in ((-1, 5), (0, 101), (100, 1), (101, 0), (5, -1), (2**62, 2**62)):
        with pytest.raises(ValueError, match=f"{size} bytes at {start}, in 100"):
            _tfrecord.checksums(data, np.array([start]), np.array([size]))
    with pytest.raises(ValueError, match="4 starts, but 1 sizes"):
        _tfrecord.checksums(data, starts, sizes[:1])


@settings(max_examples=30)
@given(contents=records(30))
def test_frame(contents):
    data, offsets = np.frombuffer(b"".join(contents), np.uint8), np.cumsum([0, *map(len, contents)])
    assert _tfrecord.frame(data, offsets) == twin.encode(contents)
    for bad in ([0, len(data) + 1], [-1, 0], [0, -1], []):
        with pytest.raises(ValueError, match="offsets"):
            _tfrecord.frame(data, np.array(bad, np.int64))
