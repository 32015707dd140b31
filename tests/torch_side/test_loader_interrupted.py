"""Ctrl-C at a terminal reaches the program and all of its workers: one KeyboardInterrupt in the program, no process
left, no hang."""

import contextlib
import os
import signal
import time
from pathlib import Path

import children
import pytest

from ffrecord import DatasetWriter

SECONDS = 20  # patience with the end of a program; workers that do not end by themselves are killed after a second

PROGRAM = """
import os, sys, time
os.setsid()
import torch
from ffrecord.torch import Dataset, Loader

kind, path = sys.argv[1:]
slow = lambda sample: time.sleep(0.02) or sample
stuck = lambda sample: time.sleep(60) or sample
loader = {
    "threads": lambda: Loader(path, 8, num_threads=2, transform=slow),
    "processes": lambda: Loader(path, 8, num_workers=2, transform=slow),
    "stuck": lambda: Loader(path, 8, num_workers=2, transform=stuck),
    "kept": lambda: Loader(path, 8, num_workers=2, transform=slow, persistent_workers=True),
    "spawned": lambda: Loader(path, 8, num_workers=2, multiprocessing_context="spawn"),
    "torch": lambda: torch.utils.data.DataLoader(Dataset(path), 8, num_workers=2),
}[kind]()
print("begins", flush=True)
while True:
    for number, batch in enumerate(loader):
        if number == 3:
            print("runs", flush=True)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("interrupted") / "set"
    DatasetWriter(path, num_workers=0).from_indexed_dataset([{"x": i} for i in range(2000)])
    return str(path)


def running(group: int) -> list[str]:
    """The processes of a group that have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # ended meanwhile
            state, _, of_group = status.read_text().rpartition(")")[2].split()[:3]
            if int(of_group) == group and state != "Z":
                found.append(status.parent.name)
    return found


def interrupt(kind: str, path: str, line: str, wait: float) -> None:
    """Run the loop, press Ctrl-C some seconds after it has printed a line, and look at what is left."""
    with children.started(PROGRAM, kind, path) as program:
        assert program.stdout is not None
        for printed in program.stdout:
            if printed.strip() == line:
                break
        time.sleep(wait)
        os.killpg(program.pid, signal.SIGINT)
        try:
            _, said = program.communicate(timeout=SECONDS * children.PATIENCE)
        finally:
            left = not children.wait_until(lambda: not running(program.pid), 5 * children.PATIENCE)
            if left:
                os.killpg(program.pid, signal.SIGKILL)
    assert not left
    assert program.returncode == -signal.SIGINT, said
    assert said.count("Traceback (most recent call last)") == 1, said
    assert said.endswith("\nKeyboardInterrupt\n") and "Exception ignored" not in said, said


@pytest.mark.parametrize(
    "kind",
    ["threads", "processes", *(pytest.param(each, marks=pytest.mark.long) for each in ("kept", "spawned", "torch"))],
)
def test_while_batches_come(path: str, kind: str) -> None:
    interrupt(kind, path, "runs", 0.05)


def test_while_a_function_does_not_return(path: str) -> None:
    interrupt("stuck", path, "begins", 1)


@pytest.mark.parametrize("wait", [0.02, *(pytest.param(at / 100, marks=pytest.mark.long) for at in range(25))])
def test_while_workers_are_forked(path: str, wait: float) -> None:
    """Python ignores errors in its hooks around a fork: a Ctrl-C there was lost, and workers printed tracebacks."""
    interrupt("processes", path, "begins", wait)


@pytest.mark.parametrize("wait", [0.3, *(pytest.param(at / 4, marks=pytest.mark.long) for at in range(12))])
def test_while_workers_are_spawned(path: str, wait: float) -> None:
    """A spawned worker imports torch first, for a second or more."""
    interrupt("spawned", path, "begins", wait)
