"""What failed in a run of pytest, from the XML that it writes, and which of it may pass if it is run once more."""

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

# What a test says that waited in vain for a child, or whose child was killed: see deadlocks.py.
LOST = re.compile(r"Timeout|timed out|SIGKILL|(?<!\d)-9\b|exited unexpectedly|killed by signal: Killed")


def options(results: Path) -> list[str]:
    """For pytest, so that it writes what `failed` reads."""
    return ["-o", "junit_family=xunit1", f"--junitxml={results}"]


def failed(results: Path) -> dict[str, str]:
    """Names of tests, as pytest takes them, and what each failed with."""
    found = {}
    for case in ElementTree.parse(results).iter("testcase"):
        for what in (*case.iter("failure"), *case.iter("error")):
            found[_name(case)] = what.get("message") or ""
    return found


def _name(case: ElementTree.Element) -> str:
    """A class that the test is of is part of it."""
    file = case.get("file") or ""
    module = file.removesuffix(".py").replace("/", ".")
    classes = (case.get("classname") or "").removeprefix(module).strip(".").split(".")
    return "::".join([file, *filter(None, classes), case.get("name") or ""])


def lost(message: str) -> bool:
    """Whether a child that is stuck, or was killed for that, may be all that is wrong."""
    return LOST.search(message) is not None
