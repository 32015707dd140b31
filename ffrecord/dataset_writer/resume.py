"""Resume an interrupted write: find the shards that it has finished, verify them, and go on after them."""

import hashlib
import logging
import os
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ffrecord.dataset_writer.layout import Start
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.sample_sources import Indices, as_array
from ffrecord.dataset_writer.write_log import LogState, Request, ShardFinished, differences, load_state
from ffrecord.errors import MismatchError, plural
from ffrecord.format.manifest import Shard
from ffrecord.system.threads import map_in_threads

HASH_SAMPLES = 1 << 14
HASH_BYTES = 8 << 20
THREADS_MAX = 8
BASE = "dataset appended to"  # key of a request: fingerprint of that dataset's manifest
LOOKED = "samples looked at"  # key of the sizes and checksums of a few samples

_log = logging.getLogger("ffrecord")


@dataclass(frozen=True)
class ResumedShards:
    """The shards that need no writing.

    Attributes:
        shards: shards in order.
        start: position where the layout goes on.
        published: whether everything is under its final name.
    """

    shards: list[Shard]
    start: Start
    published: bool = False


def earlier_request(part: PartDirectory) -> Request:
    """Return the request of an interrupted write of the same target; empty if there is none."""
    return load_state(part.write_log_path).request or {}


def indices_fingerprint(indices: Indices) -> str:
    """Return 128 bits in hex that identify an order of samples."""
    digest = hashlib.blake2b(digest_size=16)
    # Piece by piece: a shuffled order of a large dataset would not fit into memory twice.
    for start in range(0, len(indices), HASH_SAMPLES):
        digest.update(as_array(indices[start : start + HASH_SAMPLES]).tobytes())
    return digest.hexdigest()


def request_of(indices: Indices, dataset: str | None) -> Request:
    """Return the request for some samples of a dataset, in an order.

    Args:
        dataset: fingerprint of the dataset; None if unknown.
    """
    request = {"call": "from_indexed_dataset", "samples": len(indices), "indices": indices_fingerprint(indices)}
    return request if dataset is None else request | {"fingerprint": dataset}


def lines_fingerprint(lines: Any) -> str | None:
    """Return 128 bits in hex of the lines of a file, a list or a tuple; None for lines that can be read only once."""
    digest = hashlib.blake2b(digest_size=16)
    if isinstance(lines, str | os.PathLike) and os.path.isfile(lines):
        with open(lines, "rb") as file:
            while data := file.read(HASH_BYTES):
                digest.update(data)
    elif isinstance(lines, list | tuple):
        for line in lines:
            data = str(line).encode("utf-8", "surrogatepass")
            # With the length in front, ["ab"] and ["a", "b"] differ.
            digest.update(b"%d:%b" % (len(data), data))
    else:
        return None
    return digest.hexdigest()


def take_over(part: PartDirectory, *, resume: bool) -> bool:
    """Handle the files of an interrupted write in a part directory, before anything else.

    An interrupted publication is undone, unless it had reached its end.

    Args:
        resume: whether to keep finished shards; if not, they are removed.

    Returns:
        True if the earlier write was published to the last file.

    Raises:
        MismatchError: the publication cannot be undone, because the target has become another dataset.
    """
    state = part.write_log.state
    mark = state.publishing
    # The end may have been reached just before the kill.
    published = mark is not None and part.is_published(mark)
    # With resume=False the user has given up the shards, whatever became of the target.
    if mark is not None and not published and not part.take_back(mark) and resume:
        part.release()
        raise MismatchError(
            f"{part.label} was replaced by another dataset after a write of it was interrupted in {part.places}; "
            "pass resume=False to discard its finished shards"
        )
    if not resume:
        part.clear()
    return published and resume


def claim(part: PartDirectory, *, added: bool = False) -> None:
    """Take a part directory for a write that cannot be resumed.

    Args:
        added: whether this write appends, and an earlier append was published to the last file.

    Raises:
        MismatchError: a write that can be resumed has finished shards there, or the published append may be this very
            one. Nothing was changed.
    """
    state, there = part.write_log.state, part.finished_names()
    # The next call cannot know if its samples are those that were appended.
    if added and not state.request:
        part.release()
        raise MismatchError(
            f"{part.label}: an earlier call was interrupted after it had appended all its samples, so this one may "
            "append the same again; pass resume=False to append"
        )
    # A write that can be resumed is worth hours; only the user may give it up.
    if state.request and there:
        part.release()
        raise MismatchError(
            f"{part.label}: {part.places} has {plural(len(there), 'finished shard')} of an interrupted "
            "write, which this one cannot continue; pass resume=False of DatasetWriter to discard them"
        )
    # `leave` then removes everything, since no later write can go on from here.
    part.claimed = True
    part.keep_only([])
    # An empty request: a later write sees that nothing can be resumed.
    part.begin({})


