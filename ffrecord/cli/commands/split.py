"""`ffrecord split`: divide a dataset, such as into training and validation; every sample goes to one part."""

import argparse
import contextlib
import itertools
import math
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from errno import EEXIST, EIO
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ffrecord.cli.sources import add_source, local_path_of, refuse_inside, seed_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_writing, conclude, indexed, options_of, told_apart, write_some
from ffrecord.conversion.input import Given
from ffrecord.dataset_writer import Summary
from ffrecord.dataset_writer import publish as publishing
from ffrecord.dataset_writer.resume import indices_fingerprint
from ffrecord.dataset_writer.shards import check_whole
from ffrecord.dataset_writer.write_log import differences
from ffrecord.errors import ArgumentError, FFRecordError, MismatchError, add_note, file_error, plural
from ffrecord.format import manifest
from ffrecord.format.leftovers import FINISHED
from ffrecord.order import Random
from ffrecord.system import atomic_directory, filesystems, untrusted
from ffrecord.system.atomic_file import PART_SUFFIX, fsync_directory
from ffrecord.system.locked_directory import LockedDirectory
from ffrecord.system.untrusted import Refused

STATE = "part.json"
STATE_MAX = 16 << 20  # bytes

Request = dict[str, Any]


class SplitState(msgspec.Struct, frozen=True):
    """The notes on a part.

    Attributes:
        request: what was asked for; None for nothing, or nothing that can be read.
        summary: of the part, once it is complete.
        fingerprint: of its manifest, then.
    """

    request: Request | None = None
    summary: Summary | None = None
    fingerprint: str | None = None


class SplitPart:
    """One of them, for `with`.

    Args:
        path: of the dataset, as given.
        restart: whether to discard what an interrupted split has left.

    Attributes:
        target: the real path.
        summary: of the dataset, once it is complete.
        settled: whether nothing of it is to be done any more, nor undone; else what is noted stays at the end.
    """

    def __init__(self, path: str, *, restart: bool = False) -> None:
        self.path, self._restart = path, restart
        self.target = filesystems.real_path(path)
        parent, self._name = os.path.split(self.target)
        if os.path.ismount(self.target) or self.target == filesystems.working_directory():
            raise ArgumentError(f"{path}: nothing can take the place of this directory; name a new one in it")
        self.hidden = os.path.join(parent, f".{self._name}.split")
        self._written = os.path.join(self.hidden, self._name)
        self.summary: Summary | None = None
        self.settled = False

    def check_begun(self) -> None:
        """Raise FileExistsError if something is at the final name that no interrupted split has put there."""
        if self._is_taken() and not os.path.lexists(self.hidden):
            raise self._taken()

    def __enter__(self) -> "SplitPart":
        """Make the hidden directory, or take over what is there.

        Raises:
            OSError: it cannot be had; BlockingIOError: somebody else writes it. Names the part.
        """
        try:
            self._own = LockedDirectory(self.hidden)
        except BlockingIOError as error:
            raise OSError(error.errno, "another process splits into it", self.path) from None
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from None
        if self._restart:
            for name in self._own.names():
                self._own.remove(name)
        return self

    def begin(self, request: Request) -> None:
        """Take note of what is asked for; find out what is complete of it, and still whole.

        Raises:
            MismatchError: an interrupted split has something of another request.
            FileExistsError: something is at the final name.
            FormatError, ChecksumError: that has put it there, and it is damaged.
        """
        state = self._state()
        found = differences(state.request, request)
        if state.request is not None and found and self._of_use():
            told = f"{self.hidden} has what an interrupted split has finished that was asked for something else"
            raise MismatchError(f"{self.path}: {told}; --restart discards it", found)
        self.check_vacant()
        if state.summary and not found and self._is_whole(state.fingerprint):
            self.summary = replace(state.summary, path=self.path)
        else:
            self._own.remove(self._name)  # complete, but not noted: it cannot be told from what it should be
            self._note(SplitState(request))

    def _is_whole(self, fingerprint: str | None) -> bool:
        """Whether it is there, to the last byte what it was.

        Raises:
            FFRecordError, OSError: it is not, and cannot be written again since it was published.
        """
        if self.published:
            _check_place(self.target)
            return True
        self._own.check()
        with contextlib.suppress(FFRecordError, OSError, ValueError):
            if self._is_own() and publishing.fingerprint(self._written) == fingerprint:
                _check_place(self._written)
                return True
        return False

    def _is_own(self) -> bool:
        """Whether what is hidden is a directory of regular files of this user: a link is not to be published."""
        if not self._own.has_directory(self._name):
            return False
        with untrusted.enter_directory(self._name, directory=self._own.fd) as fd:
            return all(untrusted.is_own(name, directory=fd, owner=self._own.owner) for name in os.listdir(fd))

    @property
    def published(self) -> bool:
        """Whether it is under its final name, for sure."""
        noted = self._state().fingerprint
        there = noted is not None and not self._own.holds(self._name)
        return there and publishing.fingerprint(self.target) == noted

    def check_vacant(self) -> None:
        """Raise FileExistsError if something is at the final name, unless this has put it there."""
        if self._is_taken() and not self.published:
            raise self._taken()

    def _is_taken(self) -> bool:
        return os.path.lexists(self.target) and (not os.path.isdir(self.target) or bool(os.listdir(self.target)))

    def _taken(self) -> FileExistsError:
        return FileExistsError(EEXIST, "there is something, expected a new directory", self.path)

    def write(self, make: Callable[[str], Summary]) -> None:
        """Have the dataset made, at a path that `make` gets, unless it is complete."""
        if self.summary is None:
            self._own.check()
            made = make(self._written)
            self._own.check()
            summary = replace(made, path=self.path)
            self._note(SplitState(self._state().request, summary, publishing.fingerprint(self._written)))
            self.summary = summary

    def publish(self) -> None:
        """Give it its final name."""
        atomic_directory.replace(self._name, self.target, self._own.fd)

    def take_back(self) -> None:
        """Undo that, if it happened."""
        if self.published:
            os.rename(self.target, self._name, dst_dir_fd=self._own.fd)

    def _state(self) -> SplitState:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self._own.read(STATE, STATE_MAX), type=SplitState)
        return SplitState()

    def _note(self, state: SplitState) -> None:
        self._own.write(STATE, msgspec.json.encode(state))

    def _of_use(self) -> bool:
        """Whether something is finished: the part, or shards of it; not what a killed process leaves besides."""
        names, begun = self._own.names(), f".{self._name}{PART_SUFFIX}"
        if self._name in names:
            return True
        with contextlib.suppress(FileNotFoundError, Refused), contextlib.ExitStack() as stack:
            part = stack.enter_context(untrusted.enter_directory(begun, directory=self._own.fd))
            return bool(os.listdir(stack.enter_context(untrusted.enter_directory(FINISHED, directory=part))))
        return False

    def __exit__(self, *_: object) -> None:
        """Remove what is of no use, and let others have the rest."""
        with contextlib.suppress(OSError):
            if self.settled or not (self._of_use() or self.published):
                self._own.discard()
        self._own.close()


