"""What was exported, read again and compared with its source."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

from ffrecord._crc import crc32
from ffrecord.conversion.export_samples import SampleSource
from ffrecord.conversion.export_targets import TARGETS
from ffrecord.errors import MismatchError, counted
from ffrecord.sources.opening import open as open_store

NAMED = 20  # differences
AT_ONCE = 64  # files

Expected = tuple[str, bytes | memoryview]
Read = Callable[[int, Sequence[str]], list[Any]]


def verify_files(samples: SampleSource, kind: str, files: Sequence[str], shown: str) -> None:
    """Compare every file or record with what its sample gives.

    Args:
        samples: of the source.
        kind: what was written.
        files: that were written, in order.
        shown: what messages call them.

    Raises:
        MismatchError: some differ; names up to NAMED of them.
        ChecksumError, FormatError, OSError: what was written cannot be read.
    """
    found: list[str] = []
    count = 0
    with ExitStack() as stack:
        read, total = _reader(kind, files, stack)
        expected = _expected(samples, kind)
        while part := list(islice(expected, AT_ONCE)):
            for (name, data), other in zip(part, read(count, [name for name, _ in part]), strict=True):
                if other is None or len(data) != len(other) or crc32(data) != crc32(other):
                    size = "nothing" if other is None else f"{counted(len(other), 'byte')}"
                    found.append(f"{name}: {size}, its source has {counted(len(data), 'byte')} with another CRC-32")
            count += len(part)
    if total is not None and total != count:
        found.append(f"{counted(total, 'record')}, its source has {count}")
    if kind == "webdataset":
        with open_store(list(files), kind) as store:
            if len(store) != samples.n:
                found.append(f"{counted(len(store), 'sample')}, its source has {samples.n}")
    if found:
        raise MismatchError(f"{shown}: {len(found)} of {count} differ from their source: {found[0]}", found[:NAMED])


def _expected(samples: SampleSource, kind: str) -> Iterator[Expected]:
    for batch in samples.batches(0, samples.n):
        for sample in batch:
            if kind == "tfrecord":
                yield f"record {sample.index}", samples.record(sample)
            else:
                yield from ((name, content.data) for name, content in samples.files(sample, TARGETS[kind][0].dots))


def _reader(kind: str, files: Sequence[str], stack: ExitStack) -> tuple[Read, int | None]:
    """What reads files or records from one on, by their names; and how many there are, if that is known."""
    if kind == "folder":
        return lambda start, names: [_file(Path(files[0], name)) for name in names], None
    store = stack.enter_context(open_store(list(files), "tar" if kind == "webdataset" else kind))
    # With names as they are in the archive, in its order.
    keys = None if kind == "tfrecord" else store.keys()

    def read(start: int, names: Sequence[str]) -> list[Any]:
        stop = min(start + len(names), len(store))
        records: list[Any] = list(store.read(range(start, stop)))
        if keys is not None:
            records = [record if keys[start + i] == names[i] else None for i, record in enumerate(records)]
        return records + [None] * (len(names) - len(records))

    return read, len(store)


def _file(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None
