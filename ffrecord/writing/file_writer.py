"""Writer of one `.ffr` file: it appends samples with checksums, and publishes the file as a whole or not at all."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from ffrecord._crc import crc32
from ffrecord.errors import (
    ArgumentError,
    ArgumentTypeError,
    ClosedError,
    CountError,
    StateError,
    file_error,
    plural,
)
from ffrecord.format import extension, ffr_layout
from ffrecord.format.journal import Journal, JournalHeader
from ffrecord.system import atomic_file, named_calls, urls
from ffrecord.system.closing import SingleFileWriter, log_loss
from ffrecord.system.values import describe_wrong, iterator_of, path_text, whole_number
from ffrecord.writing._buffers import Appender

BLOCK = 4096  # if n is unknown, samples start at a multiple of this: file systems insert space in whole blocks


def write_tables(
    fd: int, checksums: ffr_layout.Checksums, offsets: ffr_layout.Offsets, payload: bytes | None, file_size: int
) -> int:
    """Write everything before the samples, including the CRC-32 of the header.

    Args:
        fd: descriptor of a file whose samples are in place.
        checksums, offsets: uint32 [n] and int64 [n].
        payload: payload of the extension block, which fills the gap between tables and first sample; None for no block.
        file_size: final size of the file, bytes.

    Returns:
        The CRC-32 of the header.
    """
    n = len(checksums)
    prefix, *tables = ffr_layout.pack_tables(checksums, offsets)
    # The CRC-32 of the header covers everything behind itself.
    crc = crc32(memoryview(prefix)[ffr_layout.CHECKED_FROM :])
    at = ffr_layout.PREFIX.size
    for table in tables:
        crc = crc32(table, crc)
        atomic_file.write_all(fd, table, at)
        at += len(table)
    # The prefix goes last, because it holds the CRC-32 of the tables; nobody sees the file yet.
    ffr_layout.PREFIX.pack_into(prefix, 0, crc, n)
    atomic_file.write_all(fd, memoryview(prefix), 0)
    if payload is not None:
        start = ffr_layout.tables_end(n)
        # The block fills the gap exactly, so that each byte of the file has a meaning.
        gap = (int(offsets[0]) if n else file_size) - start
        atomic_file.write_all(fd, memoryview(extension.seal(payload, gap, file_size)), start)
    return crc


def compute_offsets(sizes: ffr_layout.Offsets, start: int) -> ffr_layout.Offsets:
    """Return the offsets of adjacent samples of these sizes from `start` on."""
    # The last size decides no offset.
    offsets = np.zeros(len(sizes), np.int64)
    np.cumsum(sizes[:-1], out=offsets[1:])
    offsets += start
    return offsets


def compute_missing_room(n: int, payload: bytes | None, start: int) -> int:
    """Return by how many bytes samples from `start` on must move back for tables of n and a block; in whole blocks."""
    needed = ffr_layout.tables_end(n) + (0 if payload is None else extension.block_size(payload))
    # Whole blocks, as file systems insert nothing else.
    return -(-max(0, needed - start) // BLOCK) * BLOCK


def move_samples(part: atomic_file.PartFile, journal: Journal, start: int, more: int, end: int) -> atomic_file.PartFile:
    """Move bytes [start, end) of `part` back by `more`, both in whole blocks, so that a kill loses no flushed sample.

    Returns:
        The file with the moved samples: `part`, or a new file if moving in place would copy over flushed samples.
    """
    # Without a flush nothing can be lost, so moving within the file is safe.
    if not journal.begun:
        atomic_file.insert_space(part.fd, start, more, end)
        return part
    # Noted first: after a kill, `recover` finds the samples at either place.
    journal.note_place(start + more)
    if atomic_file.insert_range(part.fd, start, more, end):
        return part
    # Copying within the file would overwrite flushed samples before they are durable elsewhere.
    moved = atomic_file.PartFile(part.target)
    try:
        atomic_file.copy_range(part.fd, start, end - start, moved.fd, start + more)
    except BaseException:
        moved.discard()
        raise
    return moved


class FileWriter(Appender, SingleFileWriter):
    """Writer of one file. The file appears under its name only at `close`, and then as a whole.

    Args:
        fname: the path, ending in `.ffr`. A file there stays unchanged until it is replaced, which keeps its mode; a
            symbolic link is followed.
        n: number of samples, >= 0. None: any number. The file then has a gap before its first sample, see
            docs/format.md, and is not byte-identical to one written with n.
        extension: metadata of the file. None for none: with n, the bytes are those of ffrecord 1.x.

    Raises:
        TypeError, ValueError (also AssertionError): `fname` has another type, lacks the suffix, or is a URL.
        TypeError, ValueError: `n` is wrong.
        OSError (also RuntimeError): the file cannot be created, or the disk has no room for its tables.

    As a context manager it closes at the end, and discards everything after an exception. Only one thread at a time may
    use a writer: a call of another thread, or of a signal handler, raises RuntimeError meanwhile and changes nothing.
    The writer uses two buffers of 4 MiB, touched only as far as needed, and 12 bytes for each sample. Of a large file
    the last 32 MiB stay in the page cache. A writer that nobody closed is discarded with a ResourceWarning; but if it
    has all of its n samples, it is closed, as programs for ffrecord 1.x expect.
    """

    _part: atomic_file.PartFile

    def __init__(
        self,
        fname: str | os.PathLike[str],
        n: SupportsIndex | None = None,
        *,
        extension: extension.Extension | None = None,
    ) -> None:
        self._open = False
        self._failure: Exception | None = None
        self._replaced: atomic_file.PartFile | None = None  # the part file before the samples moved to a new one
        self._path = _check_name(fname)
        self._n = None if n is None else whole_number("n", n)
        if self._n is not None and self._n < 0:
            raise ValueError(f"{self._path}: n is {self._n}, expected >= 0")
        self._payload = self._encode(extension)
        self._data_start = self._reserve()
        try:
            self._part = atomic_file.PartFile(self._path)
            self._journal = Journal(self._part.path)
            self._keep(self._part, self._journal)
            self._open = True
            self._allocate_tables()
            self._begin(self._part.fd, self._data_start, -1 if self._n is None else self._n)
        except BaseException:
            # Nothing half-made stays, also if a signal comes here.
            if self._open:
                self._discard()
            elif hasattr(self, "_part"):
                self._part.discard()
            raise

    def _encode(self, given: extension.Extension | None) -> bytes | None:
        if given is None:
            # Without n the space before the samples needs a block that gives it a meaning.
            return b"" if self._n is None else None
        if not isinstance(given, extension.Extension):
            raise ArgumentTypeError(describe_wrong("extension", given, "an Extension or None"))
        return extension.encode(given)

    def _reserve(self) -> int:
        """Return the offset of the first sample."""
        room = 0 if self._payload is None else extension.block_size(self._payload)
        if self._n is None:
            # The tables' size is unknown. Whole blocks, so that space can be inserted later.
            return -(-(ffr_layout.PREFIX.size + room) // BLOCK) * BLOCK
        return ffr_layout.tables_end(self._n) + room

    def _allocate_tables(self) -> None:
        """Allocate the tables on the disk, so that a full disk fails now, not when they are written at the end."""
        try:
            atomic_file.reserve(self._part.fd, self._data_start)
        except (OSError, OverflowError) as error:
            # `OverflowError`: n so large that no file can have such tables.
            code = getattr(error, "errno", None) or errno.EFBIG
            raise file_error(
                code, f"{self._path}: reserving {plural(self._data_start, 'byte')} failed", self._path
            ) from None

    @property
    def n(self) -> int | None:
        """Number of samples of the file; None if unknown."""
        return self._n

    def _refuse(self, more: int) -> None:
        """Raise the reason why `more` samples cannot be appended."""
        # Later calls repeat the reason, which may be a full disk, and not only "closed".
        if self._failure is not None and not self._open:
            raise self._failure
        if not self._open:
            total = self.count if self._n is None else self._n  # programs for 1.x may look for these words
            raise CountError(f"Exceed total number of samples: {total}: {self._path}, whose writer has been closed")
        if self._n is not None and self.count + more > self._n:
            rest = "" if more <= 1 else f", {self.count} written and {more} more given"
            raise CountError(f"Exceed total number of samples: {self._n}{rest}: {self._path}")
        self._check_usable()
        if self._failure is not None:  # `_leave` was called while another thread was in the middle of a sample
            with self._alone():
                self._discard()
            raise self._failure

    def _check_usable(self) -> None:
        # Both processes would write to the same place of one file.
        if not self._part.owned:
            raise StateError(f"{self._path} was opened by another process; a forked child cannot write to it")
        if self._busy:
            raise StateError(
                f"{self._path}: another thread, or the handler of a signal, is in the middle of writing to it"
            )

    def _abandon(self, error: BaseException) -> BaseException:
        """Give up after an error in the middle of a sample, or in the thread; return the exception to raise."""
        # Errors of the user's iterable stay as they are.
        error = self._sample_error(error) if isinstance(error, OSError) else error
        self._give_up(error)
        return error

    def _give_up(self, error: BaseException) -> None:
        """Discard everything: after an interruption between tables and data, later samples would be damaged."""
        self._discard()
        interrupted = StateError(
            f"{self._path}: writing was interrupted after {plural(self.count, 'sample')}; everything was discarded"
        )
        # An error of the disk is repeated later, because it tells what to do.
        self._failure = error if isinstance(error, OSError) else interrupted

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Context manager that refuses other calls.

        Raises:
            StateError: another call is in progress.
        """
        claims: list[bool] = []
        try:
            while not claims:
                self._check_usable()
                self._claim(claims)  # it fails if another thread began after the check
            yield
        finally:
            if claims:
                self._unclaim()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Context manager inside `_alone` that gives up if the block raises."""
        try:
            yield
        except BaseException as error:
            self._give_up(error)
            raise

    def _sample_error(self, error: OSError) -> OSError:
        """Return the error of a failed write, which names the sample that was not written."""
        code = error.errno or errno.EIO
        sizes = self._sample_sizes
        ends = self._data_start + np.cumsum(sizes)
        back = self._failed_back
        # Written bytes that the disk refused begin at the last safe offset, others at the end of what was accepted.
        at = back[0] if back else self._written
        i = min(int(np.searchsorted(ends, at, side="right")), len(sizes) - 1)
        if back:
            last = min(int(np.searchsorted(ends, back[1])), len(sizes) - 1)
            return file_error(
                code, f"Samples {i} to {last} were not written back to the disk: {self._path}", self._path, call="fsync"
            )
        wrote = max(0, at - int(ends[i] - sizes[i]))
        sentence = f"Sample {i}: length {sizes[i]} but wrote {wrote} bytes: {self._path}"
        return file_error(code, sentence, self._path, call="pwrite")

    def write_many(self, samples: Any, /) -> None:
        # Lists are taken in C, without a call for each sample.
        if isinstance(samples, list | tuple):
            super().write_many(samples)
            return
        for data in iterator_of("samples", samples, "buffers"):
            self.write_one(data)

    write_many.__doc__ = Appender.write_many.__doc__

    def _type_error(self, error: TypeError) -> TypeError:
        return TypeError(f"{self._path}: sample {self.count}: {error}")

    def flush(self) -> None:
        """Make everything written so far durable: `ffrecord.recover` can restore it if this process is killed.

        Nothing is published. It costs two fsyncs, and 12 bytes for each sample in a file beside the temporary one. That
        file is removed when the writer closes or discards.

        Raises:
            RuntimeError (also ValueError): the writer is closed.
            RuntimeError (also AssertionError): it was called in the middle of a sample; the writer continues.
            OSError (also RuntimeError): it failed; the writer is closed, and nothing will be published.
        """
        if self._failure is not None:
            raise self._failure
        self._check_open()
        with self._alone():
            self._check_open()
            with self._all_or_nothing():
                self._drain()
                self._flush()

    def _check_open(self) -> None:
        if not self._open:
            raise ClosedError(f"{type(self).__name__} has been closed. {self._path}")

    def _flush(self) -> None:
        """Make the bytes that the kernel has durable, then record their samples in the journal."""
        known = self._journal.count
        # Nothing new since the last flush, so save two fsyncs.
        if self._journal.begun and known == self.count:
            return
        about = JournalHeader(os.path.basename(self._part.target), self._data_start, self._n, self._payload)
        try:
            # The samples must be durable before the journal names them.
            named_calls.fsync(self._part.fd)
            self._journal.note_samples(about, self._sample_sizes[known:], self._checksums[known:])
        except OSError as error:
            sentence = f"{self._path}: flushing {plural(self.count, 'sample')} failed"
            raise file_error(error.errno or errno.EIO, sentence, self._path) from None

    def close(self) -> None:
        """Complete the file and publish it under its name. You may call it again.

        Raises:
            RuntimeError (also ValueError): the number of samples written is not n; the writer stays open.
            RuntimeError (also AssertionError): it was called in the middle of a sample; the writer continues.
            OSError (also RuntimeError): nothing was published, unless the message says that only its durability is
                unknown.
                Later calls raise the same error.
        """
        if self._failure is not None:
            raise self._failure
        if not self._open:  # closing twice is no error for files either
            return
        with self._alone():
            if not self._open:
                return  # another thread has closed it meanwhile
            if self._n is not None and self.count != self._n:
                raise CountError(
                    f"Number of samples mismatched! Wrote {self.count} samples but expected {self._n}: {self._path}"
                )
            with self._all_or_nothing():
                # The thread has to be done before the size is looked at.
                self._drain()
                end = self._write_tables(self._written)
                self._check_size(end)
                # fsync, rename, fsync of the directory: only now the path changes.
                self._part.publish()
                self._discard()

    def _check_size(self, end: int) -> None:
        """Check that the size of the file is the size that its tables say, before it is published."""
        try:
            size = os.fstat(self._part.fd).st_size
        except OSError as error:
            sentence = f"{self._path}: comparing its size with its tables failed"
            raise file_error(error.errno or errno.EIO, sentence, self._path) from None
        if size != end:
            samples = plural(self.count, "sample")
            sentence = f"{self._path} has {plural(size, 'byte')} on the disk, but its {samples} end at {end}"
            raise file_error(errno.EIO, sentence, self._path)

    def _write_tables(self, end: int) -> int:
        """Write the tables, moving the samples if there is no room; return the final size of the file."""
        try:
            more = compute_missing_room(self.count, self._payload, self._data_start)
            if more:
                self._move(more, end)
                end += more
            offsets = compute_offsets(self._sample_sizes, self._data_start)
            write_tables(self._part.fd, self._checksums, offsets, self._payload, end)
        except OSError as error:
            sentence = f"{self._path}: writing the tables of {plural(self.count, 'sample')} failed"
            raise file_error(error.errno or errno.EIO, sentence, self._path) from None
        return end

    def _move(self, more: int, end: int) -> None:
        """Move the samples back, so that tables and block fit before them."""
        if self._journal.begun:
            # Samples that were not flushed must be in the journal too before bytes move.
            self._flush()
        moved = move_samples(self._part, self._journal, self._data_start, more, end)
        if moved is not self._part:
            # The old file stays until the new one is published: the journal still points to it.
            self._replaced, self._part = self._part, moved  # pyright: ignore[reportIncompatibleVariableOverride]
            self._keep(self._part, self._journal, self._replaced)
        self._data_start += more

    def _discard(self) -> None:
        """Discard everything that is not published."""
        if self._open:
            # The thread ends first; it writes to the descriptor.
            self._end()
            self._part.discard()
            # The rename is done, but perhaps not durable.
            if self._part.in_doubt:
                self._leave_flushed()
            else:
                self._remove_flushed()
            self._open = False  # last: if a signal interrupts the steps above, the next call repeats them

    def _remove_flushed(self) -> None:
        if self._replaced is not None:
            self._replaced.discard()
        # A forked child must not remove the parent's journal.
        if self._part.owned:
            self._journal.remove()

    def _leave_flushed(self) -> None:
        """Keep the journal for `recover`: if a crash undoes the rename, the part file is back under its old name."""
        if self._replaced is not None:
            self._replaced.leave()
        self._journal.close()

    def _leave(self) -> None:
        """Discard what is not published; while another thread is in the middle of a sample, refuse further ones.

        That thread uses the buffers and the descriptor, so they are discarded when it is done.
        """
        claims: list[bool] = []
        try:
            self._claim(claims)
            if claims:
                self._discard()
                return
        finally:
            if claims:
                self._unclaim()
        # The other thread notices it at its next sample.
        self._stop()
        self._failure = StateError(
            f"{self._path}: its `with` block ended while another thread was writing to it; everything was discarded"
        )

    def _describe_unfinished(self) -> tuple[str, str] | None:
        return (self._path, plural(self.count, "sample")) if getattr(self, "_open", False) else None

    def _drop(self, path: str, written: str) -> str | None:
        self._unclaim()  # a thread inside would keep the object alive, so the claim remains from an interruption
        # Incomplete, failed or another process's: nothing may be published.
        if not self._part.owned or self._n is None or self.count != self._n or self._failure is not None:
            return super()._drop(path, written)
        # Programs that forget to close lose nothing, as with 1.x. Publish before the warning, which may raise.
        try:
            self.close()
            outcome = "it was closed now"
        except OSError as error:
            outcome = f"nothing was published: {error}"
            log_loss(f"{path}: {outcome}")
        return f"{path}: the writer was complete, but nobody called close(); {outcome}"


def _check_name(fname: Any) -> str:
    path = path_text("fname", fname)
    if urls.is_remote(path):
        raise ArgumentError(
            f"{urls.redact(path)} is a URL, expected a path on this machine; DatasetWriter writes to URLs"
        )
    # A path that lost a slash in pathlib would put the file into a new directory; one named "s3:" may exist.
    if urls.is_mistaken(path) and not os.path.isdir(path.partition("/")[0]):
        raise urls.mistaken_url_error(path)
    if Path(path).suffix != ffr_layout.SUFFIX:
        raise ArgumentError(f"{path} does not end with {ffr_layout.SUFFIX}; give it such a name")
    return urls.local_path(path)
