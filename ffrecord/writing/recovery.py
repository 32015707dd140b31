"""Recovery of the flushed samples of a killed writer into a `.ffr` file."""

import contextlib
import errno
import os
import re
import stat
from typing import NamedTuple

import numpy as np

from ffrecord.errors import ArgumentError, ChecksumError, FormatError, file_error
from ffrecord.format import extension, ffr_layout, journal
from ffrecord.format.journal import Journal, JournalContent, journal_name
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.paths import local_path
from ffrecord.system import atomic_file, filesystems, named_calls, untrusted
from ffrecord.writing import file_writer
from ffrecord.writing._buffers import count_intact


class Recovered(NamedTuple):
    """Result of `recover`."""

    path: str  # path of the file
    samples: int  # number of its samples: the first ones that were written, in order
    bytes: int  # bytes of these samples
    dropped: int  # bytes written after them since the last flush: their samples are unknown
    damaged: int  # flushed samples whose bytes are missing; 0 unless the disk broke the promise of fsync


def recover(path: str | os.PathLike[str], *, replace: bool = False) -> Recovered:
    """Publish the samples that a killed `FileWriter` had flushed.

    The writer left `.NAME.<random>.part` and a journal beside it. Every flushed sample is compared with its CRC-32 and
    kept, up to the first that does not match. The file is then published in the same way as by `FileWriter.close`, and
    the leftovers are removed. If it is interrupted at any time, you may run it again: a file with exactly these samples
    counts as published by an earlier run, or by a writer that was killed after publishing it.

    Args:
        path: the path that the writer was given, or the path of the part file if there are several.
        replace: replace a file that has the name. Otherwise such a file is an error, and nothing changes.

    Raises:
        TypeError (also AssertionError): `path` is no path.
        FileNotFoundError: nothing that was flushed is left for this path.
        FileExistsError: another file has the name.
        PermissionError: the part file is a link, no regular file, or another user's. It was not touched.
        OSError (EBUSY): the writer lives, or another process recovers; OSError (EINVAL): several writers left
            something, the message names the part files; any other: it cannot be read or written.
        FormatError: the journal is damaged in its first bytes, names no `.ffr` file of its directory, or belongs to
            another part file.
        All OSErrors except that of a missing directory are RuntimeErrors, too.
    """
    given = local_path("path", path)
    is_part = given.endswith(atomic_file.PART_SUFFIX)
    part_path = given if is_part else _find(given)
    target = _read_target(given) if is_part else given
    # Locks it: a living writer, or another recovery, is an error here.
    part = atomic_file.PartFile(target, part_path, own=True)
    kept = Journal(part_path)
    try:
        noted = _read(part_path)  # read it again, now that the lock keeps others from writing
        kept = Journal(part_path, noted.size)
        # The path has everything already, so only the leftovers go.
        if _is_same_file(part.target, part.fd) or (not replace and _is_recovered(part, noted)):
            recovered = _describe_result(part, *_find_intact(part.fd, noted), noted)
        elif os.path.lexists(part.target) and not replace:
            # The samples are durable in the part file; the user decides about the other file.
            sentence = f"{part.target} already exists; pass replace=True to replace it by the samples of {part_path}"
            raise file_error(errno.EEXIST, sentence, part.target)
        else:
            recovered = _publish(part, kept, noted, replace)
        # The part file first: without a journal it would look like one of a writer that flushed nothing.
        part.remove()
        kept.remove()
    except OSError as error:
        # `file_error` makes errors that are both.
        if isinstance(error, RuntimeError):
            raise  # this error has a better message
        sentence = f"{part.target} was not recovered; {part_path} stays for another try"
        raise file_error(error.errno or errno.EIO, sentence, part.target) from None
    finally:
        kept.close()
        part.discard()
    # Only after success: a failure must leave everything for another try.
    _clear(part.target)
    return recovered


def _read(part: str) -> JournalContent:
    try:
        return journal.read(part)
    except FileNotFoundError:
        raise file_error(errno.ENOENT, f"{part}: there is no journal beside it, so nothing was flushed", part) from None


