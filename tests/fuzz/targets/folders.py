"""The index of packed folders: a pickle, read without pickle."""

import pickle
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import GOLDEN, Run, Scratch, Target

FILES = 5


def _prepare(scratch: Scratch) -> Run:
    from ffrecord.format.folder_index import MAGIC_BYTES, decode_index, walk

    def run(data: memoryview) -> None:
        # The number of files is in the first byte, so that it can be right.
        tree = decode_index(MAGIC_BYTES + bytes(data[1:]), data[0] if data else 0)
        for _ in walk(tree):
            pass

    return run


def _tree() -> "OrderedDict[str, object]":
    inner = OrderedDict([("b.txt", 1), ("ü", 2), ("deep", OrderedDict([("c", 3)]))])
    return OrderedDict([("a" * 40, 0), ("dir", inner), ("empty", OrderedDict()), ("z", 4)])


def _seeds(folder: Path) -> Iterator[bytes]:
    for protocol in range(6):
        yield bytes([FILES]) + pickle.dumps(_tree(), protocol)
    many = OrderedDict((f"{i:04d}", i) for i in range(200))
    yield bytes([200]) + pickle.dumps(many, 4)
    data = (GOLDEN / "ffrecord/packed_folder.ffr").read_bytes()
    yield bytes([FILES]) + data[data.rfind(b"piouhjgbr") + 9 :]
    yield bytes([1]) + b"cos\nsystem\n(S'true'\ntR."


TARGETS = [
    Target(
        "packed_folder",
        _prepare,
        _seeds,
        ("ffrecord.format.folder_index",),
        size_most=1 << 12,
    )
]
