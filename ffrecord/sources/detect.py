"""Detection of formats by content. Names decide only where the content cannot."""

import glob
import json
import os
import stat
from collections.abc import Callable
from errno import ENOENT, ENXIO
from itertools import islice
from typing import NamedTuple

from ffrecord._crc import crc32c, mask
from ffrecord.errors import FormatError, MissingFileError, add_file_to_errors
from ffrecord.format import ffr_layout as ffr
from ffrecord.format import leftovers, manifest
from ffrecord.format.folder_index import MAGIC_BYTES
from ffrecord.sources import files
from ffrecord.sources.beton import layout as beton
from ffrecord.sources.files import holds_pictures
from ffrecord.sources.inflated import compression_of, inflate_head
from ffrecord.sources.lmdb.index import data_files, names_of_databases
from ffrecord.sources.lmdb.pages import Pages
from ffrecord.sources.mds.index import INDEX_MOST
from ffrecord.sources.registry import IMAGES, SUFFIXES, ends_as, partition_of
from ffrecord.sources.tar import _tar

HEAD = 1 << 16  # first bytes of a file that are looked at
ZIP_END = 22 + 65_535  # most bytes of a zip's end record and comment
ENTRIES = 1000  # most entries of a directory that are looked at


class Look(NamedTuple):
    """The parts of a file that the checks look at.

    Attributes:
        head: its first HEAD bytes.
        size: its size, bytes.
        tail: its last ZIP_END bytes.
        first: offset of its first sample, 8 bytes, if it is a `.ffr` file.
    """

    head: bytes
    size: int
    tail: bytes
    first: bytes


def detect(path: str) -> str:
    """Return the format of a file or directory.

    It is one of `FORMATS`, or "parquet", which can only be converted.

    Raises:
        FormatError: no known format.
        FileNotFoundError: `path` does not exist.
        OSError: it cannot be read.
    """
    if os.path.isdir(path):
        return _detect_directory(path)
    if not os.path.exists(path):
        told = f"no file matches {path!r}" if glob.has_magic(path) else f"{path} does not exist"
        raise MissingFileError(ENOENT, f"{told}{files.missing_hint(path)}", path)
    with add_file_to_errors("finding out its format", path), open(path, "rb", opener=_without_waiting) as file:
        # Of the open file: the path may lead to another one by now.
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path} is a {_kind(status.st_mode)}, expected a regular file or a directory")
        size = status.st_size
        head = file.read(HEAD)
        # Parquet, and a zip behind a program, are known by their ends.
        file.seek(max(0, size - ZIP_END))
        tail = file.read(ZIP_END)
        file.seek(_first_offset_at(head, size))
        look = Look(head, size, tail, file.read(8))
    for name, fits in CHECKS:
        if fits(look):
            return name
    empty = _detect_empty(path, head, size)
    if empty is not None:
        return empty
    if size == 0:
        raise FormatError(f"{path}: unknown format: the file is empty")
    other = ffr.describe_other(head) if path.endswith(ffr.SUFFIX) else ""
    if other:
        raise FormatError(f"{path} is not {other}")
    begins = f"{size} bytes that begin with {head[:16].hex(' ')}"
    raise FormatError(f"{path}: unknown format: {begins}{files.file_hint(path, head)}")


def _without_waiting(path: str, flags: int) -> int:
    # Without O_NONBLOCK, opening a pipe would wait until somebody writes to it.
    try:
        return os.open(path, flags | os.O_NONBLOCK)
    except OSError as error:
        # open(2) gives ENXIO for a socket, but not only for one.
        if error.errno == ENXIO and stat.S_ISSOCK(os.stat(path).st_mode):
            raise FormatError(f"{path} is a socket, expected a regular file or a directory") from None
        raise


def _kind(mode: int) -> str:
    return "pipe" if stat.S_ISFIFO(mode) else "device"


# Files


def _is_zip(look: Look) -> bool:
    # A zip without members begins with its end record.
    return look.head[:4] in (b"PK\x03\x04", b"PK\x05\x06")


