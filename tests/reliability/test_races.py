"""T18 (guarantee G6): the thread sanitizer finds planted data races, and none in the engine.

The modules below are compiled for it. CPython need not be: that its lock orders what it guards, the sanitizer learns
from the calls to the C library, which it intercepts. Without a GIL it has to be: configure it with `--disable-gil
--with-thread-sanitizer`, and run this file with it. Compiling takes a minute the first time; so all of it is in long
runs.
"""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import sanitizers
from sanitizers import ENGINE, SUFFIX

WITHOUT_GIL = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
SECTION = """        with critical_section(self):  # without a GIL, threads may not share the iterator over one iterable
            return self._next()
"""
LOCKED = "    pthread_mutex_lock(&_lock)\n{0}    pthread_mutex_unlock(&_lock)\n"
GIVEN_BACK = """    table.files[f].users -= 1
    crowded = table.files[f].users == 0 and table.held_count > table.held_most
"""
ASKED = "        if not hold_if_open(windows.table, file):\n"
DONE = """    task.state = DONE  # once the lock is released, the owner may free the task
    _done += 1
"""
# What is planted: a module, the file of it, text there, and what stands there instead.
PLANTED = {
    "users of a file counted without the lock": (
        "engine/_engine",
        "descriptors.pxi",
        LOCKED.format(GIVEN_BACK),
        GIVEN_BACK,
    ),
    "a file asked without the lock whether it is open": (
        "engine/_engine",
        "windows.pxi",
        ASKED,
        ASKED.replace("not hold_if_open", "windows.table.files[file].fd < 0 or not hold_if_open"),
    ),
    "a task done before the lock is had": (
        "kernels/_threads",
        "_threads.pyx",
        f"    _enter()\n{DONE}",
        f"    _done += 1\n    _enter()\n{DONE}",
    ),
}
if WITHOUT_GIL:
    PLANTED["a shared iterator without its critical section"] = (
        "kernels/_memory",
        "arrays.pxi",
        SECTION,
        "        return self._next()\n",
    )

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]


@pytest.fixture(scope="module")
def tree() -> Path:
    why = sanitizers.missing("thread")
    if why:
        pytest.skip(why)
    return sanitizers.build("thread", ENGINE)


def races(tree: Path, reports: Path, *program: object, ends_well: bool = True) -> list[str]:
    """What the sanitizer finds in a Python program, which a planted race may end."""
    shutil.rmtree(reports, ignore_errors=True)
    reports.mkdir()
    command = [*sanitizers.without_chance("thread"), sys.executable, *map(str, program)]
    environment = sanitizers.environment("thread", reports, tree)
    environment["PYTHONPATH"] += f":{tree / 'tests'}:{tree / 'tests' / 'kernels'}"
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=1800)
    found = sanitizers.reports_in(reports)
    assert done.returncode in (0, 66 if found else 0) or not ends_well, done.stderr[-4000:]
    return found


def test_the_engine(tree, good_and_damaged, tmp_path):
    found = races(tree, tmp_path / "reports", "tests/reliability/racing.py", *good_and_damaged)
    assert found == []


def test_loaders_and_writers(tree, tmp_path):
    pytest.importorskip("torch")
    assert races(tree, tmp_path / "reports", "tests/reliability/racing.py", "load") == []


POOL = """
import test_threads_pool as tests
tests.test_every_task_runs_once(8, 0)
tests.test_tasks_that_hand_out_tasks(16, 3)
tests.test_many_submitters()
tests.test_fork_while_tasks_run(20)
tests.end_threads()
tests.test_a_fork_loses_what_is_not_done()
tests.test_two_may_wait_for_the_same_task()
tests.test_nobody_has_to_finish_them(3, 0)
"""


def test_the_pool(tree, tmp_path):
    assert races(tree, tmp_path / "reports", "-c", POOL) == []


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_races_are_found(tree, good_and_damaged, tmp_path, kind):
    module, file, text, planted = PLANTED[kind]
    changed = tmp_path / "tree"
    sanitizers.mirror(tree, changed)
    for compiled in (tree / "ffrecord").rglob(f"*{SUFFIX}"):
        shutil.copy(compiled, changed / compiled.relative_to(tree))
    source = (changed / "ffrecord" / module).with_name(file)
    before = source.read_text()
    assert before.count(text) == 1
    source.write_text(before.replace(text, planted))
    sanitizers.compile_one("thread", changed, module)
    program = "tests/reliability/racing.py", *good_and_damaged
    found = races(changed, tmp_path / "reports", *program, ends_well=False)
    assert any("data race" in report and f"{module}.c" in report for report in found)
