"""nginx for the time of a benchmark, as in the tests: ranges of files over loopback, each answer after a delay."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "remote"))

from nginx_server import Nginx, missing, serving

__all__ = ["Nginx", "missing", "serving", "versions"]


def versions() -> dict[str, str]:
    """Return the versions of the server, and of the clients."""
    commands = {"nginx": ["nginx", "-v"], "wrk": ["wrk", "-v"], "curl": ["curl", "--version"]}
    return {name: _version(command) for name, command in commands.items()}


def _version(command: list[str]) -> str:
    """Return the first number in the output of a program, on either stream, with any exit status."""
    if shutil.which(command[0]) is None:
        return "not installed"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.[^\s]+", done.stdout + done.stderr)
    return found[0] if found else "unknown"