def _ends_as_zip(look: Look) -> bool:
    """Tell whether the file ends with a zip's end record and its comment.

    The zip may stand behind a program, for example.
    """
    at = look.tail.rfind(b"PK\x05\x06")
    while at >= 0:
        # A comment may contain the mark: its own length must lead to the end of the file.
        if at + 22 + int.from_bytes(look.tail[at + 20 : at + 22], "little") == len(look.tail):
            return True
        at = look.tail.rfind(b"PK\x05\x06", 0, at)
    return False


def _is_tar(look: Look) -> bool:
    # POSIX and GNU write "ustar" there; headers of the seventh edition of Unix have zeros.
    if len(look.head) < _tar.BLOCK or look.head[257:262] not in (b"ustar", bytes(5)):
        return False
    headers = _tar.Headers()
    # A block of zeros ends a tar, but a file of anything may begin with one.
    return headers.block(look.head[: _tar.BLOCK]) != _tar.END and headers.problem != "checksum"


def _is_end_of_tar(head: bytes, size: int) -> bool:
    """Tell whether a file is a tar without members: two or more blocks of zeros. Other files may be zeros, too."""
    return size >= 1024 and size % 512 == 0 and size == len(head) and not head.strip(b"\0")


def _is_tfrecord(look: Look) -> bool:
    if len(look.head) < 12:
        return False
    # A record begins with its length, and the masked CRC-32C of these 8 bytes.
    return mask(crc32c(look.head[:8])) == int.from_bytes(look.head[8:12], "little")


def _is_recordio(look: Look) -> bool:
    return look.head[:4] == b"\4\3\2\1" and look.size >= 20


def _is_lmdb(look: Look) -> bool:
    # The magic number stands behind the header of the first page, of 16 bytes.
    return look.head[16:20] == b"\xde\xc0\xef\xbe"


def _is_parquet(look: Look) -> bool:
    # The specification has the magic number at both ends.
    return look.head[:4] == look.tail[-4:] == b"PAR1"


def _is_beton(look: Look) -> bool:
    # There is no magic number, so all fields of the header must make sense.
    if len(look.head) <= beton.HEADER.size:
        return False
    version, fields, page, samples, _ = beton.HEADER.unpack_from(look.head)
    if version != beton.VERSION or not fields or page < 1 << 12 or page & (page - 1) or samples > look.size:
        return False
    step = beton.DESCRIPTOR.itemsize
    types = look.head[beton.HEADER.size : beton.HEADER.size + step * fields : step]
    return all(each in beton.KINDS or each == beton.CUSTOM for each in types)


def _samples(head: bytes, size: int) -> int:
    """Return the number of samples of a `.ffr` file with this head; -1 if it cannot be one."""
    if size < ffr.PREFIX.size:
        return -1
    n = int.from_bytes(head[4:12], "little", signed=True)
    # Each sample takes 12 bytes of the tables: 4 of its checksum, 8 of its offset.
    return n if 0 <= n <= (size - ffr.PREFIX.size) // 12 else -1


def _first_offset_at(head: bytes, size: int) -> int:
    return ffr.offsets_start(max(0, _samples(head, size)))


def _is_ffr(look: Look) -> bool:
    """Tell whether the first sample begins right behind the tables or an extension block: there is no magic number."""
    n = _samples(look.head, look.size)
    if n == 0:
        return look.size == ffr.PREFIX.size or look.head[ffr.PREFIX.size :].startswith(ffr.BLOCK_MAGIC)
    return n > 0 and ffr.tables_end(n) <= int.from_bytes(look.first, "little", signed=True) <= look.size


def _is_compressed(wanted: Callable[[Look], bool]) -> Callable[[Look], bool]:
    """Return a check that a file is of a format after decompression by gzip or zlib."""

    def fits(look: Look) -> bool:
        # A header of a tar has 512 bytes, that of a TFRecord 12.
        inside = inflate_head(look.head, 1024)
        # What the content ends with is unknown: all of it would have to be decompressed.
        return inside is not None and wanted(Look(inside, look.size, b"", b""))

    return fits


