"""What the fuzzer itself is tested by: a parser with defects, each behind comparisons that no seed passes."""

from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target

PARSER = "fuzz.targets.planted_parser"


def _target(name: str) -> Target:
    def prepare(scratch: Scratch) -> Run:
        from fuzz.targets import planted_parser

        return lambda data: planted_parser.parse(data, name)

    return Target(f"planted_{name}", prepare, _seeds, (PARSER,), size_most=1 << 12)


def _seeds(folder: Path) -> Iterator[bytes]:
    yield bytes(24)


TARGETS = [_target(name) for name in ("none", "error", "warning", "index", "memory", "crash", "hang", "recursion")]
