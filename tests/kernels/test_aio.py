"""`_aio`: many reads in flight, judged by `os.pread`."""

import errno
import os
import threading
from collections.abc import Iterator

import children
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import _aio

SIZE = 3_000_001


@pytest.fixture(scope="module", params=["direct", "cached"])
def source(request, tmp_path_factory) -> Iterator[tuple[int, bytes]]:
    """A descriptor, with and without O_DIRECT, and what is behind it."""
    path = tmp_path_factory.mktemp("aio") / "data"
    data = np.random.default_rng(0).bytes(SIZE)
    path.write_bytes(data)
    try:
        fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if request.param == "direct" else 0))
    except OSError as error:
        pytest.skip(f"this file system takes no O_DIRECT: {error}")
    yield fd, data
    os.close(fd)


def read(fd: int, spans: list[tuple[int, int]]) -> list[bytes]:
    table = np.array(spans, np.int64).reshape(-1, 2)
    out = bytearray(b"\xee" * (int(table[:, 1].sum()) + 8))
    assert _aio.read_spans(fd, out, table) == len(out) - 8
    assert out.endswith(b"\xee" * 8)
    starts = np.cumsum([0, *table[:, 1]])
    return [bytes(out[starts[i] : starts[i + 1]]) for i in range(len(spans))]


SLOT = 256 << 10
SPANS = {
    "none": [],
    "empty": [(0, 0), (5, 0), (SIZE, 0), (SIZE + 5, 0)],
    "one byte": [(0, 1)],
    "last byte": [(SIZE - 1, 1)],
    "all": [(0, SIZE)],
    "blocks": [(i * 4096, 4096) for i in range(200)],
    "unaligned": [(i * 4096 - 1, 3) for i in range(1, 300)],
    "slots": [(SLOT - 1, 2), (SLOT, SLOT), (2 * SLOT - 1, SLOT + 2), (0, SLOT + 1)],
    "repeats": [(100, 5000)] * 100,
    "backwards": [(SIZE - 1000 * i, 1000) for i in range(1, 500)],
    "large": [(i, 2_000_000) for i in range(5)],
}


@pytest.mark.parametrize("kind", SPANS)
def test_spans(source, kind):
    fd, data = source
    assert read(fd, SPANS[kind]) == [data[offset : offset + size] for offset, size in SPANS[kind]]


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 5000)), max_size=200))
def test_any_spans(source, spans):
    fd, data = source
    spans = [(offset, min(size, SIZE - offset)) for offset, size in spans]
    assert read(fd, spans) == [data[offset : offset + size] for offset, size in spans]


@pytest.mark.parametrize(
    "spans", [[(SIZE, 1)], [(SIZE - 1, 2)], [(0, SIZE + 1)], [(2 * SIZE, 1)], [(0, 10), (SIZE - 5, 6)]]
)
def test_end_of_file(source, spans):
    with pytest.raises(EOFError, match=rf"span {len(spans) - 1} .*the file ends before it"):
        read(source[0], spans)
    assert read(source[0], [(0, 10)]) == [source[1][:10]]


WRONG = [(-1, 1), (0, -1), (-(2**63), 1), (2**63 - 1, 1), (0, 2**63 - 1), (2**62 + 1, 0)]


@pytest.mark.parametrize("span", WRONG)
def test_wrong_spans(source, span):
    with pytest.raises(ValueError, match=r"span 1 is .* expected 0 <= offset, size"):
        _aio.read_spans(source[0], bytearray(10), np.array([(0, 1), span]))


def test_sizes_that_add_up_to_too_much(source):
    with pytest.raises(ValueError, match="span 2"):
        _aio.read_spans(source[0], bytearray(10), np.array([(0, 2**61)] * 3))


def test_out_is_too_small(source):
    with pytest.raises(ValueError, match="out has 10 bytes, expected at least 11"):
        _aio.read_spans(source[0], bytearray(10), np.array([(0, 5), (5, 6)]))


@pytest.mark.parametrize(
    ("out", "spans", "kind"),
    [
        (b"read-only", np.array([(0, 1)]), (BufferError, ValueError)),
        (None, np.array([(0, 1)]), TypeError),
        (bytearray(9), None, TypeError),
        (bytearray(9), np.array([0, 1]), ValueError),
        (bytearray(9), np.array([(0.0, 1.0)]), ValueError),
        (bytearray(9), np.array([(0, 1)], np.int32), ValueError),
        (np.zeros(9, np.int32), np.array([(0, 1)]), ValueError),
        (np.zeros(18, np.uint8)[::2], np.array([(0, 1)]), ValueError),
    ],
)
def test_wrong_buffers(source, out, spans, kind):
    with pytest.raises(kind):
        _aio.read_spans(source[0], out, spans)


