"""Shards of a write: create them with room for their tables, finish them in a thread, verify them."""

import contextlib
import errno
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ffrecord._crc import crc32
from ffrecord.dataset_writer.layout import STEM, shard_name
from ffrecord.errors import ChecksumError, CountError, FormatError, MissingFileError, file_error
from ffrecord.format import ffr_layout, manifest
from ffrecord.format.manifest import Shard
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.system import named_calls, signals
from ffrecord.system.atomic_file import move_range, read_into, reserve
from ffrecord.writing.file_writer import compute_offsets, write_tables


@dataclass(frozen=True)
class ShardFiles:
    """The directory and names of the shards of a write.

    Attributes:
        directory: existing directory for this write alone. A process of an earlier write that is still alive uses
            another.
        label: final directory, for messages and the progress bar.
        stem: stem of all names.
        made: path whose part directory contains `directory`; None if that is `label`.
    """

    directory: str
    label: str
    stem: str = STEM
    made: str | None = None

    def name(self, number: int) -> str:
        """Return the file name of shard `number`."""
        return shard_name(number, self.stem)

    # os.path, not Path: Path makes the interpreter intern the name of every shard.

    def path(self, number: int) -> str:
        """Return the path of shard `number` while it is filled."""
        return os.path.join(self.directory, self.name(number))

    def final(self, number: int) -> str:
        """Return the final path of shard `number`, for messages."""
        return os.path.join(self.made or self.label, self.name(number))


def create(path: str, label: str, data_start: int) -> None:
    """Create an empty shard and reserve room on the disk for its tables and block: a full disk shows now, not at the
    end.

    Args:
        path: path of the new file.
        label: final path, for messages.
        data_start: offset of the first sample, bytes.

    Raises:
        OSError (also a RuntimeError): refused; ENOSPC if there is no room.
    """
    try:
        # A name that is taken is never ours here: do not write through somebody's link or into an old file.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            reserve(fd, data_start)
        finally:
            os.close(fd)
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"Failed to open file {label}", label) from None


def move_samples(path: str, label: str, start: int, target: int) -> None:
    """Move the data of a shard from offset `start` to offset `target`, because its tables need more or less room.

    Args:
        label: final path, for messages.

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

    Blocks that were reserved beyond its end are freed.

    Args:
        path: path of the file that `create` made.
        label: final path, for messages.
        data_start: offset of the first sample, bytes.
        sizes, checksums: [n], sizes and checksums of the samples.
        payload: payload of the extension block; None for a file without one.

    Raises:
        CountError: the file size differs from the sum of the samples.
        OSError (also a RuntimeError): a write or the fsync failed.
    """
    end = data_start + int(sizes.sum())
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(fd).st_size
            # A write that was lost would leave a file of another length.
            if size != end:
                raise CountError(f"{label}: it has {size} bytes, but its samples ({len(sizes)}) end at offset {end}")
            named_calls.ftruncate(fd, end)  # frees the blocks reserved beyond the end
            crc = write_tables(fd, checksums, compute_offsets(sizes, data_start), payload, end)
            # Durable before the log names the shard; see `PartDirectory.keep`.
            named_calls.fsync(fd)
        except BaseException:
            # The first error is the one to report.
            with contextlib.suppress(OSError):
                os.close(fd)
            raise
        os.close(fd)  # not suppressed: network file systems may report a failed write only here
    except OSError as error:
        raise file_error(error.errno or errno.EIO, f"{label}: its tables could not be written", label) from None
    return Shard(os.path.basename(path), len(sizes), end, crc)


Step = Callable[[], Shard]

SHORT = 0.005  # seconds between two checks of a backlog


