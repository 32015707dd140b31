"""MDS datasets: index.json, shards, and the encodings of columns."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import GOLDEN, Run, Scratch, Target, drain

COLUMNS = [
    {"a": "int", "b": "str"},
    {"x": "bytes", "y": "json", "z": "ndarray"},
    {"i": "uint8", "f": "float64", "n": "ndarray:int16:2,2"},
    {"p": "pil", "q": "jpeg", "d": "str_decimal", "l": "list[pil]"},
]
ENCODINGS = (
    *("int", "uint8", "float16", "float64", "str", "bytes", "json", "str_int", "str_float", "str_decimal"),
    *("ndarray", "ndarray:int16", "ndarray:float32:2,2", "pil", "jpeg", "png", "pkl", "list[jpeg]", "list[png]"),
    *("list[pil]", "jpeg_array"),
)


def _prepare_index(scratch: Scratch) -> Run:
    from ffrecord.sources.mds.encodings import MDSLayout
    from ffrecord.sources.mds.index import distinct, read_index

    file = scratch.file("mds/index.json")
    folder = str(Path(file.path).parent)

    def run(data: memoryview) -> None:
        file.put(data)
        for columns in distinct(read_index(folder))[0]:
            MDSLayout(columns, None, False, False)

    return run


def _prepare_shard(scratch: Scratch) -> Run:
    from ffrecord.sources import MDSReader

    index, shard = scratch.file("mds/index.json"), scratch.file("mds/shard.00000.mds")
    folder = str(Path(index.path).parent)

    def run(data: memoryview) -> None:
        """A shard whose columns index.json names as well, without which nothing behind them is reached."""
        if not data:
            return
        columns = COLUMNS[data[0] % len(COLUMNS)]
        sizes = _sizes(columns)
        if sizes is None:
            return
        body = bytes(data[1:])
        samples = int.from_bytes(body[:4], "little") % 2**32
        raw = {"basename": "shard.00000.mds", "bytes": len(body), "hashes": {}}
        one = {
            "samples": samples,
            "raw_data": raw,
            "zip_data": None,
            "compression": None,
            "format": "mds",
            "version": 2,
        }
        one |= {"column_names": [*columns], "column_encodings": [*columns.values()], "column_sizes": sizes}
        index.put(json.dumps({"version": 2, "shards": [one]}).encode())
        shard.put(body)
        drain(MDSReader(folder, bool(data[0] & 128), io="pread"))

    return run


def _sizes(columns: dict[str, str]) -> list[int | None] | None:
    from ffrecord import FormatError
    from ffrecord.sources.mds.encodings import encoding

    try:
        return [encoding(name, False, False).size for name in columns.values()]
    except FormatError:
        return None


def _headed(columns: dict[str, str]) -> bytes:
    """What a shard says of its columns."""
    said = {"column_names": [*columns], "column_encodings": [*columns.values()], "column_sizes": _sizes(columns)}
    return json.dumps(said).encode()


def _prepare_encodings(scratch: Scratch) -> Run:
    from ffrecord import FormatError
    from ffrecord.sources.mds.encodings import encoding

    def run(data: memoryview) -> None:
        """An encoding by the first byte, or its name up to a NUL; then a value."""
        if not data:
            return
        name = ENCODINGS[data[0] % len(ENCODINGS)]
        value = data[1:]
        if data[0] >= 128:
            named, _, rest = bytes(data[1:]).partition(b"\0")
            name, value = named.decode("latin-1"), memoryview(rest)
        found = encoding(name, True, False)
        if found.size is None or found.size == len(value):
            try:
                found.decode(value)
            except FormatError:
                raise
            except ValueError:
                pass  # `MDSLayout` gives it the name of the column

    return run


def _index_seeds(folder: Path) -> Iterator[bytes]:
    yield (GOLDEN / "seeds/mds/index.json").read_bytes()
    made = json.loads((GOLDEN / "seeds/mds/index.json").read_bytes())
    shard = made["shards"][0]
    shard |= {"zip_data": {"basename": "a.mds.zstd", "bytes": 9, "hashes": {"sha1": "00"}}, "compression": "zstd:7"}
    yield json.dumps({"version": 2, "shards": [shard]}).encode()


def _shard_seeds(folder: Path) -> Iterator[bytes]:
    values = [(b"\5\0\0\0" + bytes(8) + b"hello"), (b"\1\0\0\0" + bytes(8) + b"x")]
    yield from _shards(0, values)
    array = bytes([17, 4, 2]) + b"\1\0\2\0"
    one = struct.pack("<III", 3, 3, len(array)) + b"abc" + b"[1]" + array
    yield from _shards(1, [one, one])
    yield from _shards(2, [bytes(17), b"\1" * 17])


def _shards(number: int, samples: list[bytes]) -> Iterator[bytes]:
    head = _headed(COLUMNS[number])
    at = 4 * (len(samples) + 2) + len(head)
    offsets = [at]
    for sample in samples:
        offsets.append(offsets[-1] + len(sample))
    for first in (number, number + 128):
        if first % len(COLUMNS) == number:
            yield (
                bytes([first]) + struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + head + b"".join(samples)
            )


def _encoding_seeds(folder: Path) -> Iterator[bytes]:
    values = {
        "str": b"text",
        "json": b'{"a": [1, 2.5, null]}',
        "str_int": b"-12",
        "str_float": b"1e5",
        "str_decimal": b"1.50",
        "ndarray": bytes([17, 4, 2]) + b"\1\0\2\0",
        "ndarray:int16": bytes([5, 2, 0]) + b"\1\0\2\0",
        "pil": b"\2\0\0\0\1\0\0\0\3\0\0\0RGB" + bytes(6),
        "list[jpeg]": b"\1\0\0\0\3\0\0\0\xff\xd8\xff",
        "list[pil]": b"\1\0\0\0\x0e\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0L\0",
    }
    for number, name in enumerate(ENCODINGS):
        yield bytes([number]) + values.get(name, bytes(8))
    yield b"\x80ndarray:uint8:2,3\0" + bytes(6)


NAMES = {name: f"ffrecord.sources.mds.{name}" for name in ("reader", "index", "encodings", "unpacked")}
TARGETS = [
    Target("mds_index", _prepare_index, _index_seeds, (NAMES["index"],), size_most=1 << 11),
    Target(
        "mds",
        _prepare_shard,
        _shard_seeds,
        (NAMES["reader"], NAMES["index"], NAMES["encodings"]),
        size_most=1 << 10,
    ),
    Target("mds_encodings", _prepare_encodings, _encoding_seeds, (NAMES["encodings"],), size_most=1 << 9),
]
