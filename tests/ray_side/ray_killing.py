"""Killing what a Ray of this process runs: workers in the middle of a task, and whole nodes."""

import atexit
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}


def parents() -> dict[int, int]:
    """Process → its parent, of all that there are."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    found[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    return found


def title(pid: int) -> str:
    """What a process calls itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


class Killer:
    """A cluster of this machine, of which a thread kills workers and nodes while `at_work`.

    Args:
        directory: of Ray's own files, with a short name.
        nodes: beside the head, which runs no tasks.
        seed: of what is killed, and when.

    Attributes:
        workers, nodes: how many were killed.
        writing: how many of these were in a task of writing just then.
    """

    def __init__(self, directory: str, nodes: int, seed: int) -> None:
        os.environ["RAY_TMPDIR"] = directory
        head = {**NODE, "num_cpus": 0, "include_dashboard": False}
        # Handlers of signals could not be installed by the thread that replaces nodes.
        self.cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
        atexit.register(self.stop)
        self._nodes = [self._added() for _ in range(nodes)]
        self._random = random.Random(seed)
        self.workers = self.nodes = self.writing = 0

    def _added(self) -> Any:
        return self.cluster.add_node(**NODE)

    @contextmanager
    def at_work(self, most: int, every_node: int = 12) -> Iterator[None]:
        """Inside, something is killed again and again, up to `most` times; every so many kills it is a node."""
        end = threading.Event()
        thread = threading.Thread(target=self._kill, args=(end, most, every_node))
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def _kill(self, end: threading.Event, most: int, every_node: int) -> None:
        before = self.workers + self.nodes
        while self.workers + self.nodes - before < most and not end.wait(self._random.uniform(0.02, 0.5)):
            if (self.workers + self.nodes) % every_node == every_node - 1:
                self._kill_node()
            else:
                self._kill_worker()

    def _kill_worker(self) -> None:
        busy = _tasks(self._nodes)
        tasks = [pid for pid, what in busy.items() if "ffr" in what or "write" in what]
        if tasks:
            pid = self._random.choice(tasks)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return
            self.workers += 1
            self.writing += "write" in busy[pid]

    def _kill_node(self) -> None:
        node = self._nodes.pop(self._random.randrange(len(self._nodes)))
        writes = any("write" in what for what in _tasks([node]).values())
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes += 1
        self.writing += writes
        self._nodes.append(self._added())

    def stop(self) -> None:
        """End all of it; may be repeated."""
        atexit.unregister(self.stop)
        self.cluster.shutdown()
        os.environ.pop("RAY_TMPDIR", None)


def _tasks(nodes: list[Any]) -> dict[int, str]:
    """Process → what it is at, in small letters, of all below these nodes that have a task."""
    own = {process.process.pid for node in nodes for processes in node.all_processes.values() for process in processes}
    above = parents()
    titles = {pid: title(pid) for pid in above if _below(pid, own, above)}
    return {pid: what.lower() for pid, what in titles.items() if what.startswith("ray::") and "IDLE" not in what}


def _below(pid: int, roots: set[int], above: dict[int, int]) -> bool:
    while pid in above:
        pid = above[pid]
        if pid in roots:
            return True
    return False


def left_behind(seconds: float = 10) -> list[str]:
    """Titles of processes below this one that are Ray's, once they have had the time to end."""
    deadline = time.monotonic() + seconds
    while True:
        above = parents()
        found = [title(pid) for pid in above if _below(pid, {os.getpid()}, above)]
        found = [each for each in found if "ray" in each]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)
