"""Forks of a process that has imported the command: each is a process of its own, as for users, but begins at once.

As a program it is that process: for each message, which has the standard streams with it, it forks, and says how the
child ended.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from importlib import import_module

MESSAGE_MOST = 1 << 20


class Forked:
    """Starts the process; ends it with this one."""

    def __init__(self) -> None:
        self.ended = False
        self._ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-W", "error", __file__, str(its.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
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

    def close(self) -> None:
        """End it; may be repeated."""
        atexit.unregister(self.close)
        self._ours.close()
        self._process.wait(60)


def serve(connection: socket.socket) -> tuple[dict, list[int]]:
    """Fork for each message; returns only in the children."""
    while True:
        message, streams, *_ = socket.recv_fds(connection, MESSAGE_MOST, 3)
        if not message:
            os._exit(0)
        child = os.fork()
        if child == 0:
            connection.close()
            return json.loads(message), streams
        for stream in streams:
            os.close(stream)
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())


if __name__ == "__main__":
    from ffrecord.cli import main
    from ffrecord.cli.commands import COMMANDS, command

    for name in COMMANDS:
        command(name)
    for name in ("numpy.random", "ffrecord.reader", "ffrecord.dataset_writer", "ffrecord.cli.viewer.endpoints"):
        import_module(name)
    with suppress(ImportError):
        for name in ("agg", "svg", "pdf"):
            import_module(f"matplotlib.backends.backend_{name}")
    gc.freeze()  # its first round in a child would copy all pages
    asked, given = serve(socket.socket(fileno=int(sys.argv[1])))
    for number, stream in enumerate(given):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["ffrecord", *asked["arguments"]]
    code = main()
    # What Python does at the end, but for taking apart each module, which takes longer than most commands.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)