def _is_packed_tar(look: Look) -> bool:
    # Of files compressed in these ways, only tars can be read.
    return compression_of(look.head) in ("bzip2", "xz", "zstd")


def _detect_empty(path: str, head: bytes, size: int) -> str | None:
    """Return the format of a file without records, which only its name tells; None if it has some, or another name."""
    inside = inflate_head(head, HEAD)
    size, head = (size, head) if inside is None else (len(inside), inside)
    name = os.path.basename(path)
    if ends_as(name, SUFFIXES["tar"]) and _is_end_of_tar(head, size):
        return "tar"
    # A file of these formats may be empty: it has no records.
    return next((format for format in ("tfrecord", "recordio") if not size and ends_as(name, SUFFIXES[format])), None)


# The surest marks stand first. A `.ffr` file whose last sample is a zip ends like a zip: so that check is the last.
CHECKS: tuple[tuple[str, Callable[[Look], bool]], ...] = (
    ("tfrecord", _is_tfrecord),
    ("tar", _is_tar),
    ("lmdb", _is_lmdb),
    ("parquet", _is_parquet),
    ("recordio", _is_recordio),
    ("beton", _is_beton),
    ("zip", _is_zip),
    ("tfrecord", _is_compressed(_is_tfrecord)),
    ("tar", _is_compressed(_is_tar)),
    ("tar", _is_packed_tar),
    ("ffrecord", _is_ffr),
    ("zip", _ends_as_zip),
)


def is_packed_folder(path: str) -> bool:
    """Tell whether the last record of a `.ffr` file begins like the index of a packed folder.

    Raises:
        OSError (also a RuntimeError): the file cannot be read.
    """
    with add_file_to_errors("finding out its format", path):
        if not _is_regular(path):
            return False
        return _ends_in_an_index(path)


