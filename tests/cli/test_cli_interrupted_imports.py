"""Ctrl-C while modules are imported: it goes its way, and is not swallowed by what is written in C."""

import signal
import subprocess
import sys

import pytest

from ffrecord import DatasetWriter

# A finder that is interrupted where it looks for the module of a name, or for the n-th module, once.
INTERRUPTED = """
import importlib, os, sys
at = None

class Interrupted:
    count, at, name = 0, None, None

    def find_spec(self, name, path, target=None):
        Interrupted.count += 1
        if at in (name, Interrupted.count) and not self.name:
            Interrupted.name = name
            raise KeyboardInterrupt

def attempt(module):
    try:
        importlib.import_module(module)
    except KeyboardInterrupt:
        return "raised"
    except BaseException as error:
        return repr(error)
    return "swallowed" if Interrupted.name else "not reached"

sys.meta_path.insert(0, Interrupted())
"""


def said(code, *arguments):
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize("module", ["ffrecord.format.manifest", "ffrecord.reader"])
@pytest.mark.parametrize("at", ["datetime", "_datetime"])
def test_an_interrupt_is_not_swallowed_by_msgspec_or_numpy(tmp_path, module, at):
    DatasetWriter(tmp_path / "a", num_workers=0, progress=False).from_indexed_dataset([1, 2, 3])
    code = f"""{INTERRUPTED}
at = sys.argv[1]
print(attempt(sys.argv[2]))
import ffrecord
print(ffrecord.FileReader(sys.argv[3]).n)
"""
    assert said(code, at, module, str(tmp_path / "a")) == ["raised", "3"]


@pytest.mark.long
@pytest.mark.parametrize(
    "module", ["ffrecord.cli.commands.info", "ffrecord.cli.commands.merge", "ffrecord.cli.commands.view"]
)
def test_an_interrupt_is_swallowed_by_no_module(module):
    code = f"""{INTERRUPTED}
import ffrecord
at = first = Interrupted.count
while True:
    at += 1
    ours, its = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(its, f"{{attempt(sys.argv[1])}} {{Interrupted.name}}".encode())
        os._exit(0)
    os.close(its)
    found = os.read(ours, 1000).decode()
    os.close(ours)
    ended = os.waitpid(child, 0)[1]
    found = found or f"{{at}} ended by {{ended}}"
    if found.startswith("not reached"):
        break
    if not found.startswith("raised"):
        print(found)
print(at - first > 100)
"""
    assert said(code, module) == ["True"]


def test_an_interrupt_while_a_command_is_imported_is_told():
    code = f"""{INTERRUPTED}
import ffrecord
from ffrecord.cli import main
at = "numpy"
print(main(["info", "x"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("130\n", "ffrecord info: interrupted\n")


def test_a_signal_while_a_command_is_imported_is_no_error_of_a_module():
    """Such as numpy 2.2, which tells of a KeyboardInterrupt in its import as of a RuntimeError of its own."""
    code = """
import os, signal, sys
class Interrupted:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            try:
                os.kill(os.getpid(), signal.SIGINT)
            except KeyboardInterrupt:
                raise RuntimeError("CPU dispatcher tracer already initlized") from None
from ffrecord.cli import main
sys.meta_path.insert(0, Interrupted())
print(main(["info", "x"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("130\n", "ffrecord info: interrupted\n")


def test_a_second_signal_does_not_wait():
    """For an import that does not end; nor does SIGTERM."""
    code = """
import os, signal, sys, threading, time
class Slow:
    def find_spec(self, name, path, target=None):
        if name == "numpy":
            for number in map(int, sys.argv[1:]):
                os.kill(os.getpid(), number)
                time.sleep(0.05)
            time.sleep(30)
from ffrecord.cli import main
sys.meta_path.insert(0, Slow())
print(main(["info", "x"]))
"""

    def ended(*signals):
        command = [sys.executable, "-c", code, *(str(int(each)) for each in signals)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)

    assert ended(signal.SIGTERM).returncode == -signal.SIGTERM
    twice = ended(signal.SIGINT, signal.SIGINT)
    assert (twice.stdout, twice.stderr) == ("130\n", "ffrecord info: interrupted\n")
