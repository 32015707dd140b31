"""T11 (guarantee G7): nothing is left behind by batches that were begun and dropped: descriptors, threads, memory."""

from pathlib import Path

import builders
import leaking
import pytest
from builders import IO_MODES
from figures import counts, left_to_long

WORKS = {
    "to the end": """
reader = FileReader(path, io=io)
def work():
    for arrays in reader.iter_batches([range(40)] * 3, 2):
        pass
    for data, offsets in reader.iter_batches([range(40)] * 3, 2, packed=True):
        pass
    for columns in reader.iter_columns([[30] * 40] * 3, 15_000, [(0, 15_000)], 2):
        pass
""",
    "dropped midway": """
reader = FileReader(path, io=io)
def work():
    next(reader.iter_batches(itertools.repeat(range(40)), 5))
    batches = reader.iter_batches(itertools.repeat(range(40)), 2)
    next(batches)
    batches.close()
    next(reader.iter_columns(itertools.repeat([30] * 40), 15_000, [(0, 15_000)], 5))
""",
    "reader dropped with them": """
def work():
    batches = FileReader(path, io=io).iter_batches(itertools.repeat(range(40)), 3)
    next(batches)
    del batches
""",
    "reader closed midway": """
def work():
    reader = FileReader(path, io=io)
    batches = reader.iter_batches(itertools.repeat(range(40)), 3)
    next(batches)
    reader.close()
    try:
        next(batches)
    except RuntimeError:
        return
    sys.exit("no error")
""",
    "dropped before an error's turn": """
reader = FileReader(path, io=io)
def raising():
    yield range(40)
    yield range(40)
    raise ValueError
def work():
    next(reader.iter_batches(raising(), 3))
    next(reader.iter_batches([range(40), range(40), None, [99]], 3))
""",
    "failing": """
reader = FileReader(damaged, io=io)
def work():
    batches = reader.iter_batches([range(40), [99], range(10), None] * 2, 3)
    for _ in range(8):
        try:
            next(batches)
        except (RuntimeError, TypeError):
            continue
""",
    "results kept for a while": """
reader, kept = FileReader(path, io=io), []
def work():
    kept.extend(reader.iter_batches([range(40)] * 3, 2))
    del kept[:-4]
""",
    "iteration": """
reader = FileReader(path, io=io)
def work():
    sum(len(sample) for sample in reader)
    next(iter(reader))
    reader.read_range(3, 30)
""",
    "beside other threads": """
reader = FileReader(path, io=io)
def one():
    next(reader.iter_batches(itertools.repeat(range(40)), 3))
def work():
    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
""",
}
# How often, and how much memory each time may take: blocks for the most batches that were ever read at once are kept.
TIMES = {"beside other threads": (30, 1_000_000)}


@pytest.mark.timeout(900)
@counts(1, 5)
@pytest.mark.parametrize(
    "kind",
    left_to_long(
        WORKS, "results kept for a while", "reader closed midway", "dropped before an error's turn", "iteration"
    ),
)
def test_prefetching(good_and_damaged: tuple[str, str], kind: str, count: int) -> None:
    times, slope = TIMES.get(kind, (60, 1000))
    code = f"(path, damaged), io = sys.argv[1:], turn\n{WORKS[kind]}"
    leaking.run(code, times * count, slope, *good_and_damaged, turns=IO_MODES, kept=True)


@counts(1, 5)
def test_more_files_than_may_be_open(tmp_path: Path, count: int) -> None:
    """Opened and closed again and again, by several threads."""
    for i in range(30):
        builders.write_samples(tmp_path / f"{i:02}.ffr", builders.records([100, 5000], i))
    work = """
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
random = np.random.default_rng(0)
def work():
    with FileReader(sys.argv[1], io=turn) as reader:
        for _ in reader.iter_batches([random.permutation(60)[:20] for _ in range(4)], 3):
            pass
        reader.read(range(60))  # as many are open as may be
"""
    leaking.run(work, 60 * count, 1000, tmp_path, turns=IO_MODES, kept=True)
