"""T18 (all guarantees): the sanitizers find planted defects in any process; under them the core of the tests passes.

`python3 run.py sanitize` runs everything so. Here the core of it runs, with the engine's modules compiled for it, and
in the long run alone: compiling them takes a minute, the first time and after every change of a declaration.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import deadlocks
import failures
import pytest
import sanitizers
from planted.defect import path_of

# T5 to T8, T14, and what has most C in it. The small counts of everyday are enough.
CORE = [
    *("test_bit_flips.py", "test_truncation.py", "test_corruption.py", "test_hostile.py", "test_differential.py"),
    *("test_threads.py", "test_aio.py", "test_crc.py", "test_engine.py", "test_read_at_once.py", "test_read_copied.py"),
    *("test_read_columns.py", "test_iterated_arrays.py"),
]

PLANTED = {
    "AddressSanitizer: heap-buffer-overflow": "char *p = malloc(8); p[number] = 1; free(p);",
    "AddressSanitizer: heap-use-after-free": "char *p = malloc(8); free(p); p[number - 8] = 1;",
    "AddressSanitizer: ILL": "volatile int n = 0x7fffffff; n += number;",  # how undefined behaviour shows
}


def need(kind: str) -> None:
    why = sanitizers.missing(kind)
    if why:
        pytest.skip(why)


@pytest.fixture
def library(tmp_path: Path):
    """A function that makes a library whose `plant(8)` does what it should not."""

    def compiled(kind: str, body: str) -> Path:
        source, path = tmp_path / "planted.c", tmp_path / "planted.so"
        source.write_text(f"#include <stdlib.h>\nvoid plant(int number) {{ {body} }}\n")
        flags = [f"-fsanitize={sanitizers.FLAGS[kind]}", "-shared", "-fPIC", "-O0", "-g"]
        flags += ["-fsanitize-undefined-trap-on-error"] if kind == "address" else []
        subprocess.run(["cc", *flags, source, "-o", path], check=True)
        return path

    return compiled


@pytest.mark.parametrize("more", [[], ["-X", "faulthandler"]], ids=["", "passed on by a handler"])
@pytest.mark.parametrize("report", PLANTED)
def test_found_in_a_grandchild_whose_end_nobody_looks_at(tmp_path, library, capsys, report, more):
    need("address")
    planted = library("address", PLANTED[report])
    grandchild = [sys.executable, *more, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1]).plant(8)", str(planted)]
    command = [sys.executable, "-c", f"import subprocess; subprocess.run({grandchild})"]
    reports = tmp_path / "reports"
    assert sanitizers.checked(command, reports, env=sanitizers.environment("address", reports)) == 1
    assert report in capsys.readouterr().out


@pytest.mark.unsanitized("at these addresses it has its own")
def test_a_child_that_waits_for_the_allocator_is_ended(monkeypatch):
    """One that waits for another lock is not."""
    monkeypatch.setattr(deadlocks, "LOOK_SECONDS", 0.2)
    code = """
