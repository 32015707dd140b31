"""tf.train.Example messages, parsed in batches to one array for each feature."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise, starmap
from typing import Any

import formats_data
import numpy as np
import workloads
from harness import Contestant, Measurement, WrongAnswerError, measure
from waits import Waits

from ffrecord.sources import ExampleParser, FixedFeature

SHAPE = (32, 32, 3)
Columns = dict[str, Any]


class Messages:
    """The messages, back to back as a reader returns them, and their contents."""

    def __init__(self, work: workloads.Examples) -> None:
        random = np.random.default_rng(work.seed)
        self.kind = formats_data.example_class()
        self.columns: Columns = {
            "image": random.integers(0, 256, (work.count, *SHAPE), np.uint8),
            "label": random.integers(-(2**40), 2**40, work.count),
            "values": random.random((work.count, work.values), np.float32),
        }
        encoded = [self._encode(row) for row in zip(*self.columns.values(), strict=True)]
        ends = np.cumsum([0, *map(len, encoded)])
        data = np.frombuffer(b"".join(encoded), np.uint8)
        self.size, self.batches = len(data), []
        for at in range(0, work.count, work.batch):
            bounds = ends[at : at + work.batch + 1]
            self.batches.append((data[bounds[0] : bounds[-1]], bounds - bounds[0]))

    def _encode(self, row: tuple[Any, ...]) -> bytes:
        message, (image, label, values) = self.kind(), row
        features = message.features.feature
        features["image"].bytes_list.value.append(image.tobytes())
        features["label"].int64_list.value.append(int(label))
        features["values"].float_list.value.extend(values.tolist())
        encoded: bytes = message.SerializeToString()
        return encoded


def by_protobuf(kind: Any, data: Any, offsets: Any) -> Columns:
    """Parse them one by one, as protobuf's users do, and put them into arrays."""
    images, labels, values = [], [], []
    buffer = data.tobytes()
    for low, high in pairwise(offsets.tolist()):
        features = kind.FromString(buffer[low:high]).features.feature
        images.append(np.frombuffer(features["image"].bytes_list.value[0], np.uint8))
        labels.append(features["label"].int64_list.value[0])
        values.append(np.array(features["values"].float_list.value, np.float32))
    return {"image": np.stack(images).reshape(-1, *SHAPE), "label": np.array(labels), "values": np.stack(values)}


def only_parsed(kind: Any, data: Any, offsets: Any) -> Columns:
    """Parse with protobuf, without using the result."""
    buffer = data.tobytes()
    for low, high in pairwise(offsets.tolist()):
        kind.FromString(buffer[low:high])
    return {}


def check(name: str, parse: Callable[[Any, Any], Columns], messages: Messages) -> None:
    found = [parse(*batch) for batch in messages.batches]
    if not found[0]:
        return
    for column, expected in messages.columns.items():
        if not np.array_equal(np.concatenate([each[column] for each in found]).reshape(expected.shape), expected):
            raise WrongAnswerError(f"{name}: {column} is not what was encoded")


def parsed(work: workloads.Examples, rounds: int) -> list[Measurement]:
    messages = Messages(work)
    features = {
        "image": FixedFeature("uint8", SHAPE),
        "label": FixedFeature("int64", ()),
        "values": FixedFeature("float32", (work.values,)),
    }
    parser = ExampleParser(features)
    ways: dict[str, tuple[Callable[[Any, Any], Columns], str]] = {
        "ExampleParser.parse_batch": (parser.parse_batch, "ours"),
        "google.protobuf, to arrays": (partial(by_protobuf, messages.kind), "peer"),
        "google.protobuf, parsed only": (partial(only_parsed, messages.kind), "peer"),
    }
    contestants = [contestant(name, parse, messages) for name, (parse, _) in ways.items()]
    taken = measure(contestants, rounds)
    found = []
    for each in contestants:
        details = {"role": ways[each.name][1], **each.details}
        found.append(Measurement(each.name, work, taken[each.name], messages.size, work.count, "hot", details))
    return found


def contestant(name: str, parse: Callable[[Any, Any], Columns], messages: Messages) -> Contestant:
    """Return a contestant that keeps the columns of all batches."""
    waits = Waits(len(messages.batches))

    def run() -> float:
        kept: list[Columns] = []
        return waits.record(starmap(parse, messages.batches), kept.append)

    return Contestant(name, run, partial(check, name, parse, messages), waits)
