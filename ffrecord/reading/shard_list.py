"""Opening of the `.ffr` files of a reader."""

import glob
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Set
from contextlib import ExitStack
from errno import EMFILE, ENFILE, ENOMEM
from itertools import chain, islice, pairwise
from typing import TypeVar

from ffrecord.errors import DAMAGE, FFRecordError, FormatError, add_place_to_memory_errors, file_error, plural
from ffrecord.format import manifest
from ffrecord.format.manifest import Shard
from ffrecord.reading import paths
from ffrecord.reading.ffr_file import OpenedFile, TableRoom
from ffrecord.system import filesystems, resources, urls

Found = TypeVar("Found")

HELD_MOST = 16  # directories of a source that are held while their files are opened
NUMBERED = re.compile(r"PART_([0-9]{5,18})\.ffr")  # a shard of DatasetWriter
SHOWN = 5  # most missing shards that the log names
TRIES = 30  # attempts to open a dataset that is being replaced: on a busy machine, 10 in a row failed

logger = logging.getLogger("ffrecord")


class MixedError(FormatError):
    """Error of files that come from two directories, of which one took the other's place."""


def repeat_while_replaced(
    fname: paths.Source, work: Callable[[], Found], undo: Callable[[Found], None] | None = None
) -> Found:
    """Return the result of `work`, which looks at the files of a source, and call it again, a few times, if another
    directory takes the place of one meanwhile, as by a link that leads elsewhere.

    Args:
        fname: see `FileReader`.
        work: fails, or gives a result, of a mixture of two directories. It raises MixedError if it knows of one.
        undo: function that releases a result, which is not to be of a mixture; None accepts what was found.

    Raises:
        The errors of `work`.
        FormatError: directories took each other's places at every attempt.
    """
    before: paths.Generation = {}
    for tries_left in reversed(range(TRIES)):
        try:
            before = paths.identify_directories(fname)
        except OSError:  # such as a working directory that was removed: `work` names the path itself
            return work()
        try:
            found = work()
        except MixedError:
            continue
        except (OSError, FFRecordError, ValueError):
            # The error may come from a replaced directory; if nothing was replaced, it is real.
            if not tries_left or paths.identify_directories(fname) == before:
                raise
            continue
        if undo is None or not before or paths.is_in_place(before):
            return found
        undo(found)
    raise FormatError(
        f"{next(iter(before))}: another directory took its place at each of {TRIES} attempts to open it: "
        "open it when it stays"
    )


def open_all(fname: paths.Source, *, check: bool, whole: bool) -> list[OpenedFile]:
    """Open the files of a source, in order. If there are too many, close the later ones again; their tables stay.

    If the files are looked for in a directory, all come from the same one: a link may lead elsewhere meanwhile, and
    another directory may take its place.

    Args:
        fname: see `FileReader`.
        check: compare the CRC-32 of tables.
        whole: map the whole of each file.

    Raises:
        The errors of `FileReader`; no file is left open.
    """
    return repeat_while_replaced(fname, lambda: _open_together(fname, check=check, whole=whole), _close_all)


def _open_together(fname: paths.Source, *, check: bool, whole: bool) -> list[OpenedFile]:
    """Open the files of a source, and check that those of a directory were all in it at one time.

    Raises:
        MixedError: another directory was in its place for a moment.
        The errors of `FileReader`.
    """
    given = [urls.local_path(path) for path in paths.check_types(fname)]
    if len(given) > HELD_MOST or all(map(os.path.isfile, given)):  # very many directories, or somebody named each file
        return _open_all(fname, check=check, whole=whole)
    with ExitStack() as stack:
        held = {}  # a descriptor stays with its directory, whatever its path leads to meanwhile
        for each in islice(paths.identify_directories(fname).values(), HELD_MOST):
            if each is not None:
                held[each[0]] = os.open(each[0], os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, held[each[0]])
        files = _open_all(fname, check=check, whole=whole)
        for path in given:
            if not glob.has_magic(path) and not os.path.isfile(path) and filesystems.real_path(path) not in held:
                _close_all(files)
                raise MixedError(f"{path} was away for a moment")
        for opened in files:
            directory, name = os.path.split(opened.path)
            if directory in held and not _is_same(opened, name, held[directory]):
                _close_all(files)
                raise MixedError(f"{opened.path} is not the file that its directory has")
        return files


def _is_same(opened: OpenedFile, name: str, directory: int) -> bool:
    """Tell whether a directory has this file, by this name."""
    try:
        status = os.stat(name, dir_fd=directory)
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == (opened.device, opened.inode)


