"""What gzip and zlib files decompress to, read anywhere: against the bytes, with work and memory counted."""

import contextlib
import gzip
import threading
import tracemalloc
import zlib
from itertools import pairwise

import children
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.errors import FormatError, TruncatedError
from ffrecord.sources import inflated
from ffrecord.sources.inflated import Inflated, OpenStreams

DATA = np.random.default_rng(3).integers(0, 4, 120_000, np.uint8).tobytes() + bytes(80_000)
PACK = {
    "gzip": lambda data: gzip.compress(data, 1),
    "zlib": lambda data: zlib.compress(data, 1),
    "members": lambda data: b"".join(gzip.compress(data[at : at + 9000], 1) for at in range(0, len(data), 9000)),
    "no member in between": lambda data: (
        gzip.compress(data[:100]) + gzip.compress(b"") * 50 + gzip.compress(data[100:])
    ),
}
kinds = pytest.mark.parametrize("kind", PACK)


def stream(folder, kind, places=16, data=DATA, packed=None):
    path = folder / "x.gz"
    path.write_bytes(PACK[kind](data) if packed is None else packed)
    return Inflated(str(path), "zlib" if kind == "zlib" else "gzip", path.stat(), places)


def piece(of, offset, size):
    out = np.empty(size, np.uint8)
    of.fill(out, offset)
    return out.tobytes()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """So small that files of 200 kB have many blocks and places."""
    monkeypatch.setattr(inflated, "BLOCK", 2000)
    monkeypatch.setattr(inflated, "INPUT", 1024)
    monkeypatch.setattr(inflated, "SPACING", 8000)


@pytest.fixture
def work(monkeypatch):
    """Bytes decompressed."""
    counted = [0]
    decompress = Inflated._decompress

    def counting(self, most):
        found = decompress(self, most)
        counted[0] += len(found)
        return found

    monkeypatch.setattr(Inflated, "_decompress", counting)
    return counted


@kinds
def test_all_of_it(tmp_path, kind):
    of = stream(tmp_path, kind)
    assert b"".join(of.pieces()) == DATA and (of.end, of.torn) == (len(DATA), False)
    assert b"".join(of.pieces()) == DATA
    assert max(map(len, of.pieces())) == 2000


@pytest.fixture(scope="module")
def streams(tmp_path_factory):
    return {kind: stream(tmp_path_factory.mktemp("streams"), kind) for kind in PACK}


@kinds
@settings(max_examples=12)
@given(spans=st.lists(st.tuples(st.integers(0, len(DATA)), st.integers(0, 30_000)), max_size=12))
def test_any_part(streams, kind, spans):
    for offset, size in spans:
        size = min(size, len(DATA) - offset)
        assert piece(streams[kind], offset, size) == DATA[offset : offset + size]


@kinds
def test_in_sequence_each_byte_is_decompressed_once(tmp_path, kind, work):
    of = stream(tmp_path, kind)
    assert b"".join(piece(of, at, 1000) for at in range(0, len(DATA), 1000)) == DATA
    assert work[0] == len(DATA)


@kinds
def test_elsewhere_little_is_decompressed(tmp_path, kind, work):
    """At most what lies between two places, and a block, for each piece; even backwards."""
    of = stream(tmp_path, kind, places=100)
    list(of.pieces())
    # Where little input gives much, places are as far apart as what one input gives.
    steps = [place.at for place in of._places]
    apart = max(b - a for a, b in pairwise([0, *steps, len(DATA)]))
    work[0] = 0
    offsets = range(len(DATA) - 100, 0, -4000)
    for offset in offsets:
        assert piece(of, offset, 100) == DATA[offset : offset + 100]
    assert work[0] <= len(offsets) * (apart + 2000)
    assert len(steps) >= 10


@kinds
@pytest.mark.parametrize("most", [0, 1, 5])
def test_places_are_few(tmp_path, kind, most):
    of = stream(tmp_path, kind, most)
    list(of.pieces())
    assert len(of._places) <= most
    for offset in (199_000, 100, 150_000, 0, 123_456):
        assert piece(of, offset, 900) == DATA[offset : offset + 900]
    assert len(of._places) <= most


def test_a_bomb_takes_no_memory(tmp_path, monkeypatch):
    """32 MB of zeros in 32 kB: a block at a time."""
    monkeypatch.undo()
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(32)) + packer.flush()
    of = stream(tmp_path, "gzip", packed=packed)
    tracemalloc.start()
    assert sum(map(len, of.pieces())) == 32 << 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 << 20