def _read_target(part: str) -> str:
    """Return the target that a journal names.

    A journal may come from anywhere, so only a `.ffr` file of its directory is valid.
    """
    name = _read(part).about.name
    if not untrusted.is_plain(name, ffr_layout.SUFFIX):
        raise FormatError(
            f"{journal_name(part)}: its file is {name[:200]!r}, expected a {ffr_layout.SUFFIX} file of its directory"
        )
    return os.path.join(os.path.dirname(part), name)


def _is_same_file(path: str, fd: int) -> bool:
    """Tell whether `path` is the part file itself: an earlier recovery was killed between its last steps."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path), os.fstat(fd))
    return False


def _is_recovered(part: atomic_file.PartFile, noted: JournalContent) -> bool:
    """Tell whether the target has everything already: a process was killed after publishing, before tidying up."""
    try:
        there = OpenedFile(part.target, check=True)
    except (OSError, FormatError, ChecksumError, ArgumentError):
        return False
    try:
        # The cheap comparison comes first.
        return _matches(there, noted) and _find_intact(part.fd, noted)[1] == there.n
    finally:
        there.close()


def _matches(there: OpenedFile, noted: JournalContent) -> bool:
    """Tell whether a file consists of the first noted samples."""
    sizes, checksums = noted.sizes[: there.n], noted.checksums[: there.n]
    # Sizes, not offsets: the recovered file may have its tables elsewhere.
    found = np.diff(there.offsets, append=there.size)
    same = np.array_equal(there.checksums, checksums) and np.array_equal(found, sizes)
    return same and count_intact(there.fd, there.data_start, sizes, checksums) == there.n


def _describe_result(part: atomic_file.PartFile, start: int, n: int, noted: JournalContent) -> Recovered:
    size = int(noted.sizes[:n].sum())
    # A file that was cut has fewer bytes than samples were noted.
    dropped = max(0, os.fstat(part.fd).st_size - start - size)
    return Recovered(part.target, n, size, dropped, len(noted.sizes) - n)


def _find(given: str) -> str:
    """Return the only part file with a journal."""
    target = filesystems.real_path(given)
    parts, damaged = [], ""
    for part in part_files(target):
        try:
            # Names of part files contain a shortened name, so the part file of another target may match.
            if journal.read(part).about.name == os.path.basename(target):
                parts.append(part)
        # The writer flushed nothing, or lives and has not flushed yet.
        except FileNotFoundError:
            continue
        # Another part file may still be fine, so look on.
        except FormatError as error:
            damaged += f"; {error}"
    if not parts:
        # The rest of dead writers is of no use to anybody.
        _clear(target)
        advice = "the file there is finished" if os.path.exists(target) else ""
        sentence = f"{given}: no killed writer left anything that was flushed{damaged}"
        raise file_error(errno.ENOENT, sentence, given, advice)
    if len(parts) > 1:
        raise file_error(
            errno.EINVAL, f"{given}: several killed writers left something; name one of {', '.join(parts)}", given
        )
    return parts[0]


def part_files(target: str) -> list[str]:
    """Return the part files of this name. If names are long, they include those of names that begin alike."""
    pattern, directory = _part_pattern(target), os.path.dirname(target)
    paths = [os.path.join(directory, name) for name in filesystems.list_names(directory)]
    return sorted(path for path in paths if pattern.fullmatch(path) and not _is_missing(path))


def _part_pattern(target: str) -> re.Pattern[str]:
    # 12 digits, as `part_name` draws them.
    return re.compile(re.escape(atomic_file.part_prefix(target)) + "[0-9a-f]{12}" + re.escape(atomic_file.PART_SUFFIX))


def _is_missing(path: str) -> bool:
    """Tell whether a path certainly does not exist; False if the disk cannot tell."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _publish(part: atomic_file.PartFile, kept: Journal, noted: JournalContent, replace: bool) -> Recovered:
    start, n = _find_intact(part.fd, noted)
    # A kill from here on leaves the part file and the journal, and `recover` begins again.
    recovered = _describe_result(part, start, n, noted)
    made, start, payload = _make_room(part, kept, noted, n, start, recovered.bytes)
    try:
        end = start + recovered.bytes
        # Bytes behind the last intact sample are of samples that nobody noted.
        named_calls.ftruncate(made.fd, end)
        # A writer killed in its last steps may have written tables already, possibly of more samples.
        atomic_file.write_zeros(made.fd, ffr_layout.tables_end(n), start)
        offsets = file_writer.compute_offsets(noted.sizes[:n], start)
        file_writer.write_tables(made.fd, noted.checksums[:n], offsets, payload, end)
        made.publish(replace=replace)
    finally:
        made.discard()  # `publish` has renamed it; otherwise a new file is removed, and `part` stays
    return recovered


