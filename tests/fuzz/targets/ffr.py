"""The header, the tables, the extension block of `.ffr` files, and datasets' manifests."""

import contextlib
import json
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import GOLDEN, Run, Scratch, Target, drain, refused

MAGIC = b"\x89FFRext\n"


def sealed(data: memoryview) -> bytearray:
    """The same file with right checksums, without which nothing behind them is reached.

    Bits of the checksum in the input say what is left as it is: 1 the size of the file in the extension block; 2 the
    CRC-32 of the tables, if that is 0; 4 that of the extension block.
    """
    file = bytearray(data)
    if len(file) < 12:
        return file
    ways = file[0]
    n = struct.unpack_from("<q", file, 4)[0]
    end = 12 + 12 * n
    if not 0 <= n <= 4096 or end > len(file):
        return file
    if file[end : end + 8] == MAGIC and end + 40 <= len(file):
        if not ways & 1:
            struct.pack_into("<Q", file, end + 32, len(file))
        payload = struct.unpack_from("<Q", file, end + 24)[0]
        if not ways & 4:
            struct.pack_into("<I", file, end + 8, zlib.crc32(file[end + 12 : end + 40 + payload]))
    keeps = ways & 2 and file[:4] == bytes(4)
    if not keeps:
        struct.pack_into("<I", file, 0, zlib.crc32(file[4:end]))
    return file


def _prepare_file(scratch: Scratch) -> Run:
    from ffrecord import FileReader
    from ffrecord.fields import schema_of
    from fuzz import others

    file = scratch.file("a.ffr")

    def compare(path: str, data: bytes) -> None:
        with FileReader(path, io="pread") as reader:
            ours = [bytes(reader.read_one(index)) for index in range(len(reader))]
        assert others.of_ffr(data) in (None, ours), "the twin reads other samples"

    def run(data: memoryview) -> None:
        given = sealed(data)
        path = file.put(given)
        with contextlib.suppress(*refused()):
            compare(path, bytes(given))
        for check in (True, False):
            reader = FileReader(path, check, io="pread")
            try:
                reader.validate()
                schema_of(reader)
            finally:
                drain(reader)

    return run


def _file_seeds(folder: Path) -> Iterator[bytes]:
    import builders
    import ffr_twin

    from ffrecord import FileWriter
    from ffrecord.fields import Schema
    from ffrecord.format.extension import Extension

    for path in sorted((GOLDEN / "ffrecord").glob("*.ffr")):
        if path.stat().st_size < 1 << 14:
            yield path.read_bytes()
    yield ffr_twin.build(builders.small())
    yield ffr_twin.build([])
    with FileWriter(folder / "unknown.ffr") as writer:
        for record in builders.small():
            writer.write_one(record)
    yield (folder / "unknown.ffr").read_bytes()
    samples = [{"a": i, "b": f"text {i}", "c": [1.5, float(i)]} for i in range(4)]
    schema = Schema.infer(samples)
    with FileWriter(folder / "typed.ffr", extension=Extension(schema.to_builtins(), "encode", "seeds")) as writer:
        for sample in samples:
            writer.write_one(schema.encode(sample))
    yield (folder / "typed.ffr").read_bytes()


def _prepare_manifest(scratch: Scratch) -> Run:
    from ffrecord.errors import FormatError
    from ffrecord.format import manifest

    file = scratch.file(f"dataset/{manifest.NAME}")
    folder = str(Path(file.path).parent)

    def run(data: memoryview) -> None:
        text = bytes(data)
        file.put(text)
        try:
            manifest.load(folder)
        except FormatError as error:
            # Once more with the fingerprint that it should have.
            _, found, computed = str(error).rpartition("computed ")
            given = b'"fingerprint"'
            if not found or given not in text:
                raise
            head, _, tail = text.partition(given)
            rest = tail.partition(b":")[2].partition(b'"')[2].partition(b'"')[2]
            file.put(head + given + b': "' + computed.strip("'").encode() + b'"' + rest)
            manifest.load(folder)

    return run


def _manifest_seeds(folder: Path) -> Iterator[bytes]:
    from ffrecord.format.manifest import Shard, build, save

    shards = [Shard(f"part-{i}.ffr", i, 12 + 40 * i, 7 * i) for i in range(3)]
    for number, made in enumerate((build([]), build(shards), build(shards[:1], {"a": [1, None, 2.5]}, 7))):
        (folder / str(number)).mkdir()
        save(str(folder / str(number)), made)
        yield (folder / str(number) / "dataset.json").read_bytes()
    yield json.dumps({"version": 2, "shards": [], "fingerprint": ""}).encode()


TARGETS = [
    Target(
        "ffr",
        _prepare_file,
        _file_seeds,
        (
            "ffrecord.reading.ffr_file",
            "ffrecord.format.ffr_layout",
            "ffrecord.format.extension",
            "ffrecord.reader",
            "ffrecord.fields.spec",
        ),
        size_most=1 << 14,
    ),
    Target("manifest", _prepare_manifest, _manifest_seeds, ("ffrecord.format.manifest",), size_most=1 << 13),
]
