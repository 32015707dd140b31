"""T12 (guarantees G1, G7, G8): a parent that is interrupted, terminated or killed leaves no orphan and nothing half."""

import contextlib
import multiprocessing
import os
import shutil
import signal
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import children
import dying
import numpy as np
import pytest
from children import wait_until
from dying import OPERATIONS, Fatal
from figures import Counted, counts
from written_datasets import files_in, left_behind, read_all

from ffrecord import FileReader, FileWriter, pack_folder

SIGNALS = {
    "Ctrl-C": signal.SIGINT,
    "SIGTERM": signal.SIGTERM,
    "SIGHUP": signal.SIGHUP,
    "SIGKILL": signal.SIGKILL,
}
CODES = {"Ctrl-C": 130, "SIGTERM": 143, "SIGHUP": 129, "SIGKILL": -9}
BEGUN = 0.3  # seconds within which an operation may be anywhere, its end included


def in_session(leader: int) -> list[int]:
    """Processes of a session that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # ended meanwhile
        if int(session) == leader and state != "Z":
            found.append(int(path.parent.name))
    return found


def begin(kind: str, directory: Path) -> int:
    """The operation, in a process that leads a session of its own."""
    return begin_other(lambda: OPERATIONS[kind](Fatal(pause=0.0005), directory / "set"))


def begin_other(work: Callable[[], None]) -> int:
    """The same of any work; when this returns there is that session."""
    ready, begun = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
            signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Ray sets one of its own in a process that has used it
            os.close(ready)
            os.close(begun)
            code = _code_of(work)
        finally:
            os._exit(code)
    os.close(begun)
    os.read(ready, 1)
    os.close(ready)
    return pid


def _code_of(work: Callable[[], None]) -> int:
    """What it ends with; by then it has let go of everything, as at the end of a program."""
    try:
        work()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # or it might come on the way to the exit
    except KeyboardInterrupt:
        return 130
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException:
        traceback.print_exc()  # or nothing would tell of it: the process ends without its parent's pytest
        raise
    return 0


def is_whole(directory: Path, kind: str) -> bool:
    """What is under the name is complete, and there is something."""
    place = directory / "set"
    if not place.exists():
        return False
    if kind == "export":
        return len(files_in(place)) == -(-dying.N // 50)
    if kind == "alike":
        with FileReader(place) as reader:
            return reader.samples(range(len(reader))) == [dying.pair_at(i) for i in range(dying.N)]
    samples = read_all(place)
    wanted = [dying.sample_at(i) for i in range(dying.N)]
    return samples in ([*wanted], [b"old 0", b"old 1", *wanted], [b"old 0", b"old 1"])


def remains(directory: Path, name: str) -> list[str]:
    """What is there beside the dataset."""
    found = left_behind(directory) if name != "SIGKILL" else os.listdir(directory)
    return sorted(set(found) - {"set"})


def end(pid: int, name: str) -> int:
    """Have it end, and all of its session with it; its exit code."""
    sent = time.monotonic()
    # What comes of a terminal goes to all processes, the others to the parent alone.
    (os.killpg if name in ("Ctrl-C", "SIGHUP") else os.kill)(pid, SIGNALS[name])
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert wait_until(lambda: not in_session(pid), 1.5), in_session(pid)
    assert time.monotonic() - sent < 5 * children.PATIENCE
    return code


@counts(1, 8)
@pytest.mark.parametrize("name", SIGNALS)
@pytest.mark.parametrize("kind", OPERATIONS)
def test_the_parent_ends(
    tmp_path: Path, random: np.random.Generator, kind: str, name: str, count: int, counted: Counted
) -> None:
    """At any time."""
    for turn in range(count):
        directory = tmp_path / str(turn)
        directory.mkdir()
        pid = begin(kind, directory)
        time.sleep(0.02 + float(random.random()) * BEGUN)
        code = end(pid, name)
        assert code in (0, CODES[name], -SIGNALS[name]), code
        assert is_whole(directory, kind) or "set" not in os.listdir(directory)
        left = remains(directory, name)
        assert left == [] or (name == "SIGKILL" and len(left) == 1 and left[0].startswith(".set.")), left
        counted.add("ends of a parent")
        shutil.rmtree(directory)


def leaves_no_worker(directory: Path) -> None:
    """Python would wait for one at its end, for ever."""
    try:
        OPERATIONS["alike"](Fatal(pause=0.0005), directory / "set")
    finally:
        if multiprocessing.active_children():
            os._exit(98)


TWO = [("SIGHUP", "SIGTERM"), ("SIGTERM", "SIGHUP"), ("Ctrl-C", "SIGTERM"), ("Ctrl-C", "Ctrl-C")]


@counts(3, 30)
@pytest.mark.parametrize("apart", [0.0, 0.0002, 0.005])
@pytest.mark.parametrize("names", TWO, ids="+".join)
def test_two_signals(
    tmp_path: Path, random: np.random.Generator, names: tuple[str, str], apart: float, count: int, counted: Counted
) -> None:
    """The second one comes while the first one has all ended, or just before; both at once where the process sleeps."""
    for turn in range(count):
        directory = tmp_path / str(turn)
        directory.mkdir()
        pid = begin_other(lambda directory=directory: leaves_no_worker(directory))
        time.sleep(0.02 + float(random.random()) * BEGUN)
        if not apart:
            os.kill(pid, signal.SIGSTOP)
        os.kill(pid, SIGNALS[names[0]])
        time.sleep(apart)
        os.kill(pid, SIGNALS[names[1]])
        os.kill(pid, signal.SIGCONT)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        assert wait_until(lambda pid=pid: not in_session(pid), 1.5), in_session(pid)
        assert code in (0, *(CODES[name] for name in names), *(-SIGNALS[name] for name in names)), code
        assert is_whole(directory, "alike") or "set" not in os.listdir(directory)
        assert remains(directory, names[0]) == []
        counted.add("ends of a parent")
        shutil.rmtree(directory)


@counts(5, 1000)
@pytest.mark.parametrize("name", ["Ctrl-C", "SIGTERM", "SIGHUP"])
def test_packing_a_folder_ends(
    tmp_path: Path, random: np.random.Generator, name: str, count: int, counted: Counted
) -> None:
    """At any time, as soon as there is a file."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for i in range(1500):
        (folder / f"{i:04}").write_bytes(bytes(100))
    for turn in range(count):
        out = tmp_path / str(turn)
        out.mkdir()
        pid = begin_other(lambda out=out: pack_folder(folder, out / "set.ffr"))
        assert wait_until(lambda out=out: bool(os.listdir(out)), 10, pause=0.0003)
        time.sleep(float(random.random()) * 0.02 * (turn % 2))
        code = end(pid, name)
        assert code in (0, CODES[name], -SIGNALS[name]), code
        assert os.listdir(out) in ([["set.ffr"]] if code == 0 else [[], ["set.ffr"]]), code
        counted.add("ends of a parent")


def write_three(path: Path) -> None:
    with FileWriter(path, 3) as writer:
        for _ in range(3):
            writer.write_one(b"x")


# One that is interrupted as `with` begins or ends is dropped, and says so.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:Exception ignored in")
@counts(150, 5000)
def test_a_writer_interrupted_at_any_time(tmp_path: Path, random: np.random.Generator, count: int) -> None:
    """While it is made, too, when nobody has it yet who could close it."""
    with children.alarms(signal.default_int_handler):
        for _ in range(count):
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 1e-6 + float(random.random()) * 4e-4)
                write_three(tmp_path / "a.ffr")
                signal.setitimer(signal.ITIMER_REAL, 0)
            left = os.listdir(tmp_path)
            assert left in ([], ["a.ffr"]), left
            for name in left:
                os.unlink(tmp_path / name)
