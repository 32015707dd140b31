"""T11 (guarantee G7): epochs of the Loader leave nothing behind, whole or broken off: processes, memory, threads."""

import leaking
import pytest
from figures import counts

pytest.importorskip("torch")

EPOCHS = """
warnings.simplefilter("ignore", DeprecationWarning)  # of forks
from ffrecord.torch import Loader
(path, damaged), kind = sys.argv[1:], turn
workers = {"num_workers": 2} if "processes" in kind else {"num_threads": 2}
def work():
    loader = Loader(damaged if "failing" in kind else path, 4, seed=1, **workers)
    try:
        for number, batch in enumerate(loader):
            if "broken off" in kind and number == 2:
                break
    except FFRecordError:
        assert "failing" in kind
    else:
        assert "failing" not in kind
"""
KINDS = [f"{kind}, {workers}" for kind in ("whole", "broken off", "failing") for workers in ("threads", "processes")]


@pytest.mark.timeout(600)
@counts(4, 40)
def test_epochs(good_and_damaged: tuple[str, str], count: int) -> None:
    leaking.run(EPOCHS, count, 10_000, *good_and_damaged, turns=KINDS, kept=True, settle=10)
