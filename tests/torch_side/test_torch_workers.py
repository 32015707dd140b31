"""Workers, however they are started: same batches, and memory that grows neither with the dataset nor with time."""

from textwrap import dedent
from typing import Any

import children
import numpy as np
import pytest
from test_torch_schema import same, write
from torch.utils.data import DataLoader
from torch_builders import WORKERS_ANYWHERE

from ffrecord.torch import BatchSampler, Dataset, IterableDataset

pytestmark = WORKERS_ANYWHERE

SAMPLES = [{"image": np.full((4, 4), i, np.uint8), "label": i, "name": f"{i}"} for i in range(12)]


@pytest.mark.parametrize("context", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.long)])
def test_start_methods(tmp_path_factory: pytest.TempPathFactory, context: str):
    dataset = Dataset[Any](write(tmp_path_factory.mktemp("workers") / "x.ffr", SAMPLES))
    whole = dataset.subset(np.arange(12)) + dataset[:0]
    expected = list(DataLoader(dataset, batch_sampler=BatchSampler(dataset, 5)))
    options: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": context}
    assert same(list(DataLoader(whole, batch_sampler=BatchSampler(whole, 5), **options)), expected)
    if context == "forkserver":  # twice is slow
        assert same(list(DataLoader(IterableDataset(whole, 5), 5, **options)), expected)


MEMORY = """
    import gc, os, sys
    import numpy as np, torch
    from torch.utils.data import DataLoader
    from ffrecord import FileWriter
    from ffrecord.format.extension import Extension
    from ffrecord.fields import Schema
    from ffrecord.torch import BatchSampler, Dataset, collate

    def private():
        with open("/proc/self/smaps_rollup") as file:
            lines = [line.split() for line in file]
        return sum(int(line[1]) for line in lines if line[0].startswith("Private_"))

    batches = 0

    def watch(batch):
        global batches
        batches += 1
        if batches in (20, 300):
            gc.collect()
            with open(f"{os.environ['OUT']}.{os.getpid()}", "a") as file:
                print(batches, private(), file=file)
        return collate(batch)

    n = int(sys.argv[1])
    schema = Schema.infer([(np.zeros(8, np.uint8), 0)])
    path = f"{os.environ['OUT']}.ffr"
    with FileWriter(path, extension=Extension(schema=schema.to_builtins())) as writer:
        for i in range(20_000):
            writer.write_one(schema.encode((np.zeros(8, np.uint8), i)))
    # Many samples without the time to write them, by a list of the user's.
    picked = Dataset(path).subset([i % 20_000 for i in range(n)])
    sampler = BatchSampler(picked, 64)
    torch.set_num_threads(1)
    options = {"num_workers": 2, "multiprocessing_context": "fork", "collate_fn": watch}
    for count, _ in enumerate(DataLoader(picked, batch_sampler=sampler, **options)):
        if count == 700:
            break
"""


@pytest.mark.long
def test_memory_is_flat_in_samples_and_time(tmp_path: Any):
    """Private memory of workers after 20 and 300 batches, of 100,000 and of 3,000,000 samples."""
    kibibytes = {}
    for n in (100_000, 3_000_000):
        children.run(dedent(MEMORY), n, timeout=250, OUT=str(tmp_path / f"{n}"))
        files = [name for name in tmp_path.glob(f"{n}.*") if name.suffix != ".ffr"]
        lines = [line.split() for name in files for line in name.read_text().splitlines()]
        for seen in (20, 300):
            kibibytes[n, seen] = max(int(size) for count, size in lines if int(count) == seen)
    for n in (100_000, 3_000_000):
        assert kibibytes[n, 300] - kibibytes[n, 20] < 1500
    assert kibibytes[3_000_000, 300] - kibibytes[100_000, 300] < 3000, kibibytes
