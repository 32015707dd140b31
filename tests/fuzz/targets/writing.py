"""The journals of killed writers, and what `recover` makes of them."""

import contextlib
import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target

NAME = "a.ffr"
PART = ".a.ffr.0123456789ab.part"
JOURNAL = ".a.ffr.0123456789ab.journal"
HEADER = struct.Struct("<8sIIqqII")
ENTRY = struct.Struct("<IIq")


def sealed(data: memoryview) -> bytearray:
    """A journal with right checksums: of the header, and of all entries that are all there."""
    journal = bytearray(data)
    if len(journal) < HEADER.size:
        return journal
    *_, name, payload = HEADER.unpack_from(journal)
    at = HEADER.size + name + (0 if payload == 2**32 - 1 else payload)
    if at > len(journal):
        return journal
    struct.pack_into("<I", journal, 8, zlib.crc32(journal[12:at]))
    while at + ENTRY.size <= len(journal):
        _, kind, number = ENTRY.unpack_from(journal, at)
        end = at + ENTRY.size + (0 if kind == 2 else 12 * number)
        if not at < end <= len(journal):
            break
        struct.pack_into("<I", journal, at, zlib.crc32(journal[at + 4 : end]))
        at = end
    return journal


def _prepare_journal(scratch: Scratch) -> Run:
    from ffrecord.format import journal

    file = scratch.file(JOURNAL)
    part = str(Path(file.path).parent / PART)

    def run(data: memoryview) -> None:
        file.put(sealed(data))
        journal.read(part)

    return run


def _prepare_recover(scratch: Scratch) -> Run:
    from ffrecord import FileReader, recover
    from fuzz.targets import drain

    folder = scratch.folder / "recovered"

    def run(data: memoryview) -> None:
        """The first two bytes: how long the journal is, which follows; the rest is the part file."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        size = int.from_bytes(data[:2], "little")
        (folder / JOURNAL).write_bytes(sealed(data[2 : 2 + size]))
        (folder / PART).write_bytes(data[2 + size :])
        found = recover(folder / PART)
        drain(FileReader(found.path, io="pread"))

    return run


def _left(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """Journals and part files of writers that were killed."""
    from ffrecord import FileWriter

    folder.mkdir(exist_ok=True)
    for n in (None, 5):
        with contextlib.suppress(InterruptedError), FileWriter(folder / NAME, n) as writer:
            for size in (10, 0, 300):
                writer.write_one(bytes(size))
                writer.flush()
            yield next(folder.glob(".*.journal")).read_bytes(), next(folder.glob(".*.part")).read_bytes()
            raise InterruptedError  # nothing is published


def _journal_seeds(folder: Path) -> Iterator[bytes]:
    for journal, _ in _left(folder / "left"):
        yield journal


def _recover_seeds(folder: Path) -> Iterator[bytes]:
    for journal, part in _left(folder / "left"):
        yield len(journal).to_bytes(2, "little") + journal + part


TARGETS = [
    Target("journal", _prepare_journal, _journal_seeds, ("ffrecord.format.journal",), size_most=1 << 13),
    Target(
        "recover",
        _prepare_recover,
        _recover_seeds,
        ("ffrecord.format.journal", "ffrecord.writing.recovery", "ffrecord.writing.file_writer"),
        size_most=1 << 13,
    ),
]
