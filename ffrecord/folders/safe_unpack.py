"""Unpack files of archives into a new directory, and nowhere else, whatever their names are."""

import contextlib
import errno
import io
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

from ffrecord.errors import ArgumentError, FormatError, file_error
from ffrecord.reading.paths import PathLike, local_path
from ffrecord.system import atomic_directory, filesystems, named_calls
from ffrecord.system.atomic_file import remove_tree
from ffrecord.system.sizes import parse_limit

AT_ONCE = 8 << 20  # bytes of small files read in one batch
FILES_AT_ONCE = 1024
PIECE = 4 << 20  # bytes written at a time
STREAMED = 4 << 20  # bytes; files of more are not read whole
DEPTH_MAX = 255  # directories above a file
NAME_SHOWN = 200  # characters of a name in a message
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class UnpackedFiles(NamedTuple):
    """The result of unpacking.

    Attributes:
        path: path of the directory.
        files: number of files.
        size: size of all of them, bytes.
    """

    path: str
    files: int
    size: int


def safe_parts(name: str) -> list[str]:
    """Return the directories and the file in a name, which is then below any target.

    Raises:
        FormatError: the name is absolute or empty, or has "..", a drive letter or NUL.
    """
    # "a//b" and "./a/b" are the same file.
    parts = [part for part in name.split("/") if part not in ("", ".")]
    wrong = None
    # Windows takes a backslash for a separator; an archive may come from there.
    if name.startswith(("/", "\\")):
        wrong = "it is absolute"
    elif ".." in name.replace("\\", "/").split("/"):
        wrong = "it has '..'"
    # A drive letter: Windows would leave the directory.
    elif name[1:2] == ":" and name[0].isascii() and name[0].isalpha():
        wrong = "it begins with a drive letter"
    elif "\0" in name:
        wrong = "it has a NUL"
    elif not parts:
        wrong = "it names no file"
    elif len(parts) > DEPTH_MAX:
        wrong = f"it is {len(parts)} directories deep, expected at most {DEPTH_MAX}"
    if wrong:
        raise FormatError(f"{name[:NAME_SHOWN]!r} cannot be the name of a file below a directory: {wrong}")
    return parts


