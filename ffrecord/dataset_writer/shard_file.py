"""One shard of a dataset being written: made with room for its tables, filled by others, finished once all is there."""

import contextlib
import errno
import os
from dataclasses import dataclass

from ffrecord.dataset_writer.layout import STEM, shard_name
from ffrecord.errors import CountError, counted, file_error
from ffrecord.format import ffr_layout
from ffrecord.format.manifest import Shard
from ffrecord.system.atomic_file import move_range, reserve
from ffrecord.writing.file_writer import offsets_of, write_tables


@dataclass(frozen=True)
class Files:
    """Where the shards of a write are while they are filled, and what they will be called.

    Attributes:
        directory: an existing one, for this write alone: a process of an earlier one that still writes knows another.
        label: the final directory, for messages and the progress bar.
        stem: of all names.
        made: the path of which `directory` is the part, where that is not `label`; None for that.
    """

    directory: str
    label: str
    stem: str = STEM
    made: str | None = None

    def name(self, number: int) -> str:
        """The file name of shard `number`."""
        return shard_name(number, self.stem)

    # Not by Path, which has the interpreter intern the name of every shard.

    def path(self, number: int) -> str:
        """The path of shard `number` while it is filled."""
        return os.path.join(self.directory, self.name(number))

    def final(self, number: int) -> str:
        """The path it will have, for messages."""
        return os.path.join(self.made or self.label, self.name(number))


def create(path: str, label: str, data_start: int) -> None:
    """Make an empty shard whose tables and block are reserved on the disk, so that it fills up now and not at the end.

    Args:
        path: of the new file.
        label: its final path, for messages.
        data_start: offset of the first sample, bytes.

    Raises:
        OSError (also a RuntimeError): refused; ENOSPC if there is no room.
    """
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            reserve(fd, data_start)
        finally:
            os.close(fd)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"Failed to open file {label}", label) from None


def move_samples(path: str, label: str, start: int, target: int) -> None:
    """Move everything from offset `start` of a shard on to offset `target`, since its tables take more room or less.

    Args:
        label: its final path, for messages.

    Raises:
        OSError (also a RuntimeError): refused; ENOSPC if there is no room.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            move_range(fd, start, os.fstat(fd).st_size, target)
        finally:
            os.close(fd)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"{label}: its samples could not be moved", label) from None


def finish(
    path: str,
    label: str,
    data_start: int,
    sizes: ffr_layout.Offsets,
    checksums: ffr_layout.Checksums,
    payload: bytes | None,
) -> Shard:
    """Write tables, header CRC-32 and extension block of a shard whose samples are all written, and make it durable.

    Blocks that were reserved behind its end are given back.

    Args:
        path: of the file as `create` made it.
        label: its final path, for messages.
        data_start: offset of the first sample, bytes.
        sizes, checksums: [n] of its samples.
        payload: of the extension block; None for a file without one.

    Raises:
        CountError: the file's size is not what its samples add up to.
        OSError (also a RuntimeError): a write or the fsync failed.
    """
    end = data_start + int(sizes.sum())
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            if size != end:
                raise CountError(f"{label}: {size} bytes, but its {counted(len(sizes), 'sample')} end at {end}")
            os.ftruncate(fd, end)  # gives back what was reserved behind
            crc = write_tables(fd, checksums, offsets_of(sizes, data_start), payload, end)
            os.fsync(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(fd)
            raise
        os.close(fd)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"{label}: its tables could not be written", label) from None
    return Shard(os.path.basename(path), len(sizes), end, crc)
