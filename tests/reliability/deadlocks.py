"""Children that a sanitizer's allocator never lets go on: forked while another thread of their parent had its lock.

The sanitizers of gcc 12 do not hold that lock around fork. In a run of the whole suite it happens to some children, and
costs each test that waits for one as long as it may take. So whoever runs the suite ends them.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
SPACE_END = {"x86_64": 0x640000000000}.get(os.uname().machine, 0)  # of the allocator; the locks of its sizes come next
LOCKS = range(SPACE_END, SPACE_END + (1 << 20))
LOOK_SECONDS = 15


def descendants(root: int) -> set[int]:
    """Processes that came of `root`, those excepted whose parent has ended."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found: set[int] = set()
    level = {root}
    while level:
        level = {child for child, parent in parents.items() if parent in level}
        found |= level
    return found


def waits_for_lock(process: int) -> bool:
    """Whether its only thread waits for a lock of the allocator."""
    with suppress(OSError, ValueError):
        call, address = Path(f"/proc/{process}/syscall").read_text().split()[:2]
        return int(call) == FUTEX and int(address, 16) in LOCKS and len(os.listdir(f"/proc/{process}/task")) == 1
    return False


@contextmanager
def ended(root: int) -> Iterator[list[int]]:
    """Kill such descendants of `root` while inside: their process ids, as they are killed."""
    killed: list[int] = []
    over = threading.Event()

    def look() -> None:
        waited: set[int] = set()
        while not over.wait(LOOK_SECONDS):
            waiting = set(filter(waits_for_lock, descendants(root)))
            for process in waiting & waited:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
                    killed.append(process)
            waited = waiting

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
