"""Two result files, measurement by measurement: `python compare.py BEFORE.jsonl AFTER.jsonl`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import table
from human import three

Key = tuple[str, str, str, str]  # bench, workload as JSON, cache, contestant
Record = dict[str, Any]


class DifferentWorkloadsError(Exception):
    """The error that two files do not measure the same."""


def load(path: Path) -> dict[Key, Record]:
    """Load the measurements of a file; of several of the same, the last."""
    records = map(json.loads, path.read_text().splitlines())
    return {key_of(record): record for record in records}


def key_of(record: Record) -> Key:
    workload = json.dumps(record["workload"], sort_keys=True)
    return record["bench"], workload, record["cache"], record["contestant"]


def require_same_workloads(before: dict[Key, Record], after: dict[Key, Record]) -> None:
    """Raise unless all workloads of common measurements are equal; contestants may come and go."""
    left, right = ({key[:3] for key in records} for records in (before, after))
    if left != right:
        lines = (f"  {', '.join(key)}" for key in sorted(left ^ right))
        raise DifferentWorkloadsError("\n".join(["these workloads are in one file only:", *lines]))


def row(before: Record, after: Record) -> list[str]:
    """Return a row; a change is none if the rounds of both overlap with it."""
    ratio = before["median_seconds"] / after["median_seconds"]
    overlap = before["min_seconds"] <= after["max_seconds"] and after["min_seconds"] <= before["max_seconds"]
    rates = [three(record["gigabytes_per_second"]) for record in (before, after)]
    return [name(before), *rates, f"{ratio:.2f}", "" if overlap else "faster" if ratio > 1 else "slower"]


def name(record: Record) -> str:
    fields = {name: value for name, value in record["workload"].items() if name not in ("seed", "kind") and value}
    about = " ".join(f"{name}={value}" for name, value in fields.items())
    return f"{record['bench']} {about}, {record['cache']}: {record['contestant']}"


def comparison(before: dict[Key, Record], after: dict[Key, Record]) -> str:
    rows = [row(record, after[key]) for key, record in before.items() if key in after]
    lines = [table(["GB/s", "before", "after", "after / before", ""], rows)]
    for key, record in {**before, **after}.items():
        if key not in before or key not in after:
            lines.append(f"{name(record)}: only in the {'first' if key in before else 'second'} file")
    return "\n".join(lines)


def warnings(before: dict[Key, Record], after: dict[Key, Record]) -> list[str]:
    """Return reasons why the files may not be comparable."""
    first, second = (next(iter(records.values())) for records in (before, after))
    names = ("machine", "fs", "crc_kernel")
    return [
        f"{name} differs: {first.get(name)}, {second.get(name)}"
        for name in names
        if first.get(name) != second.get(name)
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    given = parser.parse_args(arguments)
    before, after = load(given.before), load(given.after)
    try:
        require_same_workloads(before, after)
    except DifferentWorkloadsError as error:
        sys.exit(f"{given.before.name}, {given.after.name}: {error}")
    print(*warnings(before, after), comparison(before, after), sep="\n")


if __name__ == "__main__":
    main()
