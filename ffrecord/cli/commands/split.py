"""`ffrecord split`: divide a dataset, such as into training and validation. Every sample goes to one part."""

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

from ffrecord.cli.sources import add_source, local_path_of, seed_of
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.output import Output
from ffrecord.cli.writing_options import add_writing, conclude, fingerprint_of, open_indexed, options_of, write_some
from ffrecord.conversion.input import ConversionInput
from ffrecord.dataset_writer import Summary
from ffrecord.dataset_writer import publish as publishing
from ffrecord.dataset_writer.resume import indices_fingerprint
from ffrecord.dataset_writer.shards import check_whole
from ffrecord.dataset_writer.write_log import differences
from ffrecord.errors import ArgumentError, FFRecordError, MismatchError, add_note, file_error, plural
from ffrecord.format import manifest
from ffrecord.format.leftovers import FINISHED
from ffrecord.order import Random
from ffrecord.reading.paths import check_outside
from ffrecord.system import atomic_directory, filesystems, named_calls, untrusted
from ffrecord.system.atomic_file import PART_SUFFIX, fsync_directory
from ffrecord.system.locked_directory import LockedDirectory
from ffrecord.system.untrusted import Refused

STATE = "part.json"
STATE_MAX = 16 << 20  # bytes of the notes; nothing larger is read

Request = dict[str, Any]


class SplitState(msgspec.Struct, frozen=True):
    """The notes on a part that stay on disk.

    Attributes:
        request: arguments of the split; None for no readable notes.
        summary: summary of the part, once it is complete.
        fingerprint: fingerprint of the part's manifest, once it is complete.
    """

    request: Request | None = None
    summary: Summary | None = None
    fingerprint: str | None = None


