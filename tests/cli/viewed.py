"""`ffrecord view` as users run it, and datasets to look at."""

import http.client
import json
import math
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
from cli_runs import COMMAND

import ffrecord
from ffrecord.fields import (
    BoolField,
    BytesField,
    FloatField,
    IntField,
    JPEGField,
    LabelField,
    NDArrayField,
    Schema,
    StrField,
)
from ffrecord.format.extension import Extension

COUNT = 300
DAMAGED = 17
CLASSES = ["cat", "dog", "<b>bird</b>"]
VALUES = [math.nan, math.inf, -math.inf, *range(9)]  # of an array: JSON has no numbers for the first three
ODD_CLASSES = ["cat", "catfish", "7", "Dog"]
UNDECODABLE, DAMAGED_ODD = 10, 11
BROKEN = "no UTF-8"  # a text in whose place are bytes that are none
NASTY = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\">&amp;'\""


class Answered(NamedTuple):
    """What came back."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def told(self) -> Any:
        """As JSON."""
        return json.loads(self.body)


def data_of(answered: Answered | str, **options: Any) -> Any:
    """What a page has in it."""
    text = answered if isinstance(answered, str) else answered.body.decode()
    return json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1], **options
    )


class Page:
    """Where the page is, and a way to ask its server."""

    def __init__(self, url: str) -> None:
        self.url = url
        found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)(/[\w-]{16,}/)", url)
        assert found, url
        self.port, self.root = int(found[1]), found[2]

    def ask(self, address: str = "", **query: object) -> Answered:
        """What the page asks for."""
        return self.send(self.root + address + (f"?{urlencode(query)}" if query else ""))

    def send(self, target: str, method: str = "GET", host: str | None = None) -> Answered:
        """A request as it is."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, target, headers={"Host": host or f"127.0.0.1:{self.port}"})
            answer = connection.getresponse()
            return Answered(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def all_matches(self, **query: object) -> Any:
        """What a filter found, when it has ended."""
        return self.matches_of(self.ask("filter", **query).told["id"])

    def matches_of(self, number: int) -> Any:
        """The same of a filter that was begun."""
        while not (told := self.ask("matches", id=number).told)["ended"]:
            pass
        return told


@contextmanager
def viewed(path: object, *arguments: object) -> Iterator[Page]:
    """The page of a dataset, which ends as it should."""
    command = [*COMMAND, "view", str(path), *map(str, arguments)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert child.stdout is not None
    line = child.stdout.readline().strip()
    if not line:
        raise AssertionError(child.communicate()[1])
    try:
        yield Page(line)
    finally:
        child.send_signal(signal.SIGINT)
        said, complaints = child.communicate(timeout=30)
    assert (child.returncode, said, complaints) == (0, "", "")


def picture(index: int) -> np.ndarray[Any, Any]:
    """Pixels that are different for each index."""
    pixels = np.zeros((24, 32, 3), np.uint8)
    pixels[:, :, 0] = np.arange(32) * 8
    pixels[:, :, 1] = index % 256
    return pixels


def write_pictures(path: Path) -> Path:
    """A file of samples of every kind: COUNT of them, and DAMAGED is damaged."""
    schema = Schema.of(
        {
            "image": NDArrayField("uint8", (24, 32, 3)),
            "photo": JPEGField(),
            "label": LabelField(CLASSES),
            "number": IntField(),
            "text": StrField(),
            "values": NDArrayField("float32", (len(VALUES),)),
        }
    )
    with ffrecord.FileWriter(path, COUNT, extension=Extension(schema=schema.to_builtins())) as writer:
        for i in range(COUNT):
            text = NASTY if i == 1 else f"sample {i}"
            numbers = {"label": i % 3, "number": i * i, "values": np.float32(VALUES)}
            writer.write_one(schema.encode({"image": picture(i), "photo": picture(i), "text": text, **numbers}))
    return damage(path, DAMAGED)


def damage(path: Path, index: int) -> Path:
    """Have a byte of a sample not match its checksum any more."""
    with ffrecord.FileReader(path) as reader:
        damaged = int(reader.get_offsets(0)[index]) + 10
    with open(path, "r+b") as file:
        file.seek(damaged)
        byte = file.read(1)[0]
        file.seek(damaged)
        file.write(bytes([byte ^ 255]))
    return path


def write_odd_values(path: Path) -> Path:
    """A file of values that filters may take for others; the last two samples are UNDECODABLE and DAMAGED_ODD."""
    schema = Schema.of(
        {
            "label": LabelField(ODD_CLASSES),
            "ratio": FloatField(),
            "yes": BoolField(),
            "text": StrField(),
            "raw": BytesField(),
        }
    )
    ratios = [0.0, 1e-06, -2.5, 1e22, math.nan, math.inf, -math.inf, 1000.0, 7.0, 0.3]
    texts = ["cat", "Straße", "ΟΔΟΣ", "1e-06", "a, b", "ıI", "İ", "", "3..7", "true"]
    with ffrecord.FileWriter(path, len(ratios) + 2, extension=Extension(schema=schema.to_builtins())) as writer:
        for i, (ratio, text) in enumerate(zip([*ratios, 7.0, 7.0], [*texts, BROKEN, "cat"], strict=True)):
            sample = {"label": i % len(ODD_CLASSES), "ratio": ratio, "yes": i % 3 == 0, "text": text, "raw": b"%d" % i}
            record = bytes(schema.encode(sample))
            writer.write_one(record.replace(BROKEN.encode(), b"\xff" * len(BROKEN)))
    return damage(path, DAMAGED_ODD)


def write_numbers(path: Path, count: int) -> Path:
    """A file of very many small samples: each has its index, and it modulo a million."""
    schema = Schema.of({"number": IntField(), "label": IntField()})
    step = 1 << 18
    with ffrecord.FileWriter(path, count, extension=Extension(schema=schema.to_builtins())) as writer:
        for start in range(0, count, step):
            numbers = np.arange(start, min(start + step, count), dtype="<i8")
            rows = np.stack([numbers, numbers % 1_000_000], axis=1).tobytes()
            writer.write_many([rows[at : at + 16] for at in range(0, len(rows), 16)])
    return path
