"""`ffrecord verify`: read everything, compare all checksums, and name every record that is bad."""

import argparse
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from ffrecord import manifest
from ffrecord.cli import exits
from ffrecord.cli.output import Output, counted, in_bytes
from ffrecord.cli.sources import add_jobs, add_source, open_source
from ffrecord.errors import FFRecordError
from ffrecord.format import SUFFIX
from ffrecord.reader import FileReader
from ffrecord.store import Store

RANGE_BYTES = 128 << 20  # about as much as one thread reads between two steps of the bar

EXAMPLES = """\
examples:
  ffrecord verify data/train
  ffrecord verify data/train --json | jq .bad
  ffrecord verify archive.zip && echo whole"""


@dataclass
class Report:
    """What was found.

    Attributes:
        checksum: what guards each record, None if nothing does.
        bad: of each bad file or record: "file", "index" in that file (None: the file as a whole), "error".
    """

    format: str = ""
    checksum: str | None = None
    files: int = 0
    records: int = 0
    bytes: int = 0
    bad: list[dict[str, Any]] = field(default_factory=list)


def arguments(parser: argparse.ArgumentParser) -> None:
    """PATH and how many threads."""
    parser.epilog = EXAMPLES
    add_source(parser)
    add_jobs(parser, "threads that read")


def run(given: argparse.Namespace, out: Output) -> int:
    """Check it; BAD_NEWS if anything is wrong."""
    began, report = time.monotonic(), Report()
    for opened in _opened(given):
        if isinstance(opened, Store):
            with opened:
                check(opened, given.jobs, report, out)
        else:
            path, error = opened
            _tell(report, out, path, None, error)
    _conclude(given, report, time.monotonic() - began, out)
    return exits.BAD_NEWS if report.bad else exits.DONE


def _opened(given: argparse.Namespace) -> Iterator[Store | tuple[str, Exception]]:
    """The dataset; or, if it cannot be opened, each of its shards that can, and what is wrong with the others."""
    try:
        yield open_source(given)
        return
    except (FFRecordError, OSError) as error:
        shards = shards_of(given.source)
        if not shards:
            raise
        whole = error
    wrong = 0
    for path in shards:
        try:
            yield FileReader(path)
        except (FFRecordError, OSError) as error:
            wrong += 1
            yield path, error
    if not wrong:  # each is a file of its own, but they are not the dataset that they should be
        yield given.source, whole


def shards_of(path: str) -> list[str]:
    """The `.ffr` files of a directory: those that dataset.json lists, or all that there are."""
    if not os.path.isdir(path):
        return []
    try:
        listed = manifest.load(path)
    except FFRecordError:
        listed = None
    names = (
        sorted(name for name in os.listdir(path) if name.endswith(SUFFIX))
        if listed is None
        else [shard.name for shard in listed.shards]
    )
    return [os.path.join(path, name) for name in names]


def check(store: Store, jobs: int, report: Report, out: Output) -> None:
    """Read all records of a store by threads, and add what is bad to the report."""
    report.format, report.checksum = store.format, store.checksum
    report.files += len(set(store.fnames))
    before = store.stats().bytes
    ranges = list(_ranges(store))
    with ThreadPoolExecutor(jobs, "ffrecord-verify") as pool, out.progress(store.n, " records", "verifying") as bar:
        futures = {pool.submit(_bad, store, each): each for each in ranges}
        try:
            for future in as_completed(futures):
                bar.update(len(futures[future]))
                for index, error in future.result():
                    path, local = store.locate(index)
                    bar.clear()
                    _tell(report, out, path, local, error)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    report.records += store.n
    report.bytes += store.stats().bytes - before


def _bad(store: Store, indices: range) -> list[tuple[int, Exception]]:
    return list(store.bad_records(indices.start, indices.stop))


def _ranges(store: Store) -> Iterator[range]:
    size = sum(os.path.getsize(path) for path in set(store.fnames) if os.path.isfile(path))
    step = max(1, min(store.n, store.n * RANGE_BYTES // max(size, 1)))
    for start in range(0, store.n, step):
        yield range(start, min(start + step, store.n))


def _tell(report: Report, out: Output, path: str, index: int | None, error: Exception) -> None:
    report.bad.append({"file": path, "index": index, "error": str(error)})
    if not out.json:
        out.line(f"bad: {error}")


def _conclude(given: argparse.Namespace, report: Report, seconds: float, out: Output) -> None:
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
    speed = f"{in_bytes(report.bytes)} in {seconds:.3g} s, {in_bytes(report.bytes / max(seconds, 1e-9))}/s"
    out.line(f"{counted(report.records, 'record')} in {counted(report.files, 'file')}, {speed}: {_verdict(report)}")


def _verdict(report: Report) -> str:
    if report.bad:
        return f"{len(report.bad):,} bad"
    if report.checksum is None:
        return f"all can be read; {report.format} has no checksums to compare"
    return f"every {report.checksum} matches"
