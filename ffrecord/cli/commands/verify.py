"""`ffrecord verify`: read everything, compare all checksums, and name every damaged record."""

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ffrecord.cli.sources import FILE_EACH, add_jobs, add_source, open_source
from ffrecord.cli.terminal import exit_codes
from ffrecord.cli.terminal.messages import format_error, renumber_sample
from ffrecord.cli.terminal.output import Output, format_count, format_size
from ffrecord.errors import ArgumentError, FFRecordError
from ffrecord.format import manifest
from ffrecord.format.ffr_layout import SUFFIX
from ffrecord.reader import FileReader
from ffrecord.reading import shard_list
from ffrecord.reading.paths import resolve_directory
from ffrecord.reading.store import Store

RANGE_BYTES = 128 << 20  # about the bytes that a thread reads per step of the progress bar

EXAMPLES = """\
examples:
  ffrecord verify data/train
  ffrecord verify data/train --json | jq .bad
  ffrecord verify archive.zip && echo whole"""


@dataclass
class VerifyReport:
    """The result of a verification.

    Attributes:
        format: name of the dataset's format.
        checksum: name of the checksum of each record; None if the format has none.
        files, records, bytes: numbers of files, records and bytes that were read.
        bad: a dict for each damaged file or record: "file"; "index" in that file, None for the whole file; "sample",
            the index in the dataset, None for a file that is not part of it; "error".
    """

    format: str = ""
    checksum: str | None = None
    files: int = 0
    records: int = 0
    bytes: int = 0
    bad: list[dict[str, Any]] = field(default_factory=list)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add PATH and the number of threads."""
    parser.epilog = EXAMPLES
    add_source(parser)
    add_jobs(parser, "threads that read")


def run(given: argparse.Namespace, out: Output) -> int:
    """Check the dataset. Return BAD_NEWS if anything is damaged."""
    began, report = time.monotonic(), VerifyReport()
    with exit_codes.DamageNotice() as noted:
        for found in _open_parts(given):
            if isinstance(found, VerifiedPart):
                with found.store:
                    check(found, given.jobs, report, out)
            else:
                _report_bad(report, out, *found)
    for message in noted.messages:
        _report_bad(report, out, given.source, message)
    _print_result(given, report, time.monotonic() - began, out)
    return exit_codes.BAD_NEWS if report.bad else exit_codes.DONE


class VerifiedPart(NamedTuple):
    """A store that is read as a whole.

    Attributes:
        store: the dataset, or a shard of it.
        first: index of its first sample in the dataset; None if it may not be part of the dataset.
    """

    store: Store
    first: int | None


class BadFile(NamedTuple):
    """A file that is wrong as a whole.

    Attributes:
        path: path of the file.
        error: reason, in words.
    """

    path: str
    error: str


def _open_parts(given: argparse.Namespace) -> Iterator[VerifiedPart | BadFile]:
    """Yield the dataset. If it cannot be opened, yield each shard, or the reason why a shard cannot be opened."""
    try:
        yield VerifiedPart(open_source(given), 0)
        return
    except (FFRecordError, OSError, ArgumentError) as error:
        # Resolve links only once: a moment later a link may lead to another directory.
        directory = resolve_directory(given.source)
        listed, damaged = _load_manifest(directory)
        shards = list(_list_shards(directory, listed))
        # A wrong argument is told at once; but a shard that is a pipe or a device is one for the reader, too.
        if not shards or (isinstance(error, ArgumentError) and not any(_is_special(path) for path, *_ in shards)):
            raise
        whole = error
    wrong = False
    for path, shard, first in shards:
        for found in _open_shard(path, shard, first):
            wrong |= isinstance(found, BadFile)
            yield found
    if damaged or not wrong:  # the shards do not explain why the dataset could not be opened
        yield BadFile(given.source, format_error(whole))


def _is_special(path: str) -> bool:
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def _open_shard(path: str, shard: manifest.Shard | None, first: int) -> Iterator[VerifiedPart | BadFile]:
    """Open a shard. A file that is not the listed shard is read all the same."""
    try:
        difference = "" if shard is None else shard_list.difference(path, shard)
        reader = FileReader(path)
    except (FFRecordError, OSError, ArgumentError) as error:  # a pipe or a device is an ArgumentError
        yield BadFile(path, format_error(error))
        return
    if difference:
        yield BadFile(path, difference)
    yield VerifiedPart(reader, None if shard is None or difference else first)


def _load_manifest(path: str) -> tuple[manifest.Manifest | None, bool]:
    """Return the manifest of a directory, and whether dataset.json is there but cannot be read."""
    try:
        return (manifest.load(path) if os.path.isdir(path) else None), False
    except FFRecordError:
        return None, True


def _list_shards(path: str, listed: manifest.Manifest | None) -> Iterator[tuple[str, manifest.Shard | None, int]]:
    """Yield (path, entry in the manifest, first sample) of each shard.

    Without a manifest, all `.ffr` files of the directory are shards.
    """
    if listed is None:
        names = os.listdir(path) if os.path.isdir(path) else []
        for name in sorted(name for name in names if name.endswith(SUFFIX)):
            yield os.path.join(path, name), None, 0
        return
    first = 0
    for shard in listed.shards:
        yield os.path.join(path, shard.name), shard, first
        first += shard.samples


def check(part: VerifiedPart, jobs: int, report: VerifyReport, out: Output) -> None:
    """Read all records of a part with threads, and add the damaged ones to the report."""
    store = part.store
    report.format, report.checksum = store.format, store.checksum
    report.files += store.n if store.format in FILE_EACH else len(set(store.fnames))
    before = store.stats().bytes
    ranges = list(_split_ranges(store))
    with ThreadPoolExecutor(jobs, "ffrecord-verify") as pool, out.progress(store.n, " records", "verifying") as bar:
        futures = {pool.submit(_find_bad, store, each): each for each in ranges}
        try:
            for future in as_completed(futures):
                bar.update(len(futures[future]))
                for index, error in future.result():
                    path, local = store.locate(index)
                    bar.clear()
                    sample = None if part.first is None else part.first + index
                    _report_bad(report, out, path, renumber_sample(format_error(error), index, sample), local, sample)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    report.records += store.n
    report.bytes += store.stats().bytes - before


def _find_bad(store: Store, indices: range) -> list[tuple[int, Exception]]:
    return list(store.bad_records(indices.start, indices.stop))


def _split_ranges(store: Store) -> Iterator[range]:
    size = sum(os.path.getsize(path) for path in set(store.fnames) if os.path.isfile(path))
    step = max(1, min(store.n, store.n * RANGE_BYTES // max(size, 1)))
    for start in range(0, store.n, step):
        yield range(start, min(start + step, store.n))


def _report_bad(
    report: VerifyReport, out: Output, path: str, error: str, index: int | None = None, sample: int | None = None
) -> None:
    report.bad.append({"file": path, "index": index, "sample": sample, "error": error})
    if not out.json:
        out.line(f"bad: {error}")


def _print_result(given: argparse.Namespace, report: VerifyReport, seconds: float, out: Output) -> None:
    report.bad.sort(key=lambda each: (each["file"], -1 if each["index"] is None else each["index"]))
    if out.json:
        rate = report.bytes / max(seconds, 1e-9)
        facts = {"path": given.source, "format": report.format, "files": report.files, "records": report.records}
        out.facts(
            {
                **facts,
                "bytes": report.bytes,
                "checksum": report.checksum,
                "seconds": seconds,
                "bytes_per_second": rate,
                "bad": report.bad,
            }
        )
        return
    speed = f"{format_size(report.bytes)} in {seconds:.3g} s, {format_size(report.bytes / max(seconds, 1e-9))}/s"
    count = f"{format_count(report.records, 'record')} in {format_count(report.files, 'file')}"
    out.line(f"{count}, {speed}: {_summarize(report)}")


def _summarize(report: VerifyReport) -> str:
    if report.bad:
        return f"{len(report.bad):,} bad"
    if report.checksum is None:
        return f"all can be read; {report.format} has no checksums to compare"
    return f"every {report.checksum} matches"