class SplitPart:
    """One part of a split, for `with`.

    Args:
        path: path of the new dataset, as given.
        restart: whether to discard the work of an interrupted split.

    Attributes:
        path: as given.
        target: the real path.
        hidden: directory that holds the part until it is published.
        summary: summary of the part, once it is complete.
        done: whether the split is done, so that the notes can go. Otherwise they stay for a later call.
    """

    def __init__(self, path: str, *, restart: bool = False) -> None:
        self.path, self._restart = path, restart
        self.target = filesystems.real_path(path)
        parent, self._name = os.path.split(self.target)
        if os.path.ismount(self.target) or self.target == filesystems.working_directory():
            raise ArgumentError(f"{path}: this directory cannot be replaced; name a new one in it")
        self.hidden = os.path.join(parent, f".{self._name}.split")
        self._written = os.path.join(self.hidden, self._name)
        self.summary: Summary | None = None
        self.done = False

    def check_begun(self) -> None:
        """Raise FileExistsError if the final name is taken by something that no interrupted split has put there."""
        if self._is_taken() and not os.path.lexists(self.hidden):
            raise self._exists_error()

    def __enter__(self) -> "SplitPart":
        """Make the hidden directory, or take over an existing one.

        Raises:
            BlockingIOError: another process writes it.
            OSError: it cannot be made; names the part.
        """
        try:
            self._own = LockedDirectory(self.hidden)
        except BlockingIOError as error:
            raise OSError(error.errno, "another process is splitting into it", self.path) from None
        except Refused as error:
            raise OSError(error.errno, error.strerror, self.path) from None
        except OSError as error:
            sentence = f"{self.path}: the directory {self.hidden} could not be created for it"
            raise file_error(error.errno or EIO, sentence, self.path) from None
        if self._restart:
            for name in self._own.names():
                self._own.remove(name)
        return self

    def begin(self, request: Request) -> None:
        """Compare the notes with the request, and find out whether the part is complete and whole already.

        Raises:
            MismatchError: an interrupted split has finished work for another request.
            FileExistsError: the final name is taken.
            FormatError, ChecksumError: an interrupted split has published the part, and it is damaged.
        """
        state = self._state()
        found = differences(state.request, request)
        if state.request is not None and found and self._has_finished_work():
            told = f"{self.hidden} has finished parts of an interrupted split that was requested otherwise"
            raise MismatchError(f"{self.path}: {told}; use --restart to discard them", found)
        self.check_vacant()
        if state.summary and not found and self._is_whole(state.fingerprint):
            self.summary = replace(state.summary, path=self.path)
        else:
            # A complete part without notes goes: nothing shows that it is what was asked for.
            self._own.remove(self._name)
            self._note(SplitState(request))

    def _is_whole(self, fingerprint: str | None) -> bool:
        """Tell whether the part is complete, with the bytes that were written.

        Raises:
            FFRecordError, OSError: it is published and damaged, so that it cannot be written again.
        """
        if self.published:
            _check_shards(self.target)
            return True
        self._own.check()
        with contextlib.suppress(FFRecordError, OSError, ValueError):
            if self._is_own() and publishing.fingerprint(self._written) == fingerprint:
                _check_shards(self._written)
                return True
        return False

    def _is_own(self) -> bool:
        """Tell whether the hidden part is a directory of regular files of this user. Links must not be published."""
        if not self._own.has_directory(self._name):
            return False
        with untrusted.enter_directory(self._name, directory=self._own.fd) as fd:
            return all(untrusted.is_own(name, directory=fd, owner=self._own.owner) for name in os.listdir(fd))

    @property
    def published(self) -> bool:
        """True if this split has put the part under its final name."""
        noted = self._state().fingerprint
        there = noted is not None and not self._own.holds(self._name)
        return there and publishing.fingerprint(self.target) == noted

    def check_vacant(self) -> None:
        """Raise FileExistsError if the final name is taken by something else than this part."""
        if self._is_taken() and not self.published:
            raise self._exists_error()

    def _is_taken(self) -> bool:
        return os.path.lexists(self.target) and (
            not os.path.isdir(self.target) or bool(filesystems.list_names(self.target))
        )

    def _exists_error(self) -> FileExistsError:
        return FileExistsError(EEXIST, "it already exists; delete it, or name another directory", self.path)

    def write(self, make: Callable[[str], Summary]) -> None:
        """Write the part with `make`, which gets the path, unless the part is complete."""
        if self.summary is None:
            self._own.check()
            made = make(self._written)
            self._own.check()
            summary = replace(made, path=self.path)
            # Notes are JSON, which has no names of other bytes than UTF-8; `begin` gives it the path again.
            noted = replace(summary, path=self.path.encode(errors="backslashreplace").decode())
            self._note(SplitState(self._state().request, noted, publishing.fingerprint(self._written)))
            self.summary = summary

    def publish(self) -> None:
        """Give the part its final name."""
        atomic_directory.replace(self._name, self.target, self._own.fd)

    def take_back(self) -> None:
        """Hide the part again, if it is published."""
        if self.published:
            named_calls.rename(self.target, self._name, target_directory=self._own.fd)

    def _state(self) -> SplitState:
        with contextlib.suppress(OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(self._own.read(STATE, STATE_MAX), type=SplitState)
        return SplitState()

    def _note(self, state: SplitState) -> None:
        self._own.write(STATE, msgspec.json.encode(state))

    def _has_finished_work(self) -> bool:
        """Tell whether something is finished: the part, or shards of it. Leftovers of killed processes do not count."""
        names, begun = self._own.names(), f".{self._name}{PART_SUFFIX}"
        if self._name in names:
            return True
        with contextlib.suppress(FileNotFoundError, Refused), contextlib.ExitStack() as stack:
            part = stack.enter_context(untrusted.enter_directory(begun, directory=self._own.fd))
            return bool(os.listdir(stack.enter_context(untrusted.enter_directory(FINISHED, directory=part))))
        return False

    def __exit__(self, *_: object) -> None:
        """Remove the hidden directory if nothing in it is of use, and release the lock."""
        with contextlib.suppress(OSError):
            if self.done or not (self._has_finished_work() or self.published):
                self._own.discard()
        self._own.close()


def _check_shards(directory: str) -> None:
    """Check every shard of a dataset; raise the first error."""
    listed = manifest.load(directory)
    for shard in listed.shards if listed is not None else []:
        check_whole(directory, shard)


def publish(parts: Sequence[SplitPart]) -> None:
    """Give all parts their final names, or none.

    Raises:
        OSError: publishing failed, and the parts are hidden again. The notes of the error name parts that could not be.
            If only the final fsync failed, all parts are in place, and the message says so.
    """
    for part in parts:
        part.check_vacant()
    try:
        for part in parts:
            if not part.published:
                part.publish()
    except BaseException as error:
        _hide_again(parts, error)
        raise
    try:
        for directory in {os.path.dirname(part.target) for part in parts}:
            fsync_directory(directory)
    except OSError as error:
        sentence = "all parts are in place, but fsync of a directory failed and a crash may undo them"
        raise file_error(error.errno or EIO, f"{parts[0].path}: {sentence}", parts[0].path) from None
    for part in parts:
        part.done = True


def _hide_again(parts: Sequence[SplitPart], cause: BaseException) -> None:
    """Hide all parts again. Parts that cannot be hidden are named in a note of `cause`."""
    for part in reversed(parts):
        try:
            part.take_back()
        except OSError as error:
            add_note(cause, f"{part.path} could not be hidden again ({error.strerror})")


EXAMPLES = """\
examples:
  ffrecord split data/all data/train=0.9 data/val=0.1  # by chance, seed 0
  ffrecord split data/all data/train=50000 data/val=rest --in-order

A part has less than one sample more or fewer than its share.
All parts get their names at the end; until then each is in the hidden directory .NAME.split beside it.
A kill at the end may leave some parts without the others: run the command again, and it goes on."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH, the parts and a seed."""
    parser.epilog = EXAMPLES
    add_source(parser)
    help = "new directory, and its share of the samples (0.1), their number (5000), or all others (rest)"
    parser.add_argument("parts", metavar="OUT=SHARE", nargs="+", type=_parse_part, help=help)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seed", type=seed_of, default=0, metavar="N", help="seed of the random choice (default: 0)")
    which.add_argument("--in-order", action="store_true", help="give the first samples to the first part, and so on")
    add_writing(parser)


def run(given: argparse.Namespace, out: Output) -> int:
    """Write the parts. Within each part the samples keep their order."""
    _check_parts(given.parts)
    for path, _ in given.parts:
        check_outside([given.source], path)
    with open_indexed(given.source, given.format) as found, ExitStack() as stack:
        chosen = choose(given, len(found.dataset))
        parts = [SplitPart(path, restart=given.restart) for path, _ in given.parts]
        for part in parts:
            part.check_begun()  # for all parts, before a directory is made for any
        for part in parts:
            stack.enter_context(part)
        for part, indices in zip(parts, chosen, strict=True):
            part.begin(_request(given, found, indices))
        try:
            for part, indices in zip(parts, chosen, strict=True):
                part.write(lambda path, wanted=indices: write_some(found, path, wanted, options_of(given, out)))  # type: ignore[misc]
            publish(parts)
        except BaseException as error:
            _note_progress(parts, error)
            raise
    for part, indices in zip(parts, chosen, strict=True):
        if not len(indices):
            out.remark(f"ffrecord split: {part.path} has no samples")
    conclude([part.summary for part in parts if part.summary is not None], out)
    return exit_codes.DONE


def choose(given: argparse.Namespace, n: int) -> list[npt.NDArray[np.int64]]:
    """Return the indices of each part, ascending."""
    order = np.arange(n) if given.in_order else Random().indices(np.arange(n), n, given.seed, 0)
    return [np.sort(each) for each in np.split(order, np.cumsum(part_sizes(given.parts, n))[:-1])]


def _request(given: argparse.Namespace, found: ConversionInput, indices: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return the arguments that determine a part."""
    cuts = {name: getattr(given, name) for name in ("shard_size", "samples_per_shard", "num_shards")}
    return {"samples": len(indices), "indices": indices_fingerprint(indices), "source": fingerprint_of(found), **cuts}


def _note_progress(parts: list[SplitPart], error: BaseException) -> None:
    """Add a note on the parts that stay to an error."""
    published = [part.path for part in parts if part.published]
    hidden = [part.path for part in parts if part.summary is not None and part.path not in published]
    said = f"published: {', '.join(published)}" if published else "nothing was published"
    if hidden:
        said += f"; complete parts stay hidden ({', '.join(hidden)})"
    if published or hidden:
        discards = "" if published else ", or use --restart to discard them"
        add_note(error, f"{said}: repeat the same call to continue{discards}")


def part_sizes(parts: list[tuple[str, float | int | None]], n: int) -> list[int]:
    """Return the number of samples of each part, [len(parts)]. A share is rounded by less than one sample.

    Raises:
        ArgumentError: the parts do not add up to n samples.
    """
    shared = iter(_sizes_of_shares([share for _, share in parts if isinstance(share, float)], n))
    counts = [next(shared) if isinstance(share, float) else share for _, share in parts]
    known = sum(count for count in counts if count is not None)
    if None in counts:
        if known > n:
            raise ArgumentError(f"the parts ask for {plural(known, 'sample')}, but there are {n}")
        return [n - known if count is None else count for count in counts]
    if known != n:
        raise ArgumentError(
            f"the parts ask for {plural(known, 'sample')}, but there are {n}: every sample needs a part"
        )
    return counts  # type: ignore[return-value]


def _sizes_of_shares(shares: list[float], n: int) -> list[int]:
    """Divide n samples by shares. The cuts are rounded, not the sizes: rounded sizes would not add up to n."""
    ends = itertools.accumulate(Fraction(repr(share)) for share in shares)  # exact decimals: 0.1 is a tenth
    cuts = [n if math.isclose(end, 1, abs_tol=1e-9) else math.ceil(end * n - Fraction(1, 2)) for end in ends]
    return [cut - before for before, cut in zip([0, *cuts], cuts, strict=False)]


def _parse_part(text: str) -> tuple[str, float | int | None]:
    path, sign, share = text.rpartition("=")
    if not sign or not path:
        raise argparse.ArgumentTypeError(f"it is {text!r}, expected OUT=SHARE, such as data/val=0.1")
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
        raise argparse.ArgumentTypeError(
            f"{text!r}: share is {share!r}, expected 0 to 1, a number of samples, or 'rest'"
        )
    return path, number


def _check_parts(parts: list[tuple[str, float | int | None]]) -> None:
    """Refuse arguments before anything is written, even if they are wrong only for a later part."""
    paths = [filesystems.real_path(path) for path, _ in parts]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice is not None:
        raise ArgumentError(f"{twice} is given twice")
    if sum(share is None for _, share in parts) > 1:
        raise ArgumentError("only one part can be the rest")
