"""T7 (guarantees G3, G4): random changes of one to eight bytes give right bytes or a documented error.

The long run makes a million. `python3 run.py sanitize` makes as many under AddressSanitizer.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import children
import pytest
from figures import counts

PROGRAM = "import sys; sys.path.insert(0, sys.argv.pop(1)); import random_mutations; random_mutations.main()"


def changed(count: int, seed: int, directory: Path) -> Counter[str]:
    """So many random changes in a child; what became of the files."""
    directory.mkdir()
    done = children.finished(PROGRAM, Path(__file__).parent, count, seed, directory, timeout=3600)
    position = (directory / "position").read_text() if (directory / "position").exists() else "before the first change"
    assert done.returncode == 0, f"{done.returncode} at {position}: {done.stderr[-4000:]}"
    return Counter(json.loads(done.stdout))


@pytest.mark.timeout(3600)
@counts(2_000, 1_000_000)
def test_random_changes(in_memory, count, seed, counted):
    halves = [(count // 2, 2 * seed + i, in_memory / str(i)) for i in range(2)]
    with ThreadPoolExecutor(2) as both:
        results = sum(both.map(changed, *zip(*halves, strict=True)), Counter[str]())
    assert results.total() == count
    # Else the changes are all of one kind, and what is behind a header is never reached.
    assert min(results["read"], results["refused"]) > count // 10
    counted.add("random mutations", count)
