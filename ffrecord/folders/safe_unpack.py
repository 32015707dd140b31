"""Files of archives written to a new directory, and nowhere else, whatever their names are."""

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.reading.paths import PathLike, local_path
from ffrecord.system import atomic_directory, filesystems
from ffrecord.system.atomic_file import remove_tree
from ffrecord.system.sizes import parse_limit

AT_ONCE = 8 << 20  # bytes of small files read in one batch
FILES_AT_ONCE = 1024
PIECE = 4 << 20  # bytes written at a time
STREAMED = 4 << 20  # bytes; files of more are not read whole
DEPTH_MAX = 255  # directories above a file
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnpackedFiles(NamedTuple):
    """What was written.

    Attributes:
        path: the directory.
        files: how many.
        size: bytes of all of them.
    """

    path: str
    files: int
    size: int


def safe_parts(name: str) -> list[str]:
    """The directories and the file of a name, below any target.

    Raises:
        FormatError: it is absolute, has "..", a drive letter or NUL, or leads nowhere.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    wrong = None
    if name.startswith(("/", "\\")):
        wrong = "it is absolute"
    elif ".." in name.replace("\\", "/").split("/"):
        wrong = "it has '..'"
    elif name[1:2] == ":" and name[0].isascii() and name[0].isalpha():
        wrong = "it begins with a drive letter"
    elif "\0" in name:
        wrong = "it has a NUL"
    elif not parts:
        wrong = "it is of no file"
    elif len(parts) > DEPTH_MAX:
        wrong = f"it is {len(parts)} directories deep, expected at most {DEPTH_MAX}"
    if wrong:
        raise FormatError(f"{name!r} cannot be the name of a file below a directory: {wrong}")
    return parts


def _parts(name: str, label: str) -> list[str]:
    try:
        return safe_parts(name)
    except FormatError as error:
        raise FormatError(f"{label}: {error}") from None


def unpack_files(
    files: Sequence[tuple[str, int, Any]],
    folders: Iterable[str],
    read: Callable[[list[Any]], Sequence[Any]],
    open_one: Callable[[Any], BinaryIO] | None,
    target: PathLike,
    *,
    label: str,
    max_size: int | str | None = None,
    on_file: Callable[[int, int], object] | None = None,
) -> UnpackedFiles:
    """Write files as files of a new directory; all of them or none.

    They are written to a directory beside it, of a random name, which is renamed when all are there. Every name is
    looked at before anything is written; then each directory and file is made, not opened if it is there, and found
    from the descriptor of the directory above, so no link leads away. They get the usual modes, and the time of now.

    Args:
        files: (name, bytes, what `read` and `open_one` know it by) of each. Of several names that are the same path
            the last one counts.
        folders: names of directories to be made, too.
        read: the contents of several, as buffers, of the sizes stated.
        open_one: one as a file object, which is what large files are read by; None: they are read whole.
        target: the directory, missing or empty; its parent is there.
        label: what messages call the archive.
        max_size: refuse what is more than this in all, bytes or text such as "10GB"; >= 0.
        on_file: called after each file with how many are written, and how many there are.

    Raises:
        FormatError: a name that leads elsewhere, see `safe_parts`; or more than `max_size` bytes.
        FileExistsError: `target` is there and not an empty directory; or two names are the same on this file system,
            as "a" and "A" are on some; or one file is where another one needs a directory.
        FileNotFoundError: the directory that `target` is to be in.
        ArgumentError: `target` is a symbolic link; `max_size` is negative.
        what reading raises, and OSError. Nothing is left in any case but a kill, after which a directory
            `.<name>.<random>.unpacking` is.
    """
    most = parse_limit("max_size", max_size, least=0)
    # Of several names of the same path, as "a" and "./a" are, the last one.
    by_place = {tuple(_parts(file[0], label)): file for file in files}
    places, files = [list(parts) for parts in by_place], list(by_place.values())
    total = sum(size for _, size, _ in files)
    if most is not None and total > most:
        raise FormatError(f"{label}: {len(files)} files of {total} bytes, expected at most {most} (max_size)")
    # As tar names the directory itself.
    directories = [_parts(name, label) for name in folders if name.strip("/") != "."]
    path = filesystems.absolute_path(local_path("folder", target))
    _check_target(path)
    base = os.fsdecode(os.fsencode(os.path.basename(path))[:100])
    temporary = os.path.join(os.path.dirname(path), f".{base}.{secrets.token_hex(6)}.unpacking")
    try:
        os.mkdir(temporary)
    except OSError as error:
        raise OSError(error.errno, f"{os.strerror(error.errno or 0)}, making a directory beside it", path) from None
    try:
        with _Directories(temporary) as made:
            for parts in directories:
                made.descriptor(parts)
            contents = _contents(files, read, total if open_one is None else STREAMED)
            for done, (place, data) in enumerate(contents, 1):
                name, size, key = files[place]
                with _source(data, open_one, key) as source:
                    _write(made, places[place], name, size, source, path)
                if on_file is not None:
                    on_file(done, len(files))
        atomic_directory.publish(temporary, path)
    except BaseException:
        remove_tree(temporary)
        raise
    return UnpackedFiles(path, len(files), total)


def _check_target(path: str) -> None:
    if os.path.islink(path):
        raise ArgumentError(f"{path}: the target is a symbolic link, expected a directory or nothing")
    if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise FileExistsError(errno.EEXIST, "the target is there, and not an empty directory", path)
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        raise FileNotFoundError(errno.ENOENT, "no such directory, and the target is to be in it", parent)


def _contents(
    files: Sequence[tuple[str, int, Any]], read: Callable[[list[Any]], Sequence[Any]], most: int
) -> Iterator[tuple[int, Any]]:
    """(place in `files`, content) of each, batches of them read together; None of one of more than `most` bytes."""
    batch: list[int] = []
    size = 0
    for place, (_, length, _) in enumerate(files):
        if length > most:
            yield place, None
            continue
        batch.append(place)
        size += length
        if size >= AT_ONCE or len(batch) == FILES_AT_ONCE:
            yield from zip(batch, read([files[each][2] for each in batch]), strict=True)
            batch, size = [], 0
    yield from zip(batch, read([files[each][2] for each in batch]), strict=True)


def _source(data: Any, open_one: Callable[[Any], BinaryIO] | None, key: Any) -> BinaryIO:
    if data is None and open_one is not None:
        return open_one(key)
    return io.BytesIO(data)  # pyright: ignore[reportArgumentType]  # without `open_one` there are data


def _write(made: "_Directories", parts: list[str], name: str, size: int, source: BinaryIO, target: str) -> None:
    try:
        fd = os.open(parts[-1], NEW_FILE, 0o666, dir_fd=made.descriptor(parts[:-1]))
    except OSError as error:
        raise _named(error, name) from None
    with open(fd, "wb", buffering=0) as file:
        while piece := source.read(PIECE):
            view = memoryview(piece)
            try:
                while len(view):
                    view = view[file.write(view) :]
            except OSError as error:
                raise OSError(error.errno, f"{os.strerror(error.errno or 0)}, writing {name!r}", target) from None
        written = file.tell()
    if written != size:
        raise FormatError(f"{name!r}: {written} bytes of content, expected {size}")


class _Directories:
    """Directories below one, made as they are needed; those on the way to the last one asked for stay open."""

    def __init__(self, path: str) -> None:
        self._parts: list[str] = []
        self._fds = [os.open(path, DIRECTORY)]

    def __enter__(self) -> "_Directories":
        return self

    def __exit__(self, *_: object) -> None:
        self._go_up(-1)

    def descriptor(self, parts: list[str]) -> int:
        """Of the directory at `parts`; it and those above it are made unless they are there."""
        same = 0
        while same < min(len(parts), len(self._parts)) and parts[same] == self._parts[same]:
            same += 1
        self._go_up(same)
        for part in parts[same:]:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=self._fds[-1])
                self._fds.append(os.open(part, DIRECTORY, dir_fd=self._fds[-1]))
            except OSError as error:
                raise _named(error, "/".join(parts)) from None
            self._parts.append(part)
        return self._fds[-1]

    def _go_up(self, depth: int) -> None:
        """Keep the first `depth` directories below the top; the top itself unless that is -1."""
        while len(self._fds) > depth + 1:
            os.close(self._fds.pop())
        del self._parts[max(depth, 0) :]


def _named(error: OSError, name: str) -> OSError:
    """The error with the name that could not be made; of a file where a directory is needed, that it is there."""
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
        return FileExistsError(errno.EEXIST, "two names are the same on this file system, or lie in each other", name)
    return OSError(error.errno, f"{os.strerror(error.errno or 0)}, making it", name)
