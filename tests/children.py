"""Run Python in a child process, where a crash, a limit or a refused system call harms nobody else."""

import contextlib
import ctypes
import gc
import os
import platform
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from preloaded import WARNINGS

HERE = Path(__file__).parent
IMPORTED = ("engine", "kernels", "processes")  # folders with tests whose functions children import
# The sanitizer that this process runs under, which tests/reliability/sanitizers.py starts it with; children are slower.
SANITIZER = os.environ.get("FFRECORD_SANITIZED", "")
PATIENCE = 10 if SANITIZER else 1
# How a process ends that touches memory which is not there.
CRASH = signal.SIGABRT if SANITIZER else signal.SIGSEGV
limits_memory = pytest.mark.unsanitized("it has mapped more than any RLIMIT_AS allows")
measures_memory = pytest.mark.unsanitized("it keeps what is freed, and much beside")
# An exception of a handler may come between open and with, where resources.py asks how much memory is free.
interrupts = pytest.mark.filterwarnings("ignore:Exception ignored in.*_io:pytest.PytestUnraisableExceptionWarning")
# Not all are on aarch64, where their C functions make others.
SYSCALLS = {
    "x86_64": {
        "lseek": 8,
        "ioctl": 16,
        "pread64": 17,
        "pwrite64": 18,
        "mincore": 27,
        "madvise": 28,
        "socketpair": 53,
        "setsockopt": 54,
        "clone": 56,
        "fcntl": 72,
        "flock": 73,
        "fsync": 74,
        "ftruncate": 77,
        "rename": 82,
        "mkdir": 83,
        "link": 86,
        "fchmod": 91,
        "fchown": 93,
        "getrlimit": 97,
        "getrusage": 98,
        "sysinfo": 99,
        "fstatfs": 138,
        "prctl": 157,
        "fsetxattr": 190,
        "getxattr": 191,
        "fgetxattr": 193,
        "sched_getaffinity": 204,
        "io_setup": 206,
        "io_destroy": 207,
        "io_getevents": 208,
        "io_submit": 209,
        "getdents64": 217,
        "fadvise64": 221,
        "mkdirat": 258,
        "unlinkat": 263,
        "renameat": 264,
        "linkat": 265,
        "sync_file_range": 277,
        "fallocate": 285,
        "epoll_create1": 291,
        "dup3": 292,
        "preadv": 295,
        "prlimit64": 302,
        "syncfs": 306,
        "memfd_create": 319,
        "membarrier": 324,
        "copy_file_range": 326,
        "preadv2": 327,
        "pwritev2": 328,
        "clone3": 435,
        "statx": 332,
        "pidfd_open": 434,
        "close_range": 436,
    },
    "aarch64": {
        "io_setup": 0,
        "io_destroy": 1,
        "io_submit": 2,
        "io_getevents": 4,
        "fsetxattr": 7,
        "getxattr": 8,
        "fgetxattr": 10,
        "epoll_create1": 20,
        "dup3": 24,
        "fcntl": 25,
        "ioctl": 29,
        "flock": 32,
        "mkdirat": 34,
        "unlinkat": 35,
        "linkat": 37,
        "renameat": 38,
        "fstatfs": 44,
        "ftruncate": 46,
        "fallocate": 47,
        "fchmod": 52,
        "fchown": 55,
        "getdents64": 61,
        "lseek": 62,
        "pread64": 67,
        "pwrite64": 68,
        "preadv": 69,
        "fsync": 82,
        "sync_file_range": 84,
        "sched_getaffinity": 123,
        "getrlimit": 163,
        "getrusage": 165,
        "prctl": 167,
        "sysinfo": 179,
        "socketpair": 199,
        "setsockopt": 208,
        "fadvise64": 223,
        "mincore": 232,
        "madvise": 233,
        "prlimit64": 261,
        "syncfs": 267,
        "memfd_create": 279,
        "membarrier": 283,
        "copy_file_range": 285,
        "preadv2": 286,
        "pwritev2": 287,
        "statx": 291,
        "pidfd_open": 434,
        "close_range": 436,
    },
}


def run(code: str, *args: object, timeout: float = 60, check: bool = True, **environment: str) -> str:
    """What a child that runs `code` printed; the tests' modules can be imported, warnings are errors.

    Args:
        args: become sys.argv[1:].
        timeout: seconds; a child that hangs is a failure.
        check: the child must end with 0 and say nothing on stderr.
    """
    return finished(code, *args, timeout=timeout, check=check, **environment).stdout


