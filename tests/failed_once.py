"""Repeat the files of a few failed tests alone: on a busy machine, a test may see the load of others.

A worker process that died, a child that crashed, a timeout, an error in a teardown and more than AGAIN failed tests are
final. The environment variable AGAIN turns this on.
"""

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# The most tests that are repeated.
AGAIN = "FFRECORD_TESTS_AGAIN"
# Set in the repetition: the tests that have to pass, as JSON.
NAMES = "FFRECORD_TESTS_FAILED"
# `when` of the report of a test in which the worker process ended.
DIED = "???"
FINAL = re.compile(r"Timeout|ended with -\d|Fatal Python error|Sanitizer")
SECONDS = 900
PR_SET_PDEATHSIG = 1
MESSAGE = pytest.StashKey[str]()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """In the repetition, leave out the files without a failed test."""
    if NAMES not in os.environ or collection_path.is_dir():
        return None
    files = {config.rootpath / name.split("::")[0] for name in json.loads(os.environ[NAMES])}
    return None if collection_path in files else True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Repeat what failed, in a process of its own with nothing beside it; in that process, look if all passed."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or reporter is None:
        return
    if NAMES in os.environ:
        passed = {report.nodeid for report in reporter.stats.get("passed", ())}
        if not passed.issuperset(json.loads(os.environ[NAMES])):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return
    if session.exitstatus != pytest.ExitCode.TESTS_FAILED or session.shouldfail or session.shouldstop:
        return
    failed = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    names = list(dict.fromkeys(report.nodeid for report in failed))
    if not 0 < len(names) <= int(os.environ.get(AGAIN, 0)) or any(map(_is_final, failed)):
        return
    reporter.write_line(f"\nThe files of these tests are repeated alone: {', '.join(names)}")
    if _pass_alone(config, names):
        session.exitstatus = pytest.ExitCode.OK
        config.stash[MESSAGE] = "passed alone, after a failure beside others. Mend what comes back: " + ", ".join(names)
    else:
        config.stash[MESSAGE] = "failed alone, too"


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how the repetition ended below all failures."""
    if MESSAGE in config.stash:
        terminalreporter.write_line(config.stash[MESSAGE])


def _is_final(report: pytest.TestReport) -> bool:
    """Tell if another try would only hide the failure."""
    return report.when in (DIED, "teardown") or bool(FINAL.search(report.longreprtext))


def _pass_alone(config: pytest.Config, names: list[str]) -> bool:
    """Run the files of these tests with the same arguments, without others beside them. Tell if they pass."""
    arguments = [*config.invocation_params.args, "-n", "0", "-p", "no:cacheprovider"]
    if config.option.xmlpath:  # its report is that of the first run
        arguments.append(f"--junit-xml={os.devnull}")
    libc = ctypes.CDLL(None)
    try:
        return not subprocess.run(
            [sys.executable, "-m", "pytest", *map(str, arguments)],
            cwd=config.invocation_params.dir,
            env={**os.environ, NAMES: json.dumps(names), AGAIN: "0"},
            timeout=SECONDS,
            preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM),
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return False