def _safe_parts_of(name: str, label: str) -> list[str]:
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

    They are written to a directory of a random name beside the target, which is renamed when all are there. Every name
    is checked before anything is written. Then each directory and file is created, never opened, from the descriptor of
    the directory above it, so no link leads away. They get the usual modes, and the current time.

    Args:
        files: (name, bytes, key for `read` and `open_one`) of each. If several names are the same path, the last one
            counts.
        folders: names of directories to create, too.
        read: function that returns the contents of several keys as buffers, with the sizes stated.
        open_one: function that opens one key as a file object, used for large files; None: they are read whole.
        target: path of the directory, missing or empty; its parent exists.
        label: name of the archive for messages.
        max_size: largest total size, bytes or text such as "10GB"; >= 0.
        on_file: called after each file with (number of files written, number of all files).

    Raises:
        FormatError: a name leads elsewhere, see `safe_parts`; or more than `max_size` bytes.
        FileExistsError: `target` exists and is no empty directory; or two names are the same on this file system, as
            "a" and "A" are on some; or a file is in the place of a directory.
        FileNotFoundError: the parent directory of `target`.
        ArgumentError: `target` is a symbolic link; `max_size` is negative.
        OSError (also a RuntimeError): a file cannot be made or written; others: what reading raises. Nothing is left in
            any case but a kill, after which a directory `.<name>.<random>.unpacking` stays.
    """
    most = parse_limit("max_size", max_size, least=0)
    # If several names are the same path, as "a" and "./a" are, the last one counts.
    # Checked before anything is written: one bad name, and nothing is unpacked.
    by_place = {tuple(_safe_parts_of(file[0], label)): file for file in files}
    places, files = [list(parts) for parts in by_place], list(by_place.values())
    total = sum(size for _, size, _ in files)
    # By the sizes that the archive states; `_write` compares them with the content.
    if most is not None and total > most:
        raise FormatError(
            f"{label}: its {len(files)} files have {total} bytes, expected at most {most}; pass a larger max_size"
        )
    # Without ".", which tar uses for the directory itself.
    directories = [_safe_parts_of(name, label) for name in folders if name.strip("/") != "."]
    path = filesystems.absolute_path(local_path("folder", target))
    _check_target(path)
    # 100 bytes, so that the rest of the temporary name fits NAME_MAX.
    base = os.fsdecode(os.fsencode(os.path.basename(path))[:100])
    temporary = os.path.join(os.path.dirname(path), f".{base}.{secrets.token_hex(6)}.unpacking")
    try:
        named_calls.mkdir(temporary)
    except OSError as error:
        raise file_error(
            error.errno or errno.EIO, f"{path}: a directory beside it could not be created", path
        ) from None
    try:
        with _Directories(temporary, path) as made:
            for parts in directories:
                made.descriptor(parts)
            contents = _read_contents(files, read, total if open_one is None else STREAMED)
            for done, (place, data) in enumerate(contents, 1):
                name, size, key = files[place]
                # Only large files are streamed; the others have come in a batch.
                with _open_source(data, open_one, key) as source:
                    _write(made, places[place], name, size, source, path)
                if on_file is not None:
                    on_file(done, len(files))
        atomic_directory.publish(temporary, path)
    # Also on Ctrl-C: all or nothing.
    except BaseException:
        remove_tree(temporary)
        raise
    return UnpackedFiles(path, len(files), total)


def _check_target(path: str) -> None:
    # Following it, somebody else could choose the directory.
    if os.path.islink(path):
        raise ArgumentError(f"{path} is a symbolic link, expected an empty directory, or nothing")
    if os.path.lexists(path) and (not os.path.isdir(path) or filesystems.list_names(path)):
        raise FileExistsError(
            errno.EEXIST, "the target is not an empty directory; delete it, or name another directory", path
        )
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        raise FileNotFoundError(errno.ENOENT, "the directory of the target does not exist", parent)


def _read_contents(
    files: Sequence[tuple[str, int, Any]], read: Callable[[list[Any]], Sequence[Any]], most: int
) -> Iterator[tuple[int, Any]]:
    """Yield (place in `files`, content) of each, read in batches; None as the content of a file of more than `most`
    bytes.
    """
    batch: list[int] = []
    size = 0
    for place, (_, length, _) in enumerate(files):
        # Too large to be in memory as a whole.
        if length > most:
            yield place, None
            continue
        batch.append(place)
        size += length
        if size >= AT_ONCE or len(batch) == FILES_AT_ONCE:
            yield from zip(batch, read([files[each][2] for each in batch]), strict=True)
            batch, size = [], 0
    yield from zip(batch, read([files[each][2] for each in batch]), strict=True)


def _open_source(data: Any, open_one: Callable[[Any], BinaryIO] | None, key: Any) -> BinaryIO:
    if data is None and open_one is not None:
        return open_one(key)
    return io.BytesIO(data)  # pyright: ignore[reportArgumentType]  # without `open_one` there are data


def _write(made: "_Directories", parts: list[str], name: str, size: int, source: BinaryIO, target: str) -> None:
    try:
        # O_EXCL by the descriptor of a directory that was created here: no link can lead away.
        fd = os.open(parts[-1], NEW_FILE, 0o666, dir_fd=made.descriptor(parts[:-1]))
    except OSError as error:
        raise _name_error(error, name, target) from None
    # No buffer: pieces are large, and errors belong to the write that failed.
    with open(fd, "wb", buffering=0) as file:
        while piece := source.read(PIECE):
            view = memoryview(piece)
            try:
                # A write may take fewer bytes, on a full disk for instance.
                while len(view):
                    view = view[file.write(view) :]
            except OSError as error:
                raise file_error(error.errno or errno.EIO, f"{target}: {name!r} could not be written", target) from None
        written = file.tell()
    # A bomb: the content is longer than the archive says.
    if written != size:
        raise FormatError(f"{name!r} has {written} bytes of content, expected {size}")


class _Directories:
    """Directories below one, created as they are needed; those on the way to the last one stay open.

    Args:
        path: path of the directory.
        target: its final path, for messages.
    """

    def __init__(self, path: str, target: str) -> None:
        self._target = target
        self._parts: list[str] = []
        self._fds = [os.open(path, DIRECTORY)]

    def __enter__(self) -> "_Directories":
        return self

    def __exit__(self, *_: object) -> None:
        self._go_up(-1)

    def descriptor(self, parts: list[str]) -> int:
        """Return the descriptor of the directory at `parts`; create it and those above it if they are missing."""
        same = 0
        # Archives list files of one directory together, so most of the way is open already.
        while same < min(len(parts), len(self._parts)) and parts[same] == self._parts[same]:
            same += 1
        self._go_up(same)
        for part in parts[same:]:
            try:
                # It may exist from an earlier name; `open` refuses a link or a file in its place.
                with contextlib.suppress(FileExistsError):
                    named_calls.mkdir(part, directory=self._fds[-1])
                self._fds.append(os.open(part, DIRECTORY, dir_fd=self._fds[-1]))
            except OSError as error:
                raise _name_error(error, "/".join(parts), self._target) from None
            self._parts.append(part)
        return self._fds[-1]

    def _go_up(self, depth: int) -> None:
        """Keep the first `depth` directories below the top; -1 closes the top too."""
        while len(self._fds) > depth + 1:
            os.close(self._fds.pop())
        del self._parts[max(depth, 0) :]


def _name_error(error: OSError, name: str, target: str) -> OSError:
    """Return the error with the name that could not be created; a clash of names becomes FileExistsError."""
    shown = repr(name[:NAME_SHOWN]) + ("…" if len(name) > NAME_SHOWN else "")
    # All of these come from another name at this place.
    if error.errno in (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR):
        sentence = f"{shown}: two names are the same on this file system, or one is a directory of the other"
        return file_error(errno.EEXIST, sentence, name)
    return file_error(error.errno or errno.EIO, f"{shown} could not be created below {target}", name)
