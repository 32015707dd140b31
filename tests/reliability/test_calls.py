"""T4, T5 (guarantee G2): no system call goes past the table that a test build can change; release builds have none."""

import re
from pathlib import Path

import children
import faults
import pytest

PACKAGE = Path(__file__).parents[2] / "ffrecord"
TABLE = (Path(__file__).parent / "_faults.h").read_text()
# Under the same name in calls.h: of a release build just that function.
CALLS = sorted(set(re.findall(r"#define call_(\w+)", (PACKAGE / "system" / "calls.h").read_text())))
SOURCES = sorted(
    path
    for path in PACKAGE.rglob("*")
    if path.suffix in {".pyx", ".pxi", ".pxd", ".h"} and path.name not in ("calls.h", "_calls.pxd")
)
# Whatever else there is that asks the kernel for data, or gives it any.
OTHERS = (
    "read",
    "readv",
    "write",
    "writev",
    "pwritev",
    "lseek",
    "fsync",
    "fdatasync",
    "rename",
    "unlink",
    "link",
    "mkdir",
)
OTHERS += (
    "ftruncate",
    "truncate",
    "posix_fallocate",
    "sendfile",
    "splice",
    "copy_file_range",
    "readahead",
    "syscall",
    "dup",
)
OTHERS += ("dup2", "msync", "mremap", "mlock", "fork", "vfork", "socket", "statfs", "lstat", "fdopendir", "scandir")
COMMENT = re.compile(r'"""(?s:.)*?"""|/\*(?s:.)*?\*/|//[^\n]*|#(?!\s*define)[^\n]*')

# Of Python's `os`, what asks for nothing that is in a file, or goes by way of what the table has.
HARMLESS = {"fspath", "fsencode", "fsdecode", "strerror", "getpid", "getppid", "geteuid", "getcwd", "getcwdb"}
HARMLESS |= {"sysconf", "sched_getaffinity", "cpu_count", "register_at_fork", "minor", "major", "access", "_exit"}
HARMLESS |= {"pipe", "memfd_create", "pidfd_open"}  # of no file
HARMLESS |= {"readlink"}  # of /proc/self alone
HARMLESS |= {"dup", "fchown", "getxattr", "setxattr"}  # refused in test_refused_calls.py; but for dup, done without
HARMLESS |= {"walk", "fwalk", "makedirs"}  # by scandir, by mkdir
HARMLESS |= {"lseek"}  # to look for holes; done without where it fails


def code(path: Path) -> str:
    """Without comments, docstrings and what Python says in strings."""
    text = path.read_text()
    if path.suffix == ".h":
        return re.sub(r"/\*(?s:.)*?\*/|//[^\n]*", "", text)
    verbatim = "".join(re.findall(r'cdef extern from \*.*?:\s+"""((?s:.)*?)"""', text))
    return COMMENT.sub("", text) + re.sub(r"/\*(?s:.)*?\*/", "", verbatim)


def past(text: str) -> list[str]:
    """Calls by their own names: not of a method, not part of another name, not the definition of a method."""
    names = "|".join(sorted((*CALLS, *OTHERS), key=len, reverse=True))
    found = re.findall(
        rf"(?<![\w.\"'`>-])(?:{names})(?:64)?\s*\(", re.sub(r"\b(?:def|cpdef) \w+|\bcdef [\w\* ]*?\w+(?=\()", "", text)
    )
    return [each.rstrip("( ") for each in found]


def test_what_counts_as_one() -> None:
    assert past("x = pread(fd, 1)\nself.close()\ndef close(self):\n    ffr_open(3)\n") == ["pread"]
    assert past("result = syscall(SYS_io_setup); call_mmap(0); if (fstat (fd)) {}") == ["syscall", "fstat"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_none_goes_past_the_table(path: Path) -> None:
    assert past(code(path)) == []


def test_the_table_has_the_calls_of_python() -> None:
    """Each function of `os` that ffrecord calls is one that the test build replaces, or harmless."""
    replaced = (Path(__file__).parent / "_faults.pyx").read_text().rpartition("def _replace():")[2]
    known = HARMLESS | set(re.findall(r'"(\w+)"', replaced))
    calls = {
        (name, path.name)
        for path in [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxi")]
        for name in re.findall(r"\bos\.([a-z_0-9]+)\(", path.read_text())
    }
    assert {name for name, _ in calls} >= {"open", "rename", "preadv"}
    assert sorted(call for call in calls if call[0] not in known) == []


def test_the_table_has_all() -> None:
    assert len(CALLS) > 20
    assert [name for name in CALLS if not re.search(rf"\bcall_{name}\b|FFR_CALL\([\w* ]+, {name},", TABLE)] == []


def test_a_release_build_has_no_faults() -> None:
    """What is put in between exists in the test build only."""
    said = children.run(
        "from ffrecord.system import _calls\nprint(hasattr(_calls, 'fault'), hasattr(_calls, 'fallocate'))"
    )
    assert said == "False True\n"
    module = (PACKAGE / "engine" / f"_engine{faults.SUFFIX}").read_bytes()
    assert b"ffr_the_faults" not in module


FORKED = """
import errno, os, sys
from ffrecord import FileWriter
from ffrecord.system import _calls
path = sys.argv[1]

def write(name):
    with FileWriter(path + name, 1) as writer:
        writer.write_one(b"x")

def told(name):
    try:
        write(name)
    except OSError as error:
        return error.errno
    return 0

def child():
    pid = os.fork()
    if pid == 0:
        os._exit(told("c.ffr"))
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

_calls.clear()
_calls.fault("rename", 2, "fail", errno.EIO)
print(child(), told("p.ffr"), child(), _calls.count("rename"), _calls.fired())
for only in ("child", "parent"):
    _calls.clear()
    _calls.fault("fsync", 1, "fail", errno.ENOSPC, for_good=True, only=only)
    print(told("p.ffr"), child())
_calls.clear()
_calls.fault(("rename", "link"), 1, "kill before")
print(child(), os.path.exists(path + "k.ffr"))
_calls.fault("fsync", 1, "delay", 100)
print(told("p.ffr"), _calls.fired())
"""


def test_counts_go_over_all_processes(tmp_path: Path) -> None:
    assert faults.run(FORKED, f"{tmp_path}/") == "0 5 0 3 1\n0 28\n28 0\n-9 False\n0 2\n"
