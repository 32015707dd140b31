"""What the leak tests have in common: loops in a child, which count what the process has before and after."""

import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path

import children

LOOP = """
import contextlib, gc, itertools, os, resource, sys, tempfile, threading, time
import children

SHARED = "/dev/shm"
STEADY = 500  # bytes a time, in every quarter
with contextlib.suppress(OSError):  # where it is everybody's, what others put there is taken for ours
    children.small_disk(SHARED, 256 << 20)
    SHARED_IS_OURS = True

import logging, warnings
from collections import Counter
import numpy as np
import builders
from ffrecord import FFRecordError, FileReader, FileWriter
from ffrecord.kernels import _threads
warnings.simplefilter("ignore", ResourceWarning)
logging.disable()

def descriptors():
    found = {number: target for number, target in children.descriptors().items() if not target.startswith("/proc/")}
    return sorted(found.values())

def contexts():
    with open("/proc/self/maps") as lines:
        return sum("[aio]" in line for line in lines)

def tasks():
    return len(os.listdir("/proc/self/task"))

def processes():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return len(file.read().split())

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def files(*directories):
    shared = [SHARED] if "SHARED_IS_OURS" in globals() else []
    walks = map(os.walk, [*directories, tempfile.gettempdir(), *shared])
    return sorted(os.path.join(at, name) for walk in walks for at, folders, found in walk for name in folders + found)

def loop(work, times, slope, where, kept, settle):
    '''Run it `times` after a warm-up. Nothing may grow: descriptors, processes, AIO contexts unless they are `kept` for
    the next batches, files and shared memory; but memory may, by less than `slope` bytes a time. Threads of users'
    functions have `settle` seconds to end.'''
    def have():
        numbers = Counter(processes=processes(), contexts=0 if kept else contexts())
        return Counter(descriptors()) + Counter(files(*where)) + numbers
    for _ in range(max(min(10, times), times // 5)):
        work()
    gc.collect()
    before, memory = have(), [resident()]
    for quarter in range(4):
        for _ in range(times * quarter // 4, times * (quarter + 1) // 4):
            work()
        gc.collect()
        memory.append(resident())
    at, until = globals().get("turn", ""), time.monotonic() + settle
    # What the warm-up had not let go of yet may be gone, so nothing more than before is asked for, not the same.
    while have() - before and time.monotonic() < until:
        time.sleep(0.01)
        gc.collect()
    assert not have() - before, (at, have() - before)
    # Threads of the engine stay for a second, for whoever reads next.
    assert (tasks() <= 1 + 32, contexts() <= 16) == (True, True), (at, tasks(), contexts())
    assert _threads.stats()["queued"] == 0
    # A thread of the engine that ended and came again has a new stack, and an arena of malloc; but not in each quarter.
    grown, quarters = memory[-1] - memory[0], [after - before for before, after in itertools.pairwise(memory)]
    # Arenas of threads fill up over the first hundred times.
    noise = 64 << 10 if times >= 100 else 256 << 10
    steady = min(quarters) > max(STEADY * times // 4, noise)
    assert children.SANITIZER or grown <= max(slope * times, 2 << 20), f"{at}: {grown} bytes after {times}"
    assert children.SANITIZER or not steady, f"{at}: {quarters} bytes in the quarters of {times}"

def refused(open, *arguments, **options):
    try:
        open(*arguments, **options)
    except (FFRecordError, OSError, AssertionError):
        return
    raise SystemExit(f"{arguments} was opened")
"""


def run(
    work: str,
    times: int,
    slope: int,
    *arguments: object,
    turns: Sequence[str] = (),
    files: Sequence[Path] = (),
    kept: bool = False,
    after: str = "",
    settle: float = 0,
) -> str:
    """Run the function `work` of that code in a child, so many times; nothing may grow but memory, by `slope` a time.

    2 MiB in all, and 64 KiB in each quarter of the times (256 of fewer than 100), are not told from noise. So a leak of
    memory that is the same each time is noticed from 500 bytes a time on in 1,000 times and more, from 900 in 300; one
    that is now and then, from 2 MiB / `times` on. All else is counted exactly.

    What the child printed is returned.

    Args:
        arguments: what the code finds in sys.argv[1:].
        turns: do so once for each, which the code finds in `turn`.
        files: directories to look for new files in, besides those of temporary files and shared memory.
        kept: AIO contexts are kept for the next batches, so they are few, not equal.
        after: code that runs when all was done, in each turn.
        settle: seconds that threads have to let go of what they hold.
    """
    code = f"{work}\nloop(work, {times}, {slope}, {list(map(str, files))}, {kept}, {settle})\n{after}"
    if turns:
        code = f"for turn in {tuple(turns)}:\n{textwrap.indent(code, '    ')}"
    with tempfile.TemporaryDirectory(prefix="leaks-") as temporary:
        return children.run(f"{LOOP}{code}", *arguments, timeout=600, TMPDIR=temporary)
