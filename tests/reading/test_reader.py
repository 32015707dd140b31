"""`FileReader`: what it gives, in every io mode."""

import builders
import ffr_twin
import numpy as np
import pytest
from builders import IO_MODES, set_header_crc

from ffrecord import FileReader
from ffrecord.errors import FormatError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")


def test_read_gives_every_sample(reader, sample_file):
    assert builders.read_all(reader) == sample_file.samples


def test_read_one(reader, sample_file):
    for i, sample in enumerate(sample_file.samples):
        assert reader.read_one(i).tobytes() == sample


def test_read_packed(reader, sample_file):
    data, offsets = reader.read_packed(range(reader.n))
    assert (data.dtype, data.ndim, offsets.dtype, offsets.shape) == (np.uint8, 1, np.int64, (reader.n + 1,))
    assert data.flags.writeable
    assert (offsets[0], offsets[-1]) == (0, len(data))
    assert builders.unpack((data, offsets)) == sample_file.samples


@pytest.mark.parametrize("order", ["forward", "backward", "random", "repeats", "few", "strided"])
def test_order_is_kept(reader, sample_file, order):
    n = reader.n
    random = np.random.default_rng(0)
    indices = {
        "forward": np.arange(n),
        "backward": np.arange(n)[::-1],
        "random": random.permutation(n),
        "repeats": random.integers(0, n, 3 * n),
        "few": np.array([5, 3, 5]),
        "strided": np.arange(0, n, 7),
    }[order]
    wanted = [sample_file.samples[i] for i in indices]
    assert [sample.tobytes() for sample in reader.read(indices)] == wanted
    assert builders.unpack(reader.read_packed(indices)) == wanted


@pytest.mark.parametrize("size", [1, 2, 3, 64, 65, 1000, 4096, 4097, 5000])
def test_batch_sizes(reader, sample_file, size):
    """The original read one or two with pread, more with AIO, and never more than 4,096."""
    indices = [i * 31 % 240 for i in range(size)]
    assert [sample.tobytes() for sample in reader.read(indices)] == [sample_file.samples[i] for i in indices]


@pytest.mark.parametrize("io", IO_MODES)
def test_a_batch_of_100_000(small_file, io):
    indices = np.random.default_rng(0).integers(0, 8, 100_000)
    with FileReader(small_file.path, io=io) as reader:
        data, offsets = reader.read_packed(indices)
        arrays = reader.read(indices)
    wanted = b"".join(small_file.samples[i] for i in indices)
    assert data.tobytes() == wanted
    assert b"".join(array.tobytes() for array in arrays) == wanted
    assert offsets.tolist() == [0, *np.cumsum([len(small_file.samples[i]) for i in indices])]


def test_samples_are_writable_and_share_no_byte(reader):
    """Those of io="mmap" are neither: test_read_mapped.py."""
    if reader.io == "mmap":
        assert not any(array.flags.writeable for array in reader.read(range(100)))
        return
    indices = [0, 1, 1, 30, 60, 60, 2, 0]
    arrays = reader.read(indices)
    for j, array in enumerate(arrays):
        assert (array.dtype, array.ndim) == (np.uint8, 1)
        assert array.flags.c_contiguous
        assert array.flags.writeable
        array[:] = j
    for j, array in enumerate(arrays):
        assert (array == j).all()
    assert [len(array) for array in arrays] == [len(array) for array in reader.read(indices)]


def test_samples_outlive_the_reader(sample_file):
    for io in IO_MODES:
        reader = FileReader(sample_file.path, io=io)
        arrays = reader.read(range(50))
        data, offsets = reader.read_packed(range(50))
        reader.close()
        del reader
        assert [array.tobytes() for array in arrays] == sample_file.samples[:50]
        assert builders.unpack((data, offsets)) == sample_file.samples[:50]


def test_later_batches_do_not_touch_earlier_ones(reader, sample_file):
    """Blocks are pooled: one is used again only after its last array died."""
    kept = [(i, reader.read(range(i, i + 20))) for i in range(0, 280, 20)]
    del kept[::2]
    kept += [(i, reader.read(range(i, i + 20))) for i in range(0, 280, 20)]
    for start, arrays in kept:
        assert [array.tobytes() for array in arrays] == sample_file.samples[start : start + 20]


