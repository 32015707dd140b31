"""Log what a writer does, then cut the power at any moment and see what becomes of it. Preloaded: disk_calls.c."""

import hashlib
import json
import logging
import os
import random
import sys
from pathlib import Path

from crash_case import Case
from crash_cases import cases
from disk_calls import Calls, logged
from lossy_disk import Files, LossyDisk, cut, empty


def recorded(case: Case, log: Path) -> LossyDisk:
    """What the work of a case does to its directory."""
    case.fresh()
    disk = LossyDisk(case.place)
    with open(log, "wb", buffering=0) as file:
        child = os.fork()
        if child == 0:
            calls = Calls()
            calls.log(file.fileno(), case.place)
            case.work(calls.mark)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    disk.did(logged(log.read_bytes()))
    return disk


def digest(files: Files, said: int) -> bytes:
    """Of everything that `check` is told."""
    found = hashlib.blake2b(repr((said, sorted(files.directories.items()))).encode())
    for number, content in sorted(files.files.items()):
        found.update(b"%d %d " % (number, len(content)) + content)
    return found.digest()


def replayed(case: Case, disk: LossyDisk, count: int, chance: random.Random) -> int:
    """Check `count` disks that a power cut may leave, or all there seem to be; how many."""
    ends = list(range(len(disk.effects) + 1))
    chance.shuffle(ends)
    seen: set[bytes] = set()
    for turn in range(8 * count):
        if len(seen) >= count:
            break
        end = ends[turn % len(ends)]
        lost, torn = cut(disk, chance, end)
        files, said = disk.after(end, lost, torn), disk.said(end)
        mark = digest(files, said)
        if mark in seen:
            continue
        seen.add(mark)
        empty(case.place)
        files.put(case.place)
        try:
            case.check(said, synced=True)
        except BaseException:
            print(f"cut after {end} of {len(disk.effects)} effects, lost {sorted(lost)}, torn {torn}", file=sys.stderr)
            for i, effect in enumerate(disk.effects[: end + 3]):
                print(i, "lost" if i in lost else "", str(effect)[:160], file=sys.stderr)
            raise
    return len(seen)


def main(root: str, given: str) -> None:
    """Print as JSON how many power cuts each case went through.

    Args:
        root: an empty directory to do it in.
        given: as JSON: cuts by case, and the seed.
    """
    logging.getLogger("ffrecord").setLevel(logging.ERROR)  # or each write says that it goes on
    numbers, found = json.loads(given), {}
    made, chance = cases(Path(root)), random.Random(numbers["seed"])
    for name, count in numbers["cases"].items():
        case = made[name]()
        disk = recorded(case, Path(root) / "log")
        try:
            found[name] = replayed(case, disk, count, chance)
        except BaseException:
            print(f"case {name!r}", file=sys.stderr)
            raise
    print(json.dumps(found))
