"""`_engine` and `_memory` below the reader: contracts that the reader relies on."""

import gc
import os
import threading
import time

import builders
import children
import numpy as np
import pytest
from builders import COPYING_MODES, IO_MODES, chain, fix_checksum, set_offset

from ffrecord.engine import _engine
from ffrecord.kernels._memory import Mapping
from ffrecord.reading.ffr_file import OpenedFile

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
I64 = np.int64


def engine(*paths: str, io: str = "auto", held_most: int = 1024) -> _engine.Files:
    return _engine.Files([OpenedFile(path, check=False, whole=io == "mmap") for path in paths], io, held_most)


def test_modes():
    assert sorted(_engine.MODES) == sorted(IO_MODES)


@pytest.mark.parametrize("io", IO_MODES)
def test_read(small_file, io):
    files = engine(small_file.path, small_file.path, io=io)
    assert (files.n, files.closed, files.aio_error) == (16, False, 0)
    arrays, failures = files.read(np.arange(-16, 16), True, False)
    assert [array.tobytes() for array in arrays] == small_file.samples * 4
    assert failures == []
    packed, failures = files.read(np.arange(-16, 16), True, False, _engine.PACKED)
    assert builders.unpack(packed) == small_file.samples * 4
    assert failures == []


def test_locate(tmp_path):
    names = [builders.write_samples(tmp_path / f"{i}.ffr", [b"x"] * n) for i, n in enumerate([0, 2, 0, 0, 3, 1, 0])]
    files = engine(*names)
    assert [files.locate(i) for i in range(6)] == [(1, 0), (1, 1), (4, 0), (4, 1), (4, 2), (5, 0)]


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize(("indices", "position"), [([16], 0), ([0, 1, -17, 99], 2), ([2**63 - 1], 0), ([-(2**63)], 0)])
def test_position_of_the_first_wrong_index(small_file, io, indices, position):
    files = engine(small_file.path, small_file.path, io=io)
    for form in (_engine.ARRAYS, _engine.PACKED):
        with pytest.raises(IndexError) as caught:
            files.read(np.array(indices, I64), True, False, form)
        assert caught.value.args == (position,)


@pytest.mark.parametrize(
    "wrong", [np.array([0], np.int32), np.array([[0]]), np.array([0, 0, 0])[::2], np.array([0.0]), [0], None]
)
def test_wrong_arrays_of_indices(small_file, wrong):
    with pytest.raises((ValueError, TypeError)):
        engine(small_file.path).read(wrong, True, False)


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("go_on", [True, False])
def test_failures(tmp_path, io, go_on):
    damage = chain(set_offset(5, 10**6), builders.flip_in_sample(2), fix_checksum)
    files = engine(builders.write(tmp_path / "a.ffr", damage(builders.ffr_twin.build(builders.small()))), io=io)
    indices = np.array([7, 5, 3, 2, 4, 2])
    arrays, failures = files.read(indices, True, go_on)
    assert len(arrays) == 6
    found = {failure.order: failure for failure in failures}
    if go_on:
        assert {order: failure.status for order, failure in found.items()} == {
            1: "span",
            3: "mismatch",
            4: "truncated",
            5: "mismatch",
        }
        assert [failure.order for failure in failures] == sorted(found)
        assert arrays[0].tobytes() == builders.small()[7]
        assert arrays[2].tobytes() == builders.small()[3]
        assert (found[3].offset, found[3].size) == (109, 2)
        assert found[3].stored == builders.ffr_twin.zlib.crc32(builders.small()[2])
    assert failures
    assert set(found) <= {1, 3, 4, 5}
    assert all(isinstance(failure, _engine.Failure) for failure in failures)


@pytest.mark.parametrize("io", IO_MODES)
def test_read_one(tmp_path, io):
    damaged = chain(builders.flip_in_sample(2), fix_checksum)(builders.ffr_twin.build(builders.small()))
    files = engine(builders.write(tmp_path / "a.ffr", damaged), io=io)
    for index in range(-8, 8):
        record = files.read_one(index, True)
        if index % 8 == 2:
            _, failures = record
            assert [(each.order, each.status) for each in failures] == [(0, "mismatch")]
            assert len(files.read_one(index, False)) == len(builders.small()[2])
        else:
            assert record.tobytes() == builders.small()[index]
    assert files.read_one(8, True) is files.read_one(-9, True) is files.read_one(-(2**63), True) is None
    files.close()
    assert files.read_one(0, True) is None


