"""T8 (guarantee G4): headers made to harm are opened within the promised memory, and in bounded time.

What the first open of a process makes once and keeps is left out: in the second turn every byte of data counts.
"""

import json
import os
import struct
import zlib
from pathlib import Path

import builders
import children
import ffr_twin
import pytest
from builders import IO_MODES, chain, fix_block, fix_checksum, set_block, set_header_crc, set_n, set_offset

SAMPLES = builders.small()
PLAIN = ffr_twin.build(SAMPLES)
SIZE = len(PLAIN)
NESTED = b"\x81\xa6schema" + b"\x81\xa1x" * 200_000 + b"\xc0"
EXTENDED = ffr_twin.build_extended(SAMPLES, b"\x80", 10)
BLOCK = ffr_twin.block(b"", 0, SIZE + 80)


def crc_right(*damages: builders.Damage) -> bytes:
    return chain(*damages, fix_checksum)(PLAIN)


def empty_samples(n: int) -> bytes:
    """A legal file."""
    covered = struct.pack("<q", n) + bytes(4 * n) + struct.pack("<q", 12 + 12 * n) * n
    return struct.pack("<I", zlib.crc32(covered)) + covered


MILLION = 1_000_000
FILES = {
    "a million samples": empty_samples(MILLION),
    **{
        f"n = {n}": set_n(n)(PLAIN)
        for n in (-1, -(2**63), 2**63 - 1, 2**60, 2**64 // 12 - 1, 2**64 // 12 + 1, SIZE // 12 + 1)
    },
    **{f"n = {n}, old": chain(set_n(n), set_header_crc(0))(PLAIN) for n in (-1, 2**63 - 1, 2**60, SIZE // 12 + 1, 9)},
    "offsets decrease": crc_right(builders.swap_offsets(2, 5)),
    "offsets decrease, old": chain(builders.swap_offsets(2, 5), set_header_crc(0))(PLAIN),
    "offsets all equal": crc_right(*(set_offset(i, 108) for i in range(8))),
    **{
        f"offset {i} = {offset}{', old' if old else ''}": (set_header_crc(0) if old else bytes)(
            crc_right(set_offset(i, offset))
        )
        for i in (0, 3, 7)
        for offset in (-1, 0, 12, 107, SIZE + 1, 2**40, 2**63 - 1, -(2**63))
        for old in (False, True)
    },
    "block too long": chain(set_block("block_size", 10**6), fix_block)(EXTENDED),
    "block zero long": chain(set_block("block_size", 0), fix_block)(EXTENDED),
    "payload too long": set_block("payload_size", 2**64 - 1)(EXTENDED),
    "payload of 16 EiB": set_block("payload_size", 2**63)(EXTENDED),
    "block crc": set_block("crc", 0)(EXTENDED),
    "block version": chain(set_block("version", 9), fix_block)(EXTENDED),
    "two blocks": ffr_twin.build(SAMPLES, BLOCK + BLOCK),
    "two blocks in one": ffr_twin.build(SAMPLES, ffr_twin.block(b"", 40, SIZE + 80)[:40] + BLOCK),
    "deeply nested payload": ffr_twin.build_extended(SAMPLES, NESTED),
    "payload that claims 4 GiB": ffr_twin.build_extended(SAMPLES, b"\x81\xa6writer\xdb\xff\xff\xff\xff"),
    "payload that claims 2**32 keys": ffr_twin.build_extended(SAMPLES, b"\x81\xa6schema\xdf\xff\xff\xff\xff"),
    "payload that claims 2**32 items": ffr_twin.build_extended(SAMPLES, b"\x81\xa6schema\x81\xa1a\xdd\xff\xff\xff\xff"),
    "duplicate keys": ffr_twin.build_extended(SAMPLES, b"\x82\xa6writer\xa1a\xa6writer\xa1b"),
    **{f"{size} zeros": bytes(size) for size in (*range(14), 24, 404, 1 << 20)},
    **{f"first {size} bytes": PLAIN[:size] for size in (*range(1, 13), 50, 107)},
    "text": b"once upon a time " * 100,
    "all ones": b"\xff" * 1000,
}
SPARSE = {
    "sparse zeros": (1 << 40, b""),
    "sparse, great n": (1 << 40, struct.pack("<Iq", 0, (1 << 36))),
    "sparse, greatest n that fits": (1 << 40, struct.pack("<Iq", 1, ((1 << 40) - 12) // 12)),
    "sparse, last sample of 1 TiB": (1 << 40, PLAIN),
    "sparse, tables of 768 GiB": (1 << 40, struct.pack("<Iq", 1, 1 << 36)),
    "sparse, block of 1 TiB": (
        1 << 40,
        crc_right(*(set_offset(i, (1 << 40) - 1) for i in range(8)))[:108] + EXTENDED[108:148],
    ),
}
SPECIAL = {"directory", "fifo", "zero", "proc"}
# What has no error: legal, however strange.
READABLE = {"a million samples", "offsets all equal", "duplicate keys", "12 zeros", "sparse, last sample of 1 TiB"}
# What hides bytes in space that is only looked through with checks on.
HIDING = {"two blocks in one"}
# What opens, and is refused at the sample.
AT_USE = {
    "offsets decrease",
    *(name for name in FILES if name.startswith(("offset 3", "offset 7")) and "old" not in name),
}
# Opening any of them takes no longer, by the clock, busy machines included.
SECONDS = 0.5
# Of the interpreter and of malloc, for pages and objects beside what is promised.
ALLOWANCE = 64 << 10
# The C library gives large blocks back at once, so that none is there to hide what an open asks for.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(64 << 10), "MALLOC_TRIM_THRESHOLD_": "0"}


def promised(name: str) -> int:
    """Bytes that opening the file may need: 12 for each sample there is room for, its extension block, 64 KiB."""
    tables = 12 * (MILLION if name == "a million samples" else len(SAMPLES))
    block = len(NESTED) if "payload" in name else 0
    return tables + block + (64 << 10)


CHILD = """
import json, os, resource, sys, time, warnings
from ffrecord import FileReader, FFRecordError
warnings.simplefilter("ignore")
SANITIZED = bool(os.environ.get("FFRECORD_SANITIZED"))
REFUSED = FFRecordError, OSError, AssertionError
if not SANITIZED:
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))

def status(key):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(key))

def limit_data(most):
    if not SANITIZED:
        resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))

def opened(path, check, io):
    'Seconds it took, bytes it needed more, and the reader or what it was refused with.'
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    before, start = status("VmRSS"), time.perf_counter()
    try:
        found = FileReader(path, check, io=io)
    except (*REFUSED, MemoryError) as error:
        found = type(error).__name__
    return time.perf_counter() - start, status("VmHWM") - before, found

def each(reader):
    outcome = []
    for i in range(min(reader.n, 8)):
        try:
            outcome.append(len(reader.read_one(i) if i % 2 else reader.read_packed([i])[0]))
        except (FFRecordError, OSError, MemoryError) as error:
            outcome.append(type(error).__name__)
    return outcome

directory, limits, results = sys.argv[1], json.loads(sys.argv[2]), {}
for turn, check, io in ((turn, check, io) for turn in (0, 1, 2) for check in (True, False) for io in sys.argv[3:]):
    for name in sorted(os.listdir(directory)):
        # Whatever is made once, and kept, has been made in the first turn.
        limit_data(status("VmData") + limits[name] if turn else resource.RLIM_INFINITY)
        seconds, grown, found = opened(os.path.join(directory, name), check, io)
        limit_data(resource.RLIM_INFINITY)
        if not isinstance(found, str):
            with found:
                found = each(found)
        if turn > 1:  # pages of libraries may come back at any time: only what it takes both times is the file's
            grown = min(grown, results[name][f"{io} {check}"][2])
        results.setdefault(name, {})[f"{io} {check}"] = (found, seconds, grown)
try:
    limit_data(status("VmData") + (192 << 10))
    much = bytes(1 << 20) and SANITIZED
except MemoryError:
    much = True
assert much, "what is more than the limit was to be had"
limit_data(resource.RLIM_INFINITY)
print(json.dumps(results))
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, tuple[object, float, int]]]:
    """One child for all files, in every mode: it must survive them all."""
    directory = tmp_path_factory.mktemp("hostile")
    names = {
        f"{number}.ffr": name
        for number, name in enumerate([*FILES, *([] if children.SANITIZER else SPARSE), *sorted(SPECIAL)])
    }
    for number, name in names.items():
        make(directory / number, name)
    limits = json.dumps({number: promised(name) + ALLOWANCE for number, name in names.items()})
    found = json.loads(children.run(CHILD, directory, limits, *IO_MODES, OPENBLAS_NUM_THREADS="1", **MALLOC))
    return {names[number]: results for number, results in found.items()}


def make(path: Path, name: str) -> None:
    if name in FILES:
        path.write_bytes(FILES[name])
    elif name in SPARSE:
        size, start = SPARSE[name]
        path.write_bytes(start)
        os.truncate(path, size)
        if "tables" in name:
            with path.open("r+b") as file:
                file.seek(12 + (4 << 36))
                file.write(struct.pack("<q", 12 + (12 << 36)))
    elif name == "directory":
        path.mkdir()
    elif name == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to({"zero": "/dev/zero", "proc": "/proc/self/status"}[name])


LIMITED = [pytest.param(name, marks=children.limits_memory) for name in SPARSE]


@pytest.mark.parametrize("name", [*FILES, *LIMITED, *sorted(SPECIAL)])
def test_refused_in_bounds(outcomes, name, counted):
    for check in (True, False):
        for io in IO_MODES:
            outcome, seconds, grown = outcomes[name][f"{io} {check}"]
            assert seconds < SECONDS * children.PATIENCE, io
            assert grown <= promised(name) + ALLOWANCE or children.SANITIZER, io
            check_outcome(name, check, io, outcome)
            counted.at_most("seconds to refuse a hostile file", seconds)
            counted.at_most("MiB more memory for a hostile file", grown / (1 << 20))
    counted.add("hostile files")


def check_outcome(name: str, check: bool, io: str, outcome: object) -> None:
    if "tables of" in name or ("of 1 TiB" in name and io == "mmap"):
        assert outcome == "FileError"  # no address space to map them under the limit
    elif name in READABLE or (name in HIDING and not check):
        assert isinstance(outcome, list), outcome
    elif name in AT_USE:
        assert isinstance(outcome, list), outcome
        assert {"FormatError", "ChecksumError"} & set(outcome)
    elif name in SPECIAL:
        assert outcome in ("NotAFileError", "ArgumentError", "FormatError")
    else:
        assert outcome in ("FormatError", "ChecksumError"), outcome


def test_a_directory_of_hostile_files_names_one(tmp_path):
    for number, name in enumerate(FILES):
        make(tmp_path / f"{number}.ffr", name)
    from ffrecord import FFRecordError, FileReader

    with pytest.raises(FFRecordError, match=str(tmp_path)):
        FileReader(tmp_path)