def _is_regular(path: str) -> bool:
    """Tell whether a path is a regular file. Unlike `os.path.isfile`, raise if that cannot be found out."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    # ValueError: a path with a NUL, which no file has.
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False


def _ends_in_an_index(path: str) -> bool:
    with open(path, "rb") as file:
        n = int.from_bytes(file.read(ffr.PREFIX.size)[4:], "little", signed=True)
        if n < 1:
            return False
        # The table of offsets ends with that of the last sample.
        file.seek(ffr.tables_end(n) - 8)
        offset = int.from_bytes(file.read(8), "little", signed=True)
        if not 0 <= offset <= os.fstat(file.fileno()).st_size:
            return False
        file.seek(offset)
        return file.read(len(MAGIC_BYTES)) == MAGIC_BYTES


def is_torchrecord(path: str) -> bool:
    """Tell whether an LMDB environment has named databases, and all their names are those of TorchRecord."""
    file = data_files(path)[0]
    with files.add_hint_to_errors(file), Pages(file) as pages:
        # LMDB allows any bytes in names.
        names = {name.decode(errors="surrogateescape") for name in names_of_databases(pages)}
    return bool(names) and names == {f"db{i}" for i in range(len(names))}


# Directories


def _detect_directory(path: str) -> str:
    # Sorted, since only some are looked at: which ones must not depend on the file system.
    names = sorted(os.listdir(path))
    if any(name.endswith(ffr.SUFFIX) for name in names) or (manifest.NAME in names and _is_listed(path)):
        return "ffrecord"
    if "data.mdb" in names:
        return "lmdb"
    # Many programs write an index.json.
    if "index.json" in names and _lists_shards(os.path.join(path, "index.json")):
        return "mds"
    if os.path.exists(os.path.join(path, "db0", "data.mdb")):
        return "torchrecord"
    # A directory has the format of most of its files.
    return _most_common_format(path, names)


def _is_listed(path: str) -> bool:
    """Tell whether the dataset.json of a directory is ours, or damaged; other programs have files of that name."""
    try:
        return manifest.load(path) is not None
    except FormatError:
        return True


def _most_common_format(path: str, names: list[str]) -> str:
    """Return the format of most entries of a directory; entries of no format do not count."""
    lower = [name.lower() for name in names if not name.startswith(".")]
    counts = {format: sum(ends_as(name, suffixes) for name in lower) for format, suffixes in SUFFIXES.items()}
    # The directories of a partitioned dataset have no suffix that could be counted.
    counts["parquet"] += _partitions(path, names)
    most = max(counts.values())
    # One more than the most so far decides: further directories need not be read.
    counts["image folder"] = _pictures(path, names, most + 1)
    most = max(most, counts["image folder"])
    found = [format for format, count in counts.items() if count == most]
    # A directory of whole datasets is not itself one, whatever its other files are.
    datasets = files.datasets_in(path, names)
    if most == 0 or len(datasets) >= most or (datasets and found == ["image folder"]):
        raise _unknown_error(path, names, files.directory_hint(path, names) or leftovers.remark(path))
    if len(found) > 1:
        choices = " or ".join(f'format="{each}"' for each in found)
        raise FormatError(f"{path}: it has as many entries of {' as of '.join(found)}; pass {choices}")
    # A directory of documents may contain some pictures, too.
    if found == ["image folder"] and not _is_of_pictures(path, names):
        said = "few of them are pictures or directories of pictures; if it is an image folder, "
        raise _unknown_error(path, names, f'; {said}pass format="image folder"')
    return found[0]


def _unknown_error(path: str, names: list[str], hint: str) -> FormatError:
    """Return the error for a directory of no known format."""
    if not names:
        return FormatError(f"{path}: unknown format: the directory is empty")
    count = f"{len(names)} {'entry' if len(names) == 1 else 'entries'}"
    return FormatError(f"{path}: unknown format: a directory of {count}{hint}")


def _is_of_pictures(path: str, names: list[str]) -> bool:
    """Tell whether at least half of the entries of a directory are pictures, or directories of pictures.

    A single directory of pictures beside other files does not count: it may contain screenshots, for example.
    """
    visible = [name for name in names if not name.startswith(".")][:ENTRIES]
    pictures = sum(name.lower().endswith(IMAGES) for name in visible)
    others = [os.path.join(path, name) for name in visible if not name.lower().endswith(IMAGES)]
    others = [each for each in others if not _is_empty(each)]  # classes without pictures yet
    holding = sum(map(holds_pictures, others))
    if holding == 1 and not pictures:
        return len(others) == 1
    return 2 * (pictures + holding) >= pictures + len(others)


def _is_empty(path: str) -> bool:
    """Tell whether a path is a directory with nothing in it."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _partitions(path: str, names: list[str]) -> int:
    """Count the partitions in a directory, such as `year=2024`, that contain Parquet files."""
    partitions = [os.path.join(path, name) for name in names[:ENTRIES] if partition_of(name) is not None]
    return sum(_holds_parquet(each) for each in partitions)


def _holds_parquet(directory: str) -> bool:
    """Tell whether a partition, or any partition in it, contains Parquet files."""
    if not os.path.isdir(directory):
        return False
    names = sorted(os.listdir(directory))
    if any(ends_as(name, SUFFIXES["parquet"]) for name in names):
        return True
    # Partitions nest, as in year=2024/month=05.
    return any(_holds_parquet(os.path.join(directory, name)) for name in names if partition_of(name) is not None)


def _lists_shards(path: str) -> bool:
    try:
        found = json.loads(manifest.read(path, INDEX_MOST))
    # RecursionError: JSON that is nested too deeply.
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("shards"), list)


def _pictures(path: str, names: list[str], enough: int) -> int:
    """Count the entries that are pictures, or directories with pictures. The count may stop at `enough`."""
    visible = [name for name in names if not name.startswith(".")]
    files = sum(name.lower().endswith(IMAGES) for name in visible)
    below = (os.path.join(path, name) for name in visible[:ENTRIES] if not name.lower().endswith(IMAGES))
    holding = (directory for directory in below if holds_pictures(directory))
    # Directories are read one by one, only until there are enough.
    return files + sum(1 for _ in islice(holding, max(0, enough - files)))
