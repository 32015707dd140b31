"""Forks of a process that has imported much already: each is a process of its own, as for users, but begins at once.

A program that imports calls `serve`. For each message, which has the standard streams with it, it forks, and says how
the child ended.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

MESSAGE_MOST = 1 << 20


class Forked:
    """Starts the process; ends it with this one.

    Args:
        program: calls `serve` with its last argument.
        options: of Python.
        variables: of its environment, besides those of this process.
    """

    def __init__(self, program: Path, *options: str, **variables: str) -> None:
        self.ended = False
        self._ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, *options, str(program), str(its.fileno())],
            env={**os.environ, **variables},
            pass_fds=[its.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        its.close()
        atexit.register(self.close)

    def run(self, arguments: list[str], streams: list[int], cwd: str, timeout: float) -> int:
        """The exit code of a run; below 0 the signal that ended it.

        Raises:
            TimeoutError: it took longer. All that was started has ended, so that no later run gets its answer.
        """
        self._ours.settimeout(timeout)
        message = json.dumps({"arguments": arguments, "cwd": cwd, "environment": dict(os.environ)}).encode()
        socket.send_fds(self._ours, [message], streams)
        try:
            return int(self._ours.recv(64))
        except TimeoutError:
            self.ended = True
            os.killpg(self._process.pid, signal.SIGKILL)
            self.close()
            raise

    def run_captured(
        self, arguments: list[str], cwd: str, timeout: float, into: str | None = None
    ) -> tuple[int, str, str]:
        """The exit code of a run without a terminal, and what it printed; `into`: a device for stdout.

        Raises:
            TimeoutError: as `run`.
        """
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(into or os.devnull, "r+") as device:
            streams = [device.fileno(), device.fileno() if into else out.fileno(), err.fileno()]
            code = self.run(arguments, streams, cwd, timeout)
            said = [os.pread(file.fileno(), 1 << 30, 0).decode(errors="surrogateescape") for file in (out, err)]
            return code, said[0], said[1]

    def close(self) -> None:
        """End it; may be repeated."""
        atexit.unregister(self.close)
        self._ours.close()
        self._process.wait(60)


def serve(number: int) -> list[str]:
    """Fork for each message; returns only in the children, with their arguments, streams, directory and variables.

    Args:
        number: of the descriptor of a socket.
    """
    connection = socket.socket(fileno=number)
    while True:
        message, streams, *_ = socket.recv_fds(connection, MESSAGE_MOST, 3)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            connection.close()
            return _enter(json.loads(message), streams)
        for stream in streams:
            os.close(stream)
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


def _enter(asked: dict, streams: list[int]) -> list[str]:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    return asked["arguments"]