def _close_all(files: Iterable[OpenedFile]) -> None:
    for opened in files:
        opened.close()


def _open_all(fname: paths.Source, *, check: bool, whole: bool) -> list[OpenedFile]:
    names, shards = paths.expand(fname, resolve=True)
    # Beyond this number, files are opened again when they are read.
    held_most = resources.descriptors()
    files: list[OpenedFile] = []
    room = TableRoom()
    try:
        for path in names:
            files.append(_open(path, files, room, check=check, whole=whole))
            if len(files) > held_most:
                # Its tables stay, since they are mapped or copied.
                files[-1].close()
        for opened, shard in zip(files, shards, strict=True):
            difference = "" if shard is None else _difference(opened, shard)
            if difference:
                raise FormatError(difference)
    except BaseException:
        _close_all(files)
        raise
    unlisted = {path for path, shard in zip(names, shards, strict=True) if shard is None}
    if unlisted:
        _warn_of_gaps(paths.check_types(fname), unlisted)
    return files


def _warn_of_gaps(given: Iterable[str], files: Set[str]) -> None:
    """Log the missing shards of each directory that is given. Whoever names files, or a pattern, may leave some out."""
    names_in: defaultdict[str, list[str]] = defaultdict(list)
    for directory, name in map(os.path.split, files):
        names_in[directory].append(name)
    for path in map(urls.local_path, given):
        # A list may have very many files: these need no look at the disk.
        if path not in files and os.path.isdir(path):
            directory = paths.resolve_directory(path).rstrip("/")
            _warn_of_gap(directory, names_in.pop(directory, ()))


def _warn_of_gap(directory: str, names: Iterable[str]) -> None:
    """Log the numbers that are missing between the shards of a directory without dataset.json."""
    found = map(NUMBERED.fullmatch, names)
    numbers = sorted(int(each[1]) for each in found if each)
    missing = sum(after - number - 1 for number, after in pairwise(numbers))
    if missing:
        gaps = chain.from_iterable(range(number + 1, after) for number, after in pairwise(numbers))
        shown = ", ".join(f"PART_{number:05d}.ffr" for number in islice(gaps, SHOWN))
        more = f" and {missing - SHOWN} more" if missing > SHOWN else ""
        said = "%s: it lacks %s%s between its shards, and has no %s that says if they are missing"
        logger.warning(said, directory, shown, more, manifest.NAME, extra=DAMAGE)


def _open(path: str, files: list[OpenedFile], room: TableRoom, *, check: bool, whole: bool) -> OpenedFile:
    try:
        with add_place_to_memory_errors(lambda: path):
            return OpenedFile(path, check=check, whole=whole, room=room)
    except OSError as error:
        # mmap(2) says ENOMEM also if the process has too many mappings.
        if error.errno == ENOMEM:
            sentence = f"{path}: mapping it failed, as file {len(files) + 1} of this reader; a process may have "
            sentence += f"{resources.mappings() * resources.MAPPINGS_SHARE} mappings (vm.max_map_count)"
            advice = "pass another io than 'mmap', which maps each file" if whole else "raise vm.max_map_count"
            raise file_error(ENOMEM, sentence, path, advice) from None
        if error.errno not in (EMFILE, ENFILE):
            raise
        # Other readers use up the descriptors. Close all files of this one; it opens them again when it reads them.
        for opened in files:
            opened.close()
        return OpenedFile(path, check=check, whole=whole, room=room)


def difference(path: str, shard: Shard) -> str:
    """Return how a file differs from its entry in dataset.json; "" if it does not.

    Raises:
        OSError, FormatError, ChecksumError: it cannot be opened.
    """
    paths.check_file(path)
    opened = OpenedFile(path, check=True)
    try:
        return _difference(opened, shard)
    finally:
        opened.close()


def _difference(opened: OpenedFile, shard: Shard) -> str:
    found, listed = (opened.n, opened.size, opened.crc), (shard.samples, shard.size, shard.crc)
    if found == listed:
        return ""
    if found[::2] == listed[::2]:  # the header is the same, so only the end differs
        if opened.size < shard.size:
            return f"{opened.path} was cut: it has {opened.size} of {shard.size} bytes; copy it again"
        more = plural(opened.size - shard.size, "byte")
        return f"{opened.path} has {more} more than the {shard.size} that were written; copy it again"
    what = f"is not the shard that {manifest.NAME} lists, but another one or an old copy"
    return f"{opened.path} {what}: (samples, size, CRC-32 of tables) are {found}, listed are {listed}"
