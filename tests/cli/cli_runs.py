"""The command, run as users run it: a process of its own, with or without a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from forked import Forked

COMMAND = [sys.executable, "-W", "error", "-m", "ffrecord"]


class Ran(NamedTuple):
    """What became of it."""

    code: int
    out: str
    err: str


@cache
def _forked() -> Forked:
    return Forked(Path(__file__).parent / "forked_command.py", "-W", "error")


def forked() -> Forked:
    """Made once, and again when a run took too long."""
    if _forked().ended:
        _forked.cache_clear()
    return _forked()


def run(*arguments: object, timeout: float = 60, cwd: object = ".", into: str | None = None) -> Ran:
    """Without a terminal, in a fork of a process that has imported the command; `into`: a device for stdout."""
    return Ran(*forked().run_captured([*map(str, arguments)], os.path.abspath(str(cwd)), timeout, into))


def run_afresh(*arguments: object, timeout: float = 60, **more: object) -> Ran:
    """Without a terminal, in a new process that imports everything."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL, **more)  # type: ignore[call-overload]
    return Ran(done.returncode, done.stdout, done.stderr)


def run_in_terminal(*arguments: object, columns: int = 80, timeout: float = 60) -> Ran:
    """Run it in a terminal of that many columns; `out` has both streams, `err` nothing."""
    try:
        ours, its = pty.openpty()
    except OSError as error:
        pytest.skip(f"no terminal can be made here: {error}")
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    child = subprocess.Popen([*COMMAND, *map(str, arguments)], stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    said = bytearray()
    try:
        while True:
            said += os.read(ours, 65536)
    except OSError:  # EIO: the other end is closed
        pass
    finally:
        os.close(ours)
    return Ran(child.wait(timeout), said.decode().replace("\r\n", "\n"), "")