def _check_place(directory: str) -> None:
    """Raise what is wrong with a dataset."""
    listed = manifest.load(directory)
    for shard in listed.shards if listed is not None else []:
        check_whole(directory, shard)


def publish(parts: Sequence[SplitPart]) -> None:
    """Give all of them their final names, or none.

    Raises:
        OSError: refused; those that were published are hidden again, unless it says which are not. Or all are in place,
            and it says so.
    """
    for part in parts:
        part.check_vacant()
    try:
        for part in parts:
            if not part.published:
                part.publish()
    except BaseException as error:
        _take_back(parts, error)
        raise
    try:
        for directory in {os.path.dirname(part.target) for part in parts}:
            fsync_directory(directory)
    except OSError as error:
        sentence = "all parts are in place, but fsync of a directory failed and a crash may undo it"
        raise file_error(error.errno or EIO, f"{parts[0].path}: {sentence}", parts[0].path) from None
    for part in parts:
        part.settled = True


def _take_back(parts: Sequence[SplitPart], cause: BaseException) -> None:
    """Hide all of them; which ones cannot be is added to what has failed first."""
    for part in reversed(parts):
        try:
            part.take_back()
        except OSError as error:
            add_note(cause, f"{part.path} could not be taken back ({error.strerror})")


EXAMPLES = """\
examples:
  ffrecord split data/all data/train=0.9 data/val=0.1  # by chance, seed 0
  ffrecord split data/all data/train=50000 data/val=rest --in-order"""


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH, parts, and a seed."""
    parser.epilog = EXAMPLES
    add_source(parser)
    help = "a new directory, and its share of the samples (0.1), their number (5000), or what is left (rest)"
    parser.add_argument("parts", metavar="OUT=SHARE", nargs="+", type=_part, help=help)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--seed", type=seed_of, default=0, metavar="N", help="of the chance by which samples are chosen (default: 0)"
    )
    which.add_argument("--in-order", action="store_true", help="the first samples to the first part, and so on")
    add_writing(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the parts; within each, samples keep their order."""
    _check(given.parts)
    refuse_inside([given.source], *(path for path, _ in given.parts))
    with indexed(given.source, given.format) as found, ExitStack() as stack:
        chosen = choose(given, len(found.dataset))
        parts = [SplitPart(path, restart=given.restart) for path, _ in given.parts]
        for part in parts:
            part.check_begun()  # before directories are made for any of them
        for part in parts:
            stack.enter_context(part)
        for part, indices in zip(parts, chosen, strict=True):
            part.begin(_request(given, found, indices))
        try:
            for part, indices in zip(parts, chosen, strict=True):
                part.write(lambda path, wanted=indices: write_some(found, path, wanted, options_of(given, out)))  # type: ignore[misc]
            publish(parts)
        except BaseException as error:
            _tell(parts, error)
            raise
    for part, indices in zip(parts, chosen, strict=True):
        if not len(indices):
            out.remark(f"ffrecord split: {part.path} has no samples")
    conclude([part.summary for part in parts if part.summary is not None], out)
    return exit_codes.DONE


