"""Whether the tests notice a defect."""

import subprocess
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from planted.defect import CRASH, FAILURE, HANG, Defect, path_of
from planted.tree import Tree

SECONDS = 400  # for the tests of one defect, also on a busy machine
LONG_SECONDS = 900
NO_TESTS = 5  # pytest's status if none was chosen
HANG_SECONDS = 120  # for those of one that makes tests hang
PATIENCE = 20  # seconds for each test of one that makes tests hang


@dataclass(frozen=True)
class Outcome:
    """How a trial went.

    Attributes:
        defect: that was planted.
        found: whether a test noticed, by the sign that was expected.
        said: which test, or what happened instead.
        seconds: it took.
    """

    defect: Defect
    found: bool
    said: str
    seconds: float


def check_plain(tree: Tree, defects: Iterable[Defect]) -> str | None:
    """What of the tests that are to notice defects fails where there is none, if anything does."""
    tests = sorted({test for defect in defects for test in defect.tests})
    # One that is named alone is not to run twice because its file is named, too.
    tests = [test for test in tests if "::" not in test or test.partition("::")[0] not in tests]
    wrong = tree.check_import([])
    if wrong is not None:
        return wrong
    try:
        paths = [path_of(tree.root, test) for test in tests]
        done = tree.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *paths, seconds=4 * SECONDS)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return None if done.returncode == 0 else (done.stdout + done.stderr)[-4000:]


def attempt(defect: Defect, plain: Tree, directory: Path) -> Outcome:
    """Plant a defect in a copy of a tree, and run the tests that should notice."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=directory) as place:
        tree = Tree(Path(place) / "tree", plain.root)
        try:
            found, said = _attempt(defect, tree, Path(place) / "results.xml")
        except subprocess.TimeoutExpired as error:
            found, said = False, f"neither built nor imported in {error.timeout:.0f} s"
    return Outcome(defect, found, said, time.monotonic() - began)


def _attempt(defect: Defect, tree: Tree, results: Path) -> tuple[bool, str]:
    file = tree.root / defect.file
    file.write_text(defect.planted(file.read_text()))
    wrong = tree.build(defect.compiled) if defect.compiled else None
    if wrong is not None:
        return False, f"does not build: {wrong}"
    module = ".".join(Path(defect.file).with_suffix("").parts)
    names = [f"ffrecord.{name}" for name in defect.compiled] if defect.compiled else [module]
    wrong = tree.check_import(names)
    if wrong is not None:
        return False, f"cannot be imported: {wrong}"
    options = ["-q", "-x", "-p", "no:cacheprovider", f"--junitxml={results}"]
    if defect.sign == HANG:
        options.append(f"--timeout={PATIENCE}")
    try:
        tests = [path_of(tree.root, test) for test in defect.tests]
        seconds = HANG_SECONDS if defect.sign == HANG else SECONDS
        done = tree.run("-m", "pytest", *options, *tests, seconds=seconds)
        if done.returncode == 0:  # sweeps over every call and error are long
            long = tree.run("-m", "pytest", *options, "-m", "long", *tests, seconds=LONG_SECONDS)
            done = done if long.returncode == NO_TESTS else long
    except subprocess.TimeoutExpired as error:
        return defect.sign == HANG, f"the tests did not end in {error.timeout:.0f} s"
    return _judge(defect, done, results)


def _judge(defect: Defect, done: subprocess.CompletedProcess[str], results: Path) -> tuple[bool, str]:
    """(whether the expected sign was there, the test that showed it or what was there instead)."""
    if done.returncode == 0:
        return False, "survived: every test passed"
    if done.returncode < 0:
        return defect.sign == CRASH, f"pytest was ended by signal {-done.returncode}"
    if not results.exists():
        # Where a test hangs in compiled code, pytest-timeout can only end the process, and says so.
        hung = "Timeout" in done.stdout + done.stderr
        return hung and defect.sign == HANG, "a test hung" if hung else (done.stdout + done.stderr)[-4000:]
    for case in ElementTree.parse(results).iter("testcase"):
        name, failure = f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}", case.find("failure")
        error = case.find("error")
        if error is not None and (error.get("message") or "").startswith("failed on teardown"):
            failure = error  # of a fixture that looks at what is left
        if failure is not None:
            sign = HANG if "Timeout" in (failure.get("message") or "") else FAILURE
            # Where memory is not what it should be, either may come first.
            expected = sign == defect.sign or (sign, defect.sign) == (FAILURE, CRASH)
            return expected, name if expected else f"{name}: {sign}: {failure.get('message')}"
    return False, f"no test failed, but pytest ended with {done.returncode}: {done.stdout[-3000:]}"