def test_samples_can_be_viewed_as_other_types(reader):
    for array in reader.read(range(100)):
        array[: len(array) // 8 * 8].view(np.float64)
        assert array.ctypes.data % 16 == 0 or len(array) >= 64 << 10 or reader.io == "mmap"


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("count", [1, 2, 3, 100])
def test_only_empty_samples(tmp_path, io, count):
    path = builders.write_samples(tmp_path / "a.ffr", [b""] * count)
    with FileReader(path, io=io) as reader:
        arrays = reader.read(range(count))
        assert [(array.tolist(), array.dtype) for array in arrays] == [([], np.uint8)] * count
        assert reader.read_one(0).shape == (0,)
        assert builders.unpack(reader.read_packed(range(count))) == [b""] * count


@pytest.mark.parametrize("io", IO_MODES)
def test_edges_of_pieces_and_blocks(tmp_path, io):
    """Sizes at which sectors, shared blocks, blocks of their own and direct pieces begin and end."""
    edges = [512, 4096, 64 << 10, 256 << 10, 512 << 10, 1 << 20]
    samples = builders.records([size + delta for size in edges for delta in (-1, 0, 1, 0, 16 << 10)])
    path = builders.write_samples(tmp_path / "a.ffr", samples)
    with FileReader(path, io=io) as reader:
        assert builders.read_all(reader) == samples
        indices = [*range(len(samples)), *range(0, len(samples), 2), *range(len(samples))]
        assert builders.unpack(reader.read_packed(indices)) == [samples[i] for i in indices]


# Several files

PARTS = [[], [b"a", b"", b"bc"], [], [], [b"d" * 5000], [b"", b""], [b"e"], []]


@pytest.mark.parametrize("io", IO_MODES)
def test_many_files_with_empty_ones_between(tmp_path, io):
    names = [builders.write_samples(tmp_path / f"{i}.ffr", part) for i, part in enumerate(PARTS)]
    samples = [sample for part in PARTS for sample in part]
    with FileReader(names, io=io) as reader:
        assert (reader.n, reader.fnames) == (len(samples), names)
        assert builders.read_all(reader) == samples
        assert [reader.read_one(i).tobytes() for i in range(-reader.n, reader.n)] == samples * 2
        indices = [6, 0, 3, 3, 5, 1]
        assert [sample.tobytes() for sample in reader.read(indices)] == [samples[i] for i in indices]
        assert [sample.tobytes() for sample in reader] == samples


def test_the_same_file_twice(small_file):
    with FileReader([small_file.path] * 3) as reader:
        assert builders.read_all(reader) == small_file.samples * 3


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_one_bad_file_refuses_all(tmp_path, damaged):
    names = [builders.write_samples(tmp_path / f"{i}.ffr", [b"x"]) for i in range(3)]
    builders.write(tmp_path / f"{damaged}.ffr", b"short")
    with pytest.raises(FormatError, match=f"{damaged}.ffr"):
        FileReader(names)


# Tables


def test_offsets_and_checksums(tmp_path):
    data = ffr_twin.build(builders.small())
    path = builders.write(tmp_path / "a.ffr", data)
    empty = builders.write_samples(tmp_path / "b.ffr", [])
    with FileReader([path, empty]) as reader:
        offsets, checksums = reader.get_offsets(0), reader.get_checksums(0)
        assert offsets.tolist() == [108, 108, 109, 111, 116, 132, 165, 265, 404]
        assert checksums.tobytes() == data[12:44]
        assert (offsets.dtype, checksums.dtype) == (np.int64, np.uint32)
        assert reader.get_offsets(1).tolist() == [12]
        assert (reader.get_checksums(1).shape, reader.get_checksums(1).dtype) == ((0,), np.uint32)
        for wrong in (2, -3, 2**70):
            with pytest.raises(IndexError, match="file_index"):
                reader.get_offsets(wrong)
            with pytest.raises(IndexError, match="file_index"):
                reader.get_checksums(wrong)
        for wrong in (1.0, "0", None):
            with pytest.raises(TypeError):
                reader.get_offsets(wrong)


def test_loc(small_file):
    with FileReader(small_file.path) as reader:
        assert reader.loc([0, 3, -1]) == ([108, 111, 265], [0, 5, 139])
        assert reader.loc([]) == ([], [])
        for wrong in ([8], [-9]):
            with pytest.raises(IndexError):
                reader.loc(wrong)
    with FileReader([small_file.path] * 2) as reader, pytest.raises(ValueError, match="one file"):
        reader.loc([0])


def test_extension_of_several_files(tmp_path):
    def file(name: str, payload: bytes) -> str:
        return builders.write(tmp_path / name, ffr_twin.build_extended([b"x"], payload))

    a, b, c = file("a.ffr", b"\x81\xa6schema\x80"), file("b.ffr", b"\x81\xa6schema\x80"), file("c.ffr", b"")
    plain = builders.write_samples(tmp_path / "d.ffr", [b"x"])
    with FileReader([a, b]) as reader:
        assert reader.extension.schema == {}
    with FileReader(plain) as reader:
        assert reader.extension is None
    for other in (c, plain):
        with FileReader([a, other]) as reader, pytest.raises(FormatError, match=rf"{other}: its schema differs"):
            _ = reader.extension


@pytest.mark.parametrize("check_data", [True, 1, "yes", False, 0, None])
def test_check_data_is_any_truth_value(small_file, check_data):
    with FileReader(small_file.path, check_data=check_data) as reader:
        assert reader.check_data is bool(check_data)


@pytest.mark.parametrize(
    ("io", "message"), [("mmap2", "io is 'mmap2', expected one of"), ("", "io is ''"), (None, "io is None")]
)
def test_wrong_io(small_file, io, message):
    with pytest.raises(ValueError, match=message):
        FileReader(small_file.path, io=io)


def test_io_is_remembered(small_file):
    assert FileReader(small_file.path).io == "auto"
    for io in IO_MODES:
        with FileReader(small_file.path, io=io) as reader:
            assert reader.io == io


def test_old_files_warn_once_each(tmp_path):
    names = [builders.write(tmp_path / f"{i}.ffr", set_header_crc(0)(ffr_twin.build([b"x"]))) for i in range(2)]
    with pytest.warns(UserWarning, match="you are using an old version ffrecord file") as caught:
        reader = FileReader(names)
    assert [str(each.message).split(":")[0] for each in caught] == names
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="old version ffrecord file, please update the file") as caught:
        reader.validate()
    assert len(caught) == 2
    assert builders.read_all(reader) == [b"x", b"x"]
    reader.close()
    FileReader(names, check_data=False).close()  # the header is not looked at, so nothing is said