def choose(given: argparse.Namespace, n: int) -> list[npt.NDArray[np.int64]]:
    """Indices of each part, ascending."""
    order = np.arange(n) if given.in_order else Random().indices(np.arange(n), n, given.seed, 0)
    return [np.sort(each) for each in np.split(order, np.cumsum(sizes(given.parts, n))[:-1])]


def _request(given: argparse.Namespace, found: Given, indices: npt.NDArray[np.int64]) -> dict[str, Any]:
    """What makes a part the one that it is."""
    cuts = {name: getattr(given, name) for name in ("shard_size", "samples_per_shard", "num_shards")}
    return {"samples": len(indices), "indices": indices_fingerprint(indices), "source": told_apart(found), **cuts}


def _tell(parts: list[SplitPart], error: BaseException) -> None:
    """Add to an error what stays."""
    published = [part.path for part in parts if part.published]
    hidden = [part.path for part in parts if part.summary is not None and part.path not in published]
    said = f"published: {', '.join(published)}" if published else "nothing was published"
    if hidden:
        said += f"; what is complete stays hidden ({', '.join(hidden)})"
    if published or hidden:
        discards = "" if published else ", and --restart discards it"
        add_note(error, f"{said}: the same call goes on from there{discards}")


def sizes(parts: list[tuple[str, float | int | None]], n: int) -> list[int]:
    """Samples of each part: [len(parts)], of n in all; of a share less than one more or fewer than it is of n.

    Raises:
        ArgumentError: they ask for more or for fewer.
    """
    shared = iter(_of_shares([share for _, share in parts if isinstance(share, float)], n))
    counts = [next(shared) if isinstance(share, float) else share for _, share in parts]
    known = sum(count for count in counts if count is not None)
    if None in counts:
        if known > n:
            raise ArgumentError(f"the parts ask for {plural(known, 'sample')}, and there are {n}")
        return [n - known if count is None else count for count in counts]
    if known != n:
        raise ArgumentError(
            f"the parts ask for {plural(known, 'sample')}, and there are {n}: every sample goes into one part"
        )
    return counts  # type: ignore[return-value]


def _of_shares(shares: list[float], n: int) -> list[int]:
    """Samples of each share, cut where the shares up to it end: each one rounded by itself would not add up to n."""
    ends = itertools.accumulate(Fraction(repr(share)) for share in shares)  # as written: 0.1 is a tenth
    cuts = [n if math.isclose(end, 1, abs_tol=1e-9) else math.ceil(end * n - Fraction(1, 2)) for end in ends]
    return [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]


def _part(text: str) -> tuple[str, float | int | None]:
    path, sign, share = text.rpartition("=")
    if not sign or not path:
        raise argparse.ArgumentTypeError(f"{text!r}, expected OUT=SHARE, such as data/val=0.1")
    path = local_path_of(path)
    try:
        if share == "rest":
            return path, None
        if share.isdigit():
            return path, int(share)
        number = float(share)
    except ValueError:
        number = -1
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"{text!r}: {share!r} is no share from 0 to 1, no number, and not 'rest'")
    return path, number


def _check(parts: list[tuple[str, float | int | None]]) -> None:
    """Refuse before anything is written what would be refused at a later part."""
    paths = [filesystems.real_path(path) for path, _ in parts]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ArgumentError(f"{twice} is given twice")
    if sum(share is None for _, share in parts) > 1:
        raise ArgumentError("only one part can be the rest")
