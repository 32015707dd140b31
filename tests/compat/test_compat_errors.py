"""Errors: what they are instances of, the phrases programs look for, and the file, index and numbers they name."""

import errno
import os

import builders
import children
import ffr_twin
import pytest
from builders import chain, fix_checksum, set_header_crc, set_n, set_offset, truncate

from ffrecord import ChecksumError, FileReader, FileWriter, FormatError

pytestmark = pytest.mark.usefixtures("no_leaked_descriptors")
SAMPLES = builders.small()
PLAIN = ffr_twin.build(SAMPLES)


def opened(path, damage=bytes, **options):
    return FileReader(builders.write(path / "a.ffr", damage(PLAIN)), **options)


def index_too_large(path):
    with opened(path) as reader:
        reader.read([0, 8])


def index_too_small(path):
    with opened(path) as reader:
        reader.read_one(-9)


def closed_reader(path):
    reader = opened(path)
    reader.close()
    reader.read_one(0)


def one_too_many(path):
    with FileWriter(path / "a.ffr", 0) as writer:
        writer.write_one(b"x")


def after_close(path):
    writer = FileWriter(path / "a.ffr", 0)
    writer.close()
    writer.write_one(b"x")


def wrong_count(path):
    with FileWriter(path / "a.ffr", 2) as writer:
        writer.write_one(b"x")


def sample_checksum(path):
    with opened(path, builders.flip_in_sample(3)) as reader:
        reader.read(range(8))


def header_checksum(path):
    opened(path, set_header_crc(5))


def header_checksum_later(path):
    with opened(path, set_header_crc(5), check_data=False) as reader:
        reader.validate()


def cut_before_opening(path):
    with opened(path, truncate(200)) as reader:
        reader.read_one(6)


def cut_while_open(path):
    with opened(path) as reader:
        os.truncate(reader.fnames[0], 200)
        reader.read_one(6)


def cut_before_opening_and_packed(path):
    with opened(path, truncate(200)) as reader:
        reader.read_packed([1, 6])


def impossible_count(path):
    opened(path, set_n(2**60))


def tables_do_not_fit(path):
    opened(path, truncate(100))


def offsets_out_of_order(path):
    with opened(path, chain(set_offset(4, 110), fix_checksum)) as reader:
        reader.read_one(3)


def no_directory_to_write_in(path):
    FileWriter(path / "missing" / "a.ffr", 1)


def a_directory_to_write_to(path):
    (path / "d.ffr").mkdir()
    FileWriter(path / "d.ffr", 1)


def a_file_as_directory_to_write_in(path):
    (path / "f").touch()
    FileWriter(path / "f" / "a.ffr", 1)


def missing(path):
    FileReader(path / "missing.ffr")


def directory_in_a_list(path):
    FileReader([path])


def fifo(path):
    os.mkfifo(path / "fifo.ffr")
    FileReader(path / "fifo.ffr")


def other_suffix(path):
    (path / "a.txt").touch()
    FileReader(path / "a.txt")


def empty_list(path):
    FileReader([])


def empty_directory(path):
    FileReader(path)


def wrong_type_to_read(path):
    FileReader(b"a.ffr")


def wrong_type_to_write(path):
    FileWriter(b"a.ffr", 1)


def wrong_suffix_to_write(path):
    FileWriter(path / "a.txt", 1)


def negative_n(path):
    FileWriter(path / "a.ffr", -1)


def fractional_n(path):
    FileWriter(path / "a.ffr", 1.5)


def wrong_index(path):
    with opened(path) as reader:
        reader.read([1.5])


def wrong_index_of_one(path):
    with opened(path) as reader:
        reader.read_one("1")


def wrong_buffer(path):
    with FileWriter(path / "a.ffr", 1) as writer:
        writer.write_one("text")