def continue_write(
    part: PartDirectory, request: Request, start: Start, *, published: bool, threads: int
) -> ResumedShards:
    """Choose the finished shards to keep, remove all others, and let the write log go on from there.

    Args:
        request: request of this call.
        start: position where the layout of the whole write begins.
        published: result of `take_over`.
        threads: number of threads to verify with.

    Raises:
        MismatchError: the interrupted write had another request. Nothing was changed.
        OSError: the write log cannot be written.
    """
    state = part.write_log.state
    there = [name for name in state.finished if part.has(name)]
    if not state.request or not (there or published):
        return _begin_afresh(part, request, start)
    # The publication itself has changed the dataset that was appended to.
    found = compare_requests(state.request, request | ({BASE: state.request.get(BASE)} if published else {}))
    # The published dataset is of another request, so nothing of its log is of use.
    if published and found:
        return _begin_afresh(part, request, start)
    if published:
        return _keep_published(part, start)
    # Nothing is changed here: the user may repeat the earlier call.
    if found:
        raise MismatchError(_mismatch_message(part, len(there), found), found)
    whole = _whole_prefix(part, _in_order(state, start.shard), threads)
    part.keep_from(start.shard, [entry.shard.name for entry in whole])
    if whole:
        _log.warning("%s: keeping %s of an interrupted write", part.label, plural(len(whole), "finished shard"))
    return ResumedShards([entry.shard for entry in whole], whole[-1].next if whole else start)


def _keep_published(part: PartDirectory, start: Start) -> ResumedShards:
    """Return the shards of a write that was killed after its publication: the request is the same, so nothing is left
    to do.
    """
    _log.warning("%s: an earlier write of it was complete, so nothing is left to do", part.label)
    state = part.write_log.state
    # An append of no samples has created no shard.
    # The number of the first shard follows from the entries; it is not 0 after an append.
    entries = _in_order(state, min((entry.next.shard for entry in state.finished.values()), default=1) - 1)
    end = entries[-1].next if entries else start
    skipped = 0 if state.publishing is None else state.publishing.skipped
    return ResumedShards(
        [entry.shard for entry in entries], end._replace(skipped=max(end.skipped, skipped)), published=True
    )


def compare_requests(before: Request, now: Request) -> list[str]:
    """Return the differences of two requests, each as "path was this, is that"; those of samples are counted."""
    one, other = before.get(LOOKED), now.get(LOOKED)
    if not isinstance(one, dict) or not isinstance(other, dict):
        return differences(before, now)
    told = differences({**before, LOOKED: None}, {**now, LOOKED: None})
    both = [key for key in one if key in other]
    changed = [key for key in both if differences(one[key], other[key])]
    if changed:
        told.append(
            f"{LOOKED}: {len(changed)} of the {len(both)} that were compared differ, the first is sample {changed[0]}"
        )
    elif one.keys() != other.keys():
        told.append(f"{LOOKED} were {', '.join(one) or 'none'}, are {', '.join(other) or 'none'}")
    return told


def _begin_afresh(part: PartDirectory, request: Request, start: Start) -> ResumedShards:
    part.keep_only([])
    part.begin(request)
    part.first = start.shard
    return ResumedShards([], start)


def _in_order(state: LogState, first: int) -> list[ShardFinished]:
    """Return the finished shards from number `first` on, up to the first missing one."""
    entries = {entry.next.shard - 1: entry for entry in state.finished.values()}
    numbers = takewhile(entries.__contains__, range(first, first + len(entries)))
    return [entries[number] for number in numbers]


def _whole_prefix(part: PartDirectory, finished: list[ShardFinished], threads: int) -> list[ShardFinished]:
    """Return the finished shards before the first one that is not whole, to the last byte."""
    results = map_in_threads(lambda entry: part.is_whole(entry.shard), finished, min(threads, THREADS_MAX))
    return [entry for entry, _ in takewhile(lambda pair: pair[1], zip(finished, results, strict=True))]


def _mismatch_message(part: PartDirectory, count: int, found: list[str]) -> str:
    return (
        f"{part.label}: {part.places} has {plural(count, 'finished shard')} of an interrupted write that "
        f"was requested otherwise: {'; '.join(found)}. Repeat that request to continue it, or pass resume=False to "
        "discard them"
    )


def leave_with_remark(part: PartDirectory) -> str | None:
    """Leave a part directory, and return a note for the error that ended a write: the files that stay. None for no
    note.
    """
    kept = part.leave()
    if part.published:
        return f"{part.label}: the write is complete; repeating an append would add the samples again"
    if not kept:
        return None
    return (
        f"{part.label}: nothing was published. {plural(len(kept), 'finished shard')} "
        f"stay{'s' if len(kept) == 1 else ''} in {part.places}; repeat the same "
        "call to continue, or pass resume=False to discard them"
    )