def test_closing_during_a_batch_waits_for_it(tmp_path):
    """The descriptors are closed by whoever ends last, so none is used after the kernel gave its number away."""
    path = builders.write_samples(tmp_path / "a.ffr", builders.records([1 << 20] * 32))
    for io in IO_MODES:
        files, results = engine(path, io=io), []

        def work(files=files, results=results):
            results.append(files.read(np.arange(32).repeat(20), True, False))

        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.005)  # 640 MiB take longer
        files.close()
        thread.join()
        assert files.closed
        ((arrays, failures),) = results
        assert failures == []
        assert all(len(array) == 1 << 20 for array in arrays)
        with pytest.raises((ValueError, RuntimeError), match="closed"):
            files.read(np.arange(3), True, False)


def test_closed(small_file):
    files = engine(small_file.path)
    files.close()
    files.close()
    with pytest.raises((ValueError, RuntimeError), match="closed"):
        files.read(np.arange(3), True, False)
    with pytest.raises((ValueError, RuntimeError), match="closed"):
        files.read(np.arange(3), True, False, _engine.PACKED)
    assert files.locate(3) == (0, 3)


def test_half_built_closes_nothing_of_others():
    """Descriptor 0 stays open although the first of the entries was never filled."""
    code = """
import os
from ffrecord.engine import _engine
before = os.readlink("/proc/self/fd/0")
for wrong in ([()], [None], None):
    try:
        _engine.Files(wrong)
    except (TypeError, ValueError, AttributeError):
        pass
    else:
        raise SystemExit(f"{wrong} was accepted")
assert os.readlink("/proc/self/fd/0") == before
"""
    children.run(code)


# Memory


def test_mapping(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"0123456789" * 1000)
    fd = os.open(path, os.O_RDONLY)
    mapping = Mapping(fd, 5000)
    os.close(fd)
    view = memoryview(mapping)
    assert (view.readonly, view.nbytes, bytes(view)) == (True, 5000, b"0123456789" * 500)
    del mapping
    gc.collect()
    assert bytes(view[:3]) == b"012"
    with pytest.raises(TypeError, match="read-only"):
        view[0] = 1


@pytest.mark.parametrize("size", [0, -1])
def test_mapping_of_nothing(tmp_path, size):
    (tmp_path / "f").write_bytes(b"x")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    try:
        with pytest.raises(ValueError, match=f"size is {size}, expected > 0"):
            Mapping(fd, size)
    finally:
        os.close(fd)


def test_mapping_of_no_file():
    with pytest.raises(OSError, match="mapping 10 bytes failed"):
        Mapping(-1, 10)


@pytest.mark.parametrize("io", COPYING_MODES)
def test_small_samples_keep_little_memory_alive(tmp_path, io):
    """What one kept sample pins is bounded: large samples lie apart, small ones share at most 512 KiB."""
    samples = builders.records([1000, 3 << 20] * 20 + [1000] * 2000)
    files = engine(builders.write_samples(tmp_path / "a.ffr", samples), io=io)
    arrays, _ = files.read(np.arange(files.n), True, False)
    blocks: dict[int, list[np.ndarray]] = {}
    for array in arrays:
        blocks.setdefault(id(array.base), []).append(array)
    for sharing in blocks.values():
        if len(sharing) > 1:
            assert max(len(array) for array in sharing) < 64 << 10
            low, high = min(a.ctypes.data for a in sharing), max(a.ctypes.data + len(a) for a in sharing)
            assert high - low <= 512 << 10


def test_blocks_of_dead_arrays_are_used_again(tmp_path):
    samples = builders.records([1 << 20] * 4)
    files = engine(builders.write_samples(tmp_path / "a.ffr", samples))
    arrays, _ = files.read(np.arange(4), True, False)
    places = {array.ctypes.data for array in arrays}
    del arrays
    arrays, _ = files.read(np.arange(4), True, False)
    assert {array.ctypes.data for array in arrays} == places
    assert [array.tobytes() for array in arrays] == samples


@children.measures_memory
def test_idle_blocks_are_bounded(tmp_path):
    """A process keeps 128 MiB for its next batches, and gives the rest back."""
    path = builders.write_samples(tmp_path / "a.ffr", [bytes(20 << 20)])
    code = """
import resource, sys
from ffrecord import FileReader

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

with FileReader(sys.argv[1], check_data=False) as reader:
    before = resident()
    arrays = reader.read([0] * 25)
    assert resident() - before > 480 << 20
    del arrays
    assert resident() - before < 140 << 20, resident() - before
"""
    children.run(code, path)