import ctypes, mmap, sys
libc, memory = ctypes.CDLL(None), mmap.mmap(-1, 4096)
libc.mmap.restype = ctypes.c_void_p
where = libc.mmap(ctypes.c_void_p(int(sys.argv[1])), ctypes.c_size_t(4096), 3, 0x22, -1, 0)
print(where, flush=True)
libc.syscall(int(sys.argv[2]), ctypes.c_void_p(where), 0, 0, None)
"""
    places = [deadlocks.LOCKS.start, deadlocks.LOCKS.start - (1 << 30)]
    if not deadlocks.SPACE_END:
        pytest.skip("not known where the allocator of this machine has its locks")
    command = [sys.executable, "-c", code]
    pipes = {"stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, str(place), str(deadlocks.FUTEX)], **pipes) for place in places]
    try:
        assert [int(child.stdout.readline()) for child in started] == places
        with deadlocks.ended(os.getpid()) as killed:
            assert started[0].wait(30) == -signal.SIGKILL
            assert killed == [started[0].pid]
            assert started[1].poll() is None
    finally:
        for child in started:
            child.kill()
            child.communicate()


def test_nothing_found(tmp_path, capsys):
    need("address")
    reports = tmp_path / "reports"
    command = [sys.executable, "-c", "import numpy; numpy.zeros(3)"]
    assert sanitizers.checked(command, reports, env=sanitizers.environment("address", reports)) == 0
    assert capsys.readouterr().out == "sanitizers: 0 reports, exit status 0\n"


WANTED = {
    "refused allocation": "try: bytes(1 << 62)\nexcept MemoryError: pass",
    "killed": "import os; child = os.fork(); child or os.kill(os.getpid(), 11); os.waitpid(child, 0)",
    "passed on": "import faulthandler as f, os; f.enable(); c = os.fork(); c or os.kill(os.getpid(), 11); os.wait()",
    "raised": "import os, signal; child = os.fork(); child or signal.raise_signal(11); os.waitpid(child, 0)",
}


@pytest.mark.parametrize("kind", WANTED)
def test_what_tests_want_is_no_report(tmp_path, kind):
    need("address")
    reports = tmp_path / "reports"
    command = [sys.executable, "-c", WANTED[kind]]
    assert sanitizers.checked(command, reports, env=sanitizers.environment("address", reports)) == 0
    assert list(reports.iterdir())


def test_a_copy_of_the_tree_follows_it(tmp_path):
    tree, copy = tmp_path / "tree", tmp_path / "copy"
    for name in ("ffrecord/a.py", "ffrecord/_b.pyx", "ffrecord/_b.c", "ffrecord/_b.so", "build/c", ".git/d", "e.h"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    sanitizers.mirror(tree, copy)

    def files() -> set[str]:
        return {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}

    assert files() == {"ffrecord/a.py", "ffrecord/_b.pyx", "e.h"}
    (copy / "ffrecord/_b.c").write_text("made there")
    (tree / "ffrecord/a.py").write_text("changed")
    (tree / "e.h").unlink()
    unchanged = (copy / "ffrecord/_b.pyx").stat().st_ino
    sanitizers.mirror(tree, copy)
    assert files() == {"ffrecord/a.py", "ffrecord/_b.pyx", "ffrecord/_b.c"}
    assert (copy / "ffrecord/a.py").read_text() == "changed"
    assert (copy / "ffrecord/_b.pyx").stat().st_ino == unchanged
    assert (copy / "ffrecord/_b.pyx").stat().st_mtime_ns == (tree / "ffrecord/_b.pyx").stat().st_mtime_ns


OUTCOMES = """
import os, pathlib, pytest, subprocess, sys
ran = pathlib.Path("ran")
FIRST = not ran.exists()

@pytest.mark.parametrize("what", {what})
def test_now_and_then(what):
    with ran.open("a") as file:
        file.write(what + " ")
    if FIRST and what == "waits in vain":
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=0.1)
    assert not FIRST or what != "is killed", "child ended with -9"
    assert not FIRST or what != "differs"
    assert what != "always"
"""


@pytest.mark.parametrize(
    ("what", "status", "ran"),
    [
        (["waits in vain", "is killed", "good"], 0, "waits in vain is killed good waits in vain is killed "),
        (["waits in vain", "differs", "good"], 1, "waits in vain differs good waits in vain "),
        (["differs"], 1, "differs "),
        (["always"], 1, "always "),
    ],
)
def test_only_who_lost_a_child_has_another_chance(tmp_path, capsys, what, status, ran):
    """A test that fails for another reason and would pass then has found something."""
    (tmp_path / "test_outcomes.py").write_text(OUTCOMES.replace("{what}", repr(what)))
    (tmp_path / "pytest.ini").touch()
    results, reports = tmp_path / "results.xml", tmp_path / "reports"
    command = [sys.executable, "-m", "pytest", "-q", *failures.options(results)]
    assert sanitizers.checked(command, reports, cwd=tmp_path) == 1
    again = sanitizers.once_more(command, failures.failed(results), reports, cwd=tmp_path)
    assert (again, (tmp_path / "ran").read_text()) == (status, ran)
    told = capsys.readouterr().out
    assert all(f"\n  test_outcomes.py::test_now_and_then[{each}]\n" in told for each in what if each != "good")


def test_all_of_the_core_is_there():
    """Else the long test finds nothing, because it has nothing to run."""
    assert [name for name in CORE if not path_of(sanitizers.ROOT, name)] == []


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_core(monkeypatch, capfd):
    need("address")
    monkeypatch.setenv("HYPOTHESIS_PROFILE", "default")
    paths = [path_of(sanitizers.ROOT, name) for name in CORE]
    status = sanitizers.main([*paths, "-q"], sanitizers.ENGINE, "address-core")
    assert status == 0, capfd.readouterr().out[-20_000:]


@pytest.mark.skipif(not os.environ.get("FFRECORD_SANITIZED"), reason="only where `python3 run.py sanitize` runs it")
def test_the_package_is_sanitized():
    """Else all of it would run with what is compiled for daily use, and find nothing."""
    from ffrecord.engine import _engine

    flag = b"__tsan_init" if os.environ["FFRECORD_SANITIZED"] == "thread" else b"__asan_init"
    assert flag in Path(_engine.__file__).read_bytes()