@pytest.mark.parametrize("fd", [-1, 10**6])
def test_bad_descriptor(fd):
    with pytest.raises(OSError, match="span 0") as caught:
        _aio.read_spans(fd, bytearray(10), np.array([(0, 10)]))
    assert caught.value.errno == errno.EBADF


def test_a_directory(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="span 0"):
            _aio.read_spans(fd, bytearray(10), np.array([(0, 10)]))
    finally:
        os.close(fd)


def test_contexts_are_used_again(source):
    read(source[0], [(0, 10)])
    before = _aio.stats()
    for _ in range(50):
        read(source[0], SPANS["blocks"])
    assert _aio.stats() == before
    assert (before["stale"], before["idle"] >= 1) == (0, True)


def test_a_failed_batch_gives_its_context_back(source):
    read(source[0], [(0, 10)])
    before = _aio.stats()
    for _ in range(20):
        with pytest.raises(EOFError):
            read(source[0], [*SPANS["blocks"], (SIZE, 1), *SPANS["blocks"]])
    assert _aio.stats() == before
    assert read(source[0], [(7, 3)]) == [source[1][7:10]]


def test_threads_have_a_context_each(source):
    fd, data = source
    wrong = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(30):
            spans = [(int(offset), 3000) for offset in random.integers(0, SIZE - 3000, 150)]
            if read(fd, spans) != [data[offset : offset + 3000] for offset, _ in spans]:
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert _aio.stats()["stale"] == 0


def test_release_gives_the_slots_back(tmp_path):
    """Seen by the ring that the kernel maps for each context; the host's fs.aio-nr is not ours alone."""
    (tmp_path / "data").write_bytes(bytes(10_000))
    code = """
import os, sys
from pathlib import Path
import numpy as np
from ffrecord import _aio
fd = os.open(sys.argv[1], os.O_RDONLY)
before = _aio.stats()
assert before == {"made": 0, "idle": 0, "refused": 0, "stale": 0}, before
_aio.release()
_aio.read_spans(fd, bytearray(100), np.array([(0, 100)]))
assert _aio.stats()["idle"] == 1
rings = [line for line in Path("/proc/self/maps").read_text().splitlines() if "[aio]" in line]
assert len(rings) == 1
_aio.release()
assert _aio.stats()["idle"] == 0
assert "[aio]" not in Path("/proc/self/maps").read_text()
_aio.read_spans(fd, bytearray(100), np.array([(0, 100)]))
assert _aio.stats()["made"] == 2
"""
    children.run(code, tmp_path / "data")


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOSYS, errno.EPERM, errno.ENOMEM, errno.EINVAL])
def test_refused(tmp_path, number):
    (tmp_path / "data").write_bytes(bytes(10_000))
    code = """
import errno, os, sys
import children, numpy as np
from ffrecord import _aio
fd, number = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])
try:
    children.refuse("io_setup", number)
except OSError as error:
    sys.exit(f"no filters: {error}")
try:
    _aio.read_spans(fd, bytearray(100), np.array([(0, 100)]))
except OSError as error:
    assert error.errno == number and "io_setup" in str(error), error
else:
    sys.exit("no error")
assert _aio.stats() == {"made": 0, "idle": 0, "refused": 1, "stale": 0}, _aio.stats()
"""
    done = children.finished(code, tmp_path / "data", number)
    if "no filters" in done.stderr:
        pytest.skip(f"seccomp is not to be had here: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_forgets_the_contexts(source):
    fd, data = source
    read(fd, SPANS["blocks"])
    child = os.fork()
    if child == 0:
        clean = _aio.stats() == {"made": 0, "idle": 0, "refused": 0, "stale": 0}
        good = read(fd, SPANS["unaligned"]) == [data[o : o + s] for o, s in SPANS["unaligned"]]
        _aio.release()
        os._exit(0 if clean and good else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(fd, SPANS["blocks"]) == [data[o : o + s] for o, s in SPANS["blocks"]]