def finished(
    code: str, *args: object, timeout: float = 60, check: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The same, with everything there is to know about its end."""
    command, environment = _command(code, *args), {**_environment(), **environment}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout * PATIENCE)
    if check:
        # One test uses up what all programs of the machine may have of it, for a moment.
        said = re.sub(r"Linux AIO was refused .*fs.aio-max-nr is used up.*\n", "", done.stderr)[-4000:]
        assert (done.returncode, said) == (0, ""), f"child ended with {done.returncode}\n{said}"
    return done


@contextlib.contextmanager
def started(code: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    """The same, running, with pipes to and from it; killed at the end if it has not ended."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(_command(code, *args), env=_environment(), text=True, **pipes) as child:
        try:
            yield child
        finally:
            child.kill()


def _command(code: str, *args: object) -> list[str]:
    return [sys.executable, "-X", "faulthandler", *WARNINGS, "-c", code, *map(str, args)]


def _environment() -> dict[str, str]:
    folders = [HERE, *(HERE / name for name in IMPORTED), HERE.parent]
    found = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": found, "OPENBLAS_NUM_THREADS": "1"}


@contextlib.contextmanager
def alarms(handler: Callable[..., None]) -> Iterator[None]:
    """SIGALRM goes to `handler` inside, and no timer is left behind."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def in_child(work: Callable[[], object]) -> int:
    """Exit status of a forked child that runs `work`: 0 if that returns something true."""
    return os.waitstatus_to_exitcode(os.waitpid(begin(work), 0)[1])


def begin(work: Callable[[], object]) -> int:
    """The same, not waited for: its process id."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(2)
    return child


def alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and is not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition: Callable[[], bool], seconds: float, pause: float = 0.01) -> bool:
    """Wait until a condition holds, and tell whether it does after at most `seconds`, more under a sanitizer."""
    deadline = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(pause)
    return condition()


def open_files(*, collect: bool = False) -> list[str]:
    """Return the numbers of the descriptors of this process, without sockets.

    Pools of connections that earlier tests used close theirs at any time.

    Args:
        collect: first let go of the files in garbage of earlier tests, which would else be closed at any time.
    """
    if collect:
        gc.collect()
    return [number for number, path in descriptors().items() if not path.startswith("socket:")]


def descriptors() -> dict[str, str]:
    """Number and target of every open descriptor."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue  # of the listing itself
    return found


def refuse(call: str, errno: int) -> None:
    """Make a system call of this process and its children answer `errno` from now on (seccomp).

    Raises:
        OSError: this machine allows no filters.
    """
    number = SYSCALLS[platform.machine()][call]
    program = b"".join(
        struct.pack("<HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),  # load the number of the call
            (0x15, 0, 1, number),  # equal? else skip one
            (0x06, 0, 0, 0x00050000 | errno),  # SECCOMP_RET_ERRNO
            (0x06, 0, 0, 0x7FFF0000),  # SECCOMP_RET_ALLOW
        )
    )
    libc = ctypes.CDLL(None, use_errno=True)
    instructions = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(instructions)))
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, header, 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "prctl")


def own_mounts() -> None:
    """From now on only this process and its children see what it mounts.

    Raises:
        OSError: this machine allows no mounts.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private = 0x20000, 0x44000  # CLONE_NEWNS; MS_REC | MS_PRIVATE
    if libc.unshare(new_namespace) or libc.mount(b"none", b"/", None, private, None):
        raise OSError(ctypes.get_errno(), "unshare")


def small_disk(directory: str, size: int) -> None:
    """Mount a tmpfs of `size` bytes that only this process and its children see.

    Raises:
        OSError: this machine allows no mounts.
    """
    own_mounts()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", os.fsencode(directory), b"tmpfs", 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "mount")


DIRECTORIES = "ffrecord-tests-"  # of names, before the number of the process that owns the directory


def remove_left_directories(place: Path) -> None:
    """Remove the directories of runs that were killed: what lies on tmpfs takes memory."""
    for directory in place.glob(f"{DIRECTORIES}*-*"):
        owner = directory.name.removeprefix(DIRECTORIES).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(directory, ignore_errors=True)