def _find_intact(fd: int, noted: JournalContent) -> tuple[int, int]:
    """Return the offset of the samples, and the number of intact ones.

    A writer that was killed while moving the samples left them at either of two offsets.
    """
    size = os.fstat(fd).st_size
    # A journal may come from anywhere. An offset far beyond the end would write as many zeros.
    most = max(size, ffr_layout.BLOCK_MAX)
    starts = [start for start in dict.fromkeys(noted.starts) if ffr_layout.PREFIX.size <= start <= most]
    if not starts:
        said = f"its journal has samples from offset {noted.starts[-1]} on"  # a journal that was made up
        raise FormatError(f"{noted.about.name}: {said}, but its part file has {size} bytes")
    # Usually one of both places has all samples; after a kill in the middle, the better one.
    with named_calls.naming("pread"):
        found = [(count_intact(fd, start, noted.sizes, noted.checksums), start) for start in starts]
    n, start = max(found, key=lambda each: each[0])
    return start, n


def _make_room(
    part: atomic_file.PartFile, kept: Journal, noted: JournalContent, n: int, start: int, size: int
) -> tuple[atomic_file.PartFile, int, bytes | None]:
    """Make tables of n samples and a block fill the space before the samples exactly.

    Returns:
        The file, the offset of its first sample, and the payload of its block, None for no block.
    """
    payload = noted.about.payload
    # Written with n, and complete: the tables fit exactly.
    if start == ffr_layout.tables_end(n) and payload is None:
        return part, start, None
    payload = payload or b""
    # A file without a block has no meaning for a gap, so an empty block fills it.
    gap = start - ffr_layout.tables_end(n)
    least = extension.block_size(payload)
    # The block has to fit, and the format bounds its size.
    if least <= gap <= ffr_layout.BLOCK_MAX:
        return part, start, payload
    if noted.about.n is None:
        more = file_writer.compute_missing_room(n, payload, start)
        return file_writer.move_samples(part, kept, start, more, start + size), start + more, payload
    # The writer was made for more samples than there are: the gap is too small for a block, or too large.
    exact = noted.about.payload
    to = ffr_layout.tables_end(n) + (0 if exact is None else least)
    moved = atomic_file.PartFile(part.target)
    try:
        atomic_file.copy_range(part.fd, start, size, moved.fd, to)
    except BaseException:
        moved.discard()
        raise
    return moved, to, exact


def _clear(target: str) -> None:
    """Remove part files of dead writers that flushed nothing, and journals without a part file."""
    for part in part_files(target):
        # What cannot be removed is no error of the recovery.
        with contextlib.suppress(OSError):
            if not has_journal(part):
                atomic_file.PartFile(target, part, own=True).remove()
    journals = _lone_journals(target)
    with contextlib.suppress(OSError):
        if journals:
            # The part file of such a journal was published. Make that durable before the journal is removed.
            atomic_file.fsync_directory(os.path.dirname(target))
        for path in journals:
            # Another user's file of such a name is not ours to remove.
            if untrusted.is_ours(path):
                os.unlink(path)


def _lone_journals(target: str) -> list[str]:
    """Return the journals whose part file is gone."""
    pattern, directory = _part_pattern(target), os.path.dirname(target)
    paths = [
        os.path.join(directory, name) for name in filesystems.list_names(directory) if name.endswith(journal.SUFFIX)
    ]
    parts = [path.removesuffix(journal.SUFFIX) + atomic_file.PART_SUFFIX for path in paths]
    return [path for path, part in zip(paths, parts, strict=True) if pattern.fullmatch(part) and _is_missing(part)]


def has_journal(part: str) -> bool:
    """Tell whether something may have been flushed: a kill in the first flush leaves an empty journal."""
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(journal_name(part))
        # A link or another kind of file counts as something: then nothing is removed.
        return not stat.S_ISREG(status.st_mode) or status.st_size > 0
    return False
