"""Plant small mistakes in copies of the project, one at a time, and see that a test notices each.

    python3 run.py planted                  every defect of tests/reliability/planted; 1 if one survives
    python3 run.py planted NAME ... -j 2    some of them, two at a time
    python3 run.py planted --list           what there is
    python3 run.py planted --figures FILE   append how many were found, as the tests of the guarantees do

A defect that survives is a test that is missing.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from figures import Counted
from planted import DEFECTS, Defect
from planted.tree import Tree
from planted.trial import Outcome, attempt, check_plain


def plant(defects: Sequence[Defect], jobs: int, tell: Callable[[Outcome], object]) -> list[Outcome]:
    """How the trial of each went, as many at a time as there are jobs.

    Args:
        tell: is called with each as it ends.

    Raises:
        RuntimeError: the tests fail where there is no defect.
    """
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        plain = Tree(Path(directory) / "plain" / "tree")
        wrong = check_plain(plain, defects)
        if wrong is not None:
            raise RuntimeError(f"the tests fail without any defect:\n{wrong}")
        with ThreadPoolExecutor(jobs) as pool:
            trials = [pool.submit(attempt, defect, plain, Path(directory)) for defect in defects]
            for trial in as_completed(trials):
                tell(trial.result())
        return [trial.result() for trial in trials]


def chosen(names: Sequence[str]) -> list[Defect]:
    """The defects of these names; all of them for none."""
    known = {defect.name: defect for defect in DEFECTS}
    unknown = sorted(set(names) - set(known))
    if unknown:
        sys.exit(f"no defect is called {', '.join(unknown)}; --list has their names")
    return [known[name] for name in names] if names else list(DEFECTS)


def row(outcome: Outcome) -> str:
    verdict = "found" if outcome.found else "NOT FOUND"
    return f"{outcome.defect.name:42} {verdict:9} {outcome.seconds:6.1f} s  {outcome.said}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 1 if a defect survived, or the tests fail without one."""
    parser = argparse.ArgumentParser(
        prog="run.py planted", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of defects; default: all")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="how many at a time; default: 1")
    parser.add_argument("--list", action="store_true", help="say what there is, and do nothing")
    parser.add_argument("--figures", type=Path, help="append the number of defects found to this file")
    given = parser.parse_args(arguments)
    if given.list:
        for defect in chosen(given.names):
            print(f"{defect.name:42} {defect.breaks:12} {defect.file}")
        return 0
    began = time.monotonic()
    try:
        outcomes = plant(chosen(given.names), given.jobs, lambda outcome: print(row(outcome), flush=True))
    except RuntimeError as error:
        print(error)
        return 1
    survivors = [outcome.defect.name for outcome in outcomes if not outcome.found]
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} planted defects found")
    if given.figures:
        append_figures(given.figures, len(outcomes), len(survivors), time.monotonic() - began)
    if survivors:
        print(f"not found: {', '.join(survivors)}")
    return 1 if survivors else 0


def append_figures(path: Path, planted: int, survived: int, seconds: float) -> None:
    """As tests/reliability do, for docs/guarantees.md."""
    counted = Counted()
    counted.add("planted defects found", planted - survived)
    counted.add("planted defects not found", survived)
    counted.append(path, "python3 run.py planted", seconds)


if __name__ == "__main__":
    sys.exit(main())