def test_beyond_the_end(tmp_path):
    of = stream(tmp_path, "gzip")
    with pytest.raises(
        TruncatedError, match=f"20 bytes at offset {len(DATA) - 10} of the decompressed data, which end at {len(DATA)}"
    ):
        piece(of, len(DATA) - 10, 20)
    with pytest.raises(TruncatedError):
        piece(of, 2 * len(DATA), 1)
    assert piece(of, len(DATA) - 10, 10) == DATA[-10:]


def test_nothing_behind_its_end_is_looked_at(tmp_path):
    packed = bytearray(PACK["gzip"](DATA))
    packed[-8] ^= 1  # CRC-32 of the contents
    of = stream(tmp_path, "gzip", packed=bytes(packed))
    with pytest.raises(FormatError, match="incorrect data check"):
        piece(of, len(DATA) - 10, 11)
    of.end = len(DATA)
    assert piece(of, len(DATA) - 10, 10) == DATA[-10:]
    assert piece(of, 0, 10) == DATA[:10]


@pytest.mark.parametrize("kind", ["gzip", "members"])
@pytest.mark.parametrize("where", [0.3, 0.999])
def test_all_before_the_damage(tmp_path, kind, where):
    """Every byte that zlib gives when it is fed byte by byte."""
    packed = bytearray(PACK[kind](DATA))
    packed[int(where * len(packed))] ^= 0x55
    expected, rest = b"", bytes(packed)
    with contextlib.suppress(zlib.error):
        while rest:
            decoder = zlib.decompressobj(47)
            for at in range(len(rest)):
                expected += decoder.decompress(rest[at : at + 1])
                if decoder.eof:
                    break
            rest = rest[at + 1 :]
    of, found = stream(tmp_path, kind, packed=bytes(packed)), b""
    try:
        for each in of.pieces():
            found += each
    except FormatError as error:
        assert "damaged at offset" in str(error)
    else:
        assert of.torn  # what is damaged may as well lead beyond the end
    assert found == expected
    for size in (1, 10, 100):
        if len(found) >= size:
            assert piece(of, len(found) - size, size) == found[len(found) - size :]


def test_cut(tmp_path):
    packed = PACK["gzip"](DATA)
    of = stream(tmp_path, "gzip", packed=packed[: len(packed) // 2])
    found = b"".join(of.pieces())
    assert of.torn and 0 < len(found) < len(DATA) and DATA.startswith(found)
    assert piece(of, 10, 10) == DATA[10:20]


def test_another_file_under_its_name(tmp_path):
    of = stream(tmp_path, "gzip")
    piece(of, 0, 10)
    of.release()
    path = tmp_path / "x.gz"
    path.write_bytes(PACK["gzip"](DATA[::-1]))
    with pytest.raises(OSError, match=r"replaced or removed after it was opened.*; open it again"):
        piece(of, 0, 10)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        piece(of, 0, 10)


def test_released_it_opens_again(tmp_path):
    before = len(children.open_files(collect=True))
    of = stream(tmp_path, "members")
    list(of.pieces())
    assert len(children.open_files()) == before + 1
    of.release()
    assert len(children.open_files()) == before
    assert piece(of, 150_000, 10) == DATA[150_000:150_010]
    del of
    assert len(children.open_files()) == before


def test_a_fork_knows_what_it_may_use(tmp_path):
    of = stream(tmp_path, "gzip")
    list(of.pieces())
    places = len(of._places)
    of.renew()
    assert len(of._places) == places > 0
    of._lock.acquire()  # as by a thread that the child does not have
    of.renew()
    assert of._places == [] and not of._lock.locked()
    assert piece(of, 150_000, 10) == DATA[150_000:150_010]


def test_few_are_open_at_once(tmp_path):
    every = []
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        every.append(stream(tmp_path / str(number), "gzip"))
    keeper = OpenStreams(3)
    before = len(children.open_files(collect=True))
    for turn in range(2):
        for of in every:
            assert piece(keeper.use(of), 1000 * turn, 5) == DATA[1000 * turn : 1000 * turn + 5]
            assert len(children.open_files()) <= before + 3
    keeper.use(every[0])
    assert every[-1]._fd >= 0 and every[-3]._fd < 0


def test_threads(tmp_path):
    of, wrong = stream(tmp_path, "members"), []

    def work(seed):
        for offset in np.random.default_rng(seed).integers(0, len(DATA) - 3000, 40).tolist():
            if piece(of, offset, 3000) != DATA[offset : offset + 3000]:
                wrong.append(offset)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
