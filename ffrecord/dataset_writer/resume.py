"""What an interrupted write has finished, found again by the next one: verified, and gone on from."""

import hashlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.selection import Chosen, as_array
from ffrecord.dataset_writer.write_log import LogState, Request, ShardFinished, differences, load_state
from ffrecord.errors import MismatchError, plural
from ffrecord.format.manifest import Shard

HASH_SAMPLES = 1 << 14
HASH_BYTES = 8 << 20
THREADS_MAX = 8
BASE = "dataset appended to"  # in a request: the fingerprint of its manifest

_log = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class ResumedShards:
    """What needs no writing.

    Attributes:
        shards: in order.
        start: where the layout goes on.
        published: whether all of it is under its final name.
    """

    shards: list[Shard]
    start: Start
    published: bool = False


def earlier_request(part: PartDirectory) -> Request:
    """What an interrupted write of the same target was asked for; empty if there is none."""
    return load_state(part.ledger_path).request or {}


def fingerprint(indices: Chosen) -> str:
    """128 bits in hex that tell one order of samples from another."""
    digest = hashlib.blake2b(digest_size=16)
    for start in range(0, len(indices), HASH_SAMPLES):
        digest.update(as_array(indices[start : start + HASH_SAMPLES]).tobytes())
    return digest.hexdigest()


def request_of(indices: Chosen, dataset: str | None) -> Request:
    """What is asked of a write of some samples of a dataset, in an order.

    Args:
        dataset: what tells it from others; None for what nobody knows.
    """
    asked = {"call": "from_indexed_dataset", "samples": len(indices), "indices": fingerprint(indices)}
    return asked if dataset is None else asked | {"fingerprint": dataset}


def lines_fingerprint(lines: Any) -> str | None:
    """128 bits in hex of the lines of a file, or of a list or tuple; None for what can be had only once."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(lines, str | os.PathLike) and os.path.isfile(lines):
        with open(lines, "rb") as file:
            while data := file.read(HASH_BYTES):
                digest.update(data)
    elif isinstance(lines, list | tuple):
        for line in lines:
            data = str(line).encode("utf-8", "surrogatepass")
            digest.update(b"%d:%b" % (len(data), data))
    else:
        return None
    return digest.hexdigest()


def take_over(part: PartDirectory, *, resume: bool) -> bool:
    """See to what an interrupted write has left in a part directory, before anything else is looked at.

    A publication that was interrupted is undone, unless it had got to its end.

    Args:
        resume: whether finished shards are wanted; without, they are removed.

    Returns:
        whether the leftover is of a write that was published to the last file.

    Raises:
        MismatchError: the publication cannot be undone, since the target has become another dataset.
    """
    story = part.ledger.story
    mark = story.publishing
    published = mark is not None and part.happened(mark)
    if mark is not None and not published and not part.take_back(mark) and resume:
        part.release()
        raise MismatchError(
            f"{part.label} has become another dataset since a write of it was interrupted in {part.places}; "
            "resume=False discards what that one has finished"
        )
    if not resume:
        part.clear()
    return published and resume


def claim(part: PartDirectory, *, added: bool = False) -> None:
    """Take a part directory for a write that cannot be gone on with.

    Args:
        added: whether an append is asked, and the leftover is of one that was published to the last file.

    Raises:
        MismatchError: one that can has finished shards there, or it may be this very append that was published. Nothing
            was changed.
    """
    story, there = part.ledger.story, part.finished_names()
    if added and not story.request:
        part.release()
        raise MismatchError(
            f"{part.label}: an earlier call was interrupted, but all that it appended is there, and nobody can tell "
            "whether this one would append the same again; resume=False does append"
        )
    if story.request and there:
        part.release()
        raise MismatchError(
            f"{part.label}: {part.places} has {plural(len(there), 'finished shard')} of an interrupted "
            f"write, and this one "
            "cannot go on with it; resume=False of DatasetWriter discards them"
        )
    part.claimed = True
    part.keep_only([])
    part.begin({})


def continue_write(
    part: PartDirectory, request: Request, start: Start, *, published: bool, threads: int
) -> ResumedShards:
    """Find out which finished shards can stay, remove all others, and have the ledger go on from there.

    Args:
        request: what is asked now.
        start: where the layout of all begins.
        published: as `take_over` said.
        threads: to verify with.

    Raises:
        MismatchError: something else was asked for when the write was begun. Nothing was changed.
        OSError: the ledger cannot be written.
    """
    story = part.ledger.story
    there = [name for name in story.finished if part.has(name)]
    if not story.request or not (there or published):
        return _afresh(part, request, start)
    # What it was appended to has changed by that alone.
    found = differences(story.request, request | ({BASE: story.request.get(BASE)} if published else {}))
    if published and found:
        return _afresh(part, request, start)
    if published:
        return _complete(part, start)
    if found:
        raise MismatchError(_refusal(part, len(there), found), found)
    whole = _whole(part, _in_order(story, start.shard), threads)
    part.go_on_from(start.shard, [entry.shard.name for entry in whole])
    if whole:
        _log.warning("%s: keeping %s of an interrupted write", part.label, plural(len(whole), "finished shard"))
    return ResumedShards([entry.shard for entry in whole], whole[-1].next if whole else start)


def _complete(part: PartDirectory, start: Start) -> ResumedShards:
    """What is asked may be what was published a moment before its writer was killed."""
    _log.warning("%s: an earlier write of it was complete", part.label)
    story = part.ledger.story
    # An append of no samples has made no shard.
    entries = _in_order(story, min((entry.next.shard for entry in story.finished.values()), default=1) - 1)
    end = entries[-1].next if entries else start
    skipped = 0 if story.publishing is None else story.publishing.skipped
    return ResumedShards(
        [entry.shard for entry in entries], end._replace(skipped=max(end.skipped, skipped)), published=True
    )


def _afresh(part: PartDirectory, request: Request, start: Start) -> ResumedShards:
    part.keep_only([])
    part.begin(request)
    part.first = start.shard
    return ResumedShards([], start)


def _in_order(story: LogState, first: int) -> list[ShardFinished]:
    """Finished shards from number `first` on, up to the first that is missing."""
    entries = {entry.next.shard - 1: entry for entry in story.finished.values()}
    numbers = takewhile(entries.__contains__, range(first, first + len(entries)))
    return [entries[number] for number in numbers]


def _whole(part: PartDirectory, finished: list[ShardFinished], threads: int) -> list[ShardFinished]:
    """Those before the first that is not, to the last byte, what it was."""
    with ThreadPoolExecutor(min(threads, THREADS_MAX)) as pool:
        try:
            results = list(pool.map(lambda entry: part.is_whole(entry.shard), finished))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [entry for entry, _ in takewhile(lambda pair: pair[1], zip(finished, results, strict=True))]


def _refusal(part: PartDirectory, count: int, found: list[str]) -> str:
    return (
        f"{part.label}: {part.places} has {plural(count, 'finished shard')} of an interrupted write that "
        f"was asked for something "
        f"else: {'; '.join(found)}. Ask for the same to go on with it, or pass resume=False to discard them"
    )


def remark_of(part: PartDirectory) -> str | None:
    """Leave a part directory, and say for the error that ended a write what stays; None for nothing."""
    kept = part.leave()
    if part.published:
        return f"{part.label}: all that was asked for is there and whole; another call of an append would add it again"
    if not kept:
        return None
    return (
        f"{part.label}: nothing was published. {plural(len(kept), 'finished shard')} "
        f"stay{'s' if len(kept) == 1 else ''} in {part.places}; the same call goes "
        "on from there, and resume=False discards them"
    )