class ShardFinisher:
    """A thread that runs steps one after the other; each step completes a shard, and the first failure stops it.

    Start it after all forks. A child does not inherit the thread, but would inherit the locks that it holds.
    """

    def __init__(self) -> None:
        self._steps: queue.SimpleQueue[Step | None] = queue.SimpleQueue()
        self._done: list[Shard] = []
        self._failure: BaseException | None = None
        self._cancelled = False
        self._added = 0
        # A daemon: a disk that hangs must not keep the interpreter from exiting.
        self._thread = threading.Thread(target=self._run, name="ffrecord-finisher", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        # A signal before Python has noted the start would leave a thread that `cancel` cannot join.
        with signals.defer_signals():
            self._thread.start()

    @property
    def backlog(self) -> int:
        """Number of steps that are not done."""
        # No lock: one thread changes each number, and each number is one object, read whole.
        return self._added - len(self._done)

    def add(self, step: Step) -> None:
        """Queue a step."""
        self._added += 1
        self._steps.put(step)

    def wait_for(self, backlog: int) -> None:
        """Wait until at most `backlog` steps are left.

        Raises:
            others: whatever a step raised.
        """
        self.check()
        while self.backlog > backlog:
            time.sleep(SHORT)
            self.check()

    def check(self) -> None:
        """Raise the exception of a failed step, if there is one."""
        if self._failure is not None:
            raise self._failure

    def wait(self, seconds: float) -> list[Shard] | None:
        """Return the completed shards in order of completion, or None if the steps take longer than `seconds`.

        Raises:
            others: whatever a step raised.
        """
        # The end of the queue, after all steps that were added.
        self._steps.put(None)
        self._thread.join(seconds)
        # A failed step ends the thread, so look for its error before the shards.
        self.check()
        return None if self._thread.is_alive() else self._done

    def cancel(self, seconds: float) -> None:
        """Run steps for at most `seconds`, so that a resumed write has less to do.

        A step at work then ends by itself.
        """
        # The end of the queue lets the thread stop by itself if it is quick.
        self._steps.put(None)
        if self._thread.ident is not None:  # never started if a fork failed: then `join` would raise
            self._thread.join(seconds)
        self._cancelled = True

    def _run(self) -> None:
        try:
            while (step := self._steps.get()) is not None and not self._cancelled:
                self._done.append(step())
        # Everything, to be raised again in the caller's thread by `check`.
        except BaseException as error:
            self._failure = error


CHUNK = 8 << 20


def check_listed(directory: str, shard: Shard, *, check: bool = False) -> OpenedFile:
    """Open a shard and compare its header with its manifest entry; the caller closes it.

    Args:
        check: whether to compare the tables with their CRC-32.

    Raises:
        FormatError, ChecksumError: it is another file, or damaged.
        MissingFileError: there is no such file.
        OSError: it cannot be read.
    """
    path = os.path.join(directory, shard.name)
    try:
        opened = OpenedFile(path, check=check)
    except FileNotFoundError:
        raise MissingFileError(errno.ENOENT, f"{path} does not exist, but {manifest.NAME} lists it", path) from None
    found, listed = (opened.n, opened.size, opened.crc), (shard.samples, shard.size, shard.crc)
    if found != listed:
        opened.close()
        what = "it is another shard than the listed one, or an old copy"
        raise FormatError(f"{opened.path}: {what}: (samples, size, CRC-32 of tables) is {found}, expected {listed}")
    return opened


def check_whole(directory: str, shard: Shard) -> None:
    """Compare everything in a shard with its checksums, in constant memory.

    Raises:
        FormatError, ChecksumError: it is another file, or damaged.
        OSError: it cannot be read.
    """
    opened = check_listed(directory, shard, check=True)
    try:
        _check_records(opened)
    finally:
        opened.close()


def _check_records(opened: OpenedFile) -> None:
    # The last sample ends with the file.
    bounds = [*opened.offsets.tolist(), opened.size]
    buffer = memoryview(bytearray(CHUNK))
    held = range(0)  # file offsets of the bytes in the buffer
    for index, stored in enumerate(opened.checksums.tolist()):
        offset, end, crc = bounds[index], bounds[index + 1], 0
        # Matching tables prove nothing here: a file may be made so that its offsets lead anywhere.
        if not opened.data_start <= offset <= end <= opened.size:
            raise FormatError(
                f"{opened.path}: sample {index}: offsets are {offset} .. {end}, expected them ascending in the file"
            )
        while offset < end:
            # Small samples share one read; a large one takes several.
            if offset not in held:
                held = range(offset, offset + _fill(opened, buffer, offset))
            upto = min(end, held.stop)
            crc = crc32(buffer[offset - held.start : upto - held.start], crc)
            offset = upto
        if crc != stored:
            sentence = f"{opened.path}: sample {index}: checksum mismatch: CRC-32 {crc:#010x}, stored {stored:#010x}"
            raise ChecksumError(sentence, path=opened.path, index=index, stored=stored, computed=crc)


def _fill(opened: OpenedFile, buffer: memoryview, offset: int) -> int:
    """Read into the buffer from `offset` on; return the number of bytes, > 0."""
    got = read_into(opened.fd, buffer, offset)
    if not got:
        raise FormatError(f"{opened.path}: the file was cut to {offset} bytes")
    return got
