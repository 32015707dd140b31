"""Repeat a few failed tests alone: on a busy machine, a test may see others' load. Crashes and hangs are final."""

import subprocess
import sys

import pytest

# Set on the worker processes' reports of tests that ended the process.
CRASHED = "???"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--again`."""
    text = "repeat up to N failed tests alone, and name them; more, a crash or a hang stay failures; default: 0"
    parser.addoption("--again", type=int, default=0, metavar="N", help=text)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Repeat the tests that failed, in a process of their own without others beside it."""
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or reporter is None or session.exitstatus != pytest.ExitCode.TESTS_FAILED:
        return
    failed = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    names = dict.fromkeys(report.nodeid for report in failed)
    if not 0 < len(names) <= config.getoption("--again") or any(map(_is_final, failed)):
        return
    reporter.write_line(f"\nrepeated alone, after they failed beside others: {', '.join(names)}")
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "-m", config.option.markexpr]
    if subprocess.run([sys.executable, "-m", "pytest", *options, *names], cwd=config.rootpath).returncode == 0:
        reporter.write_line("They passed alone. A test that fails often beside others needs mending.")
        session.exitstatus = pytest.ExitCode.OK


def _is_final(report: pytest.TestReport) -> bool:
    """Tell if the test crashed or hung, which another try would only hide."""
    return report.when == CRASHED or "Timeout" in report.longreprtext