ROWS = [
    (index_too_large, (IndexError, RuntimeError), "index >= number of samples (8 >= 8)", "a.ffr"),
    (index_too_small, (IndexError, RuntimeError), "-9", "a.ffr"),
    (closed_reader, (RuntimeError, ValueError), "FileReader has been closed.", "a.ffr"),
    (one_too_many, (RuntimeError, ValueError), "Exceed total number of samples: 0", "a.ffr"),
    (after_close, (RuntimeError, ValueError), "Exceed total number of samples: 0", "a.ffr"),
    (wrong_count, (RuntimeError, ValueError), "Number of samples mismatched! Wrote 1 samples but expected 2", "a.ffr"),
    (sample_checksum, (ChecksumError, RuntimeError, ValueError), "Sample 3: checksum mismatch:", "a.ffr: sample 3"),
    (
        header_checksum,
        (ChecksumError, RuntimeError, ValueError),
        "a.ffr: checksum of metadata mismatch:",
        "0x00000005",
    ),
    (header_checksum_later, (ChecksumError, RuntimeError, ValueError), "a.ffr: checksum of metadata mismatch:", "0x"),
    (cut_before_opening, (FormatError, OSError, RuntimeError), "Sample 6: length 100 but read 35 bytes", "a.ffr"),
    (
        cut_before_opening_and_packed,
        (FormatError, OSError, RuntimeError),
        "Sample 6: length 100 but read 35 b",
        "a.ffr",
    ),
    (cut_while_open, (FormatError, OSError, RuntimeError), "Sample 6: length 100 but read 35 bytes", "a.ffr"),
    (impossible_count, (FormatError, RuntimeError, ValueError), f"{2**60} samples do not fit in 404 bytes", "a.ffr"),
    (tables_do_not_fit, (FormatError, RuntimeError, ValueError), "8 samples do not fit in 100 bytes", "a.ffr"),
    (offsets_out_of_order, (FormatError, RuntimeError, ValueError), "Sample 3: ", "a.ffr"),
    (no_directory_to_write_in, (FileNotFoundError, RuntimeError), "Failed to open file {path}/missing/a.ffr: ", ""),
    (a_directory_to_write_to, (IsADirectoryError, RuntimeError), "Failed to open file {path}/d.ffr: ", ""),
    (a_file_as_directory_to_write_in, (NotADirectoryError, RuntimeError), "Failed to open file {path}/f/a.ffr: ", ""),
    (missing, (FileNotFoundError, AssertionError), "{path}/missing.ffr does not exist", ""),
    (directory_in_a_list, (IsADirectoryError, AssertionError), "{path} is not a file", ""),
    (fifo, (ValueError, AssertionError), "{path}/fifo.ffr is not a file", ""),
    (other_suffix, (ValueError, AssertionError), "{path}/a.txt does not end with .ffr", ""),
    (empty_list, (ValueError, AssertionError), "At least one .ffr file as input", ""),
    (empty_directory, (ValueError, AssertionError), "At least one .ffr file as input", ""),
    (wrong_type_to_read, (TypeError,), "fname is a bytes of 5, expected str, os.PathLike, list or tuple", ""),
    (wrong_type_to_write, (TypeError, AssertionError), "fname", ""),
    (wrong_suffix_to_write, (ValueError, AssertionError), "a.txt", ""),
    (negative_n, (ValueError,), "-1", ""),
    (fractional_n, (TypeError,), "", ""),
    (wrong_index, (TypeError,), "", ""),
    (wrong_index_of_one, (TypeError,), "", ""),
    (wrong_buffer, (TypeError,), "str", ""),
]


@pytest.mark.parametrize(
    ("situation", "kinds", "phrase", "named"), ROWS, ids=lambda value: getattr(value, "__name__", None)
)
def test_errors(tmp_path, situation, kinds, phrase, named):
    with pytest.raises(kinds[0]) as caught:
        situation(tmp_path)
    message = str(caught.value)
    assert [kind for kind in kinds if not isinstance(caught.value, kind)] == []
    assert phrase.format(path=tmp_path) in message
    assert named in message
    if isinstance(caught.value, OSError) and not isinstance(caught.value, FormatError):
        assert caught.value.errno
        assert str(caught.value.filename).startswith(str(tmp_path))


def test_no_error_speaks_the_language_of_the_original(tmp_path):
    """Neither its 'condition' failed, nor places in its C++."""
    for situation, kinds, *_ in ROWS:
        (tmp_path / situation.__name__).mkdir()
        with pytest.raises(kinds[0]) as caught:
            situation(tmp_path / situation.__name__)
        assert "failed." not in str(caught.value)
        assert ".cpp" not in str(caught.value)


def test_disk_full(tmp_path):
    """RLIMIT_FSIZE here; real disks are in test_writer_failures.py."""
    code = """
import errno, resource, sys
from ffrecord import FileWriter
writer = FileWriter(sys.argv[1], 100)
resource.setrlimit(resource.RLIMIT_FSIZE, (1212 + 5 * 300_000 + 4, resource.RLIM_INFINITY))
try:
    for _ in range(100):
        writer.write_one(bytes(300_000))
except OSError as error:
    assert isinstance(error, RuntimeError) and error.errno == errno.EFBIG and error.filename == sys.argv[1]
    print(error)
"""
    assert "Sample 5: length 300000 but wrote 4 bytes" in children.run(code, tmp_path / "a.ffr")
    assert os.listdir(tmp_path) == []


def test_permission(tmp_path):
    """As root there is no such error, so the child becomes somebody else."""
    code = """
import os, sys
from ffrecord import FileWriter
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    FileWriter(sys.argv[1], 1)
except PermissionError as error:
    print(error.errno, error.filename, isinstance(error, RuntimeError))
"""
    (tmp_path / "sub").mkdir(mode=0o500)
    path = tmp_path / "sub" / "a.ffr"
    assert children.run(code, path) == f"{errno.EACCES} {path} True\n"
