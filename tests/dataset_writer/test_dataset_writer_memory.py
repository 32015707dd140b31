"""Memory does not grow with the dataset: neither the parent's nor the workers'."""

import sys
import textwrap
from pathlib import Path

import children
import pytest

WRITE = """
    import resource, sys
    from ffrecord import DatasetWriter

    class Tiny:
        def __len__(self):
            return {n}
        def __getitem__(self, index):
            return b"%010d" % index

    def of_shard(name):
        return (b"%010d" % index for index in range(25_000))

    def peak():
        with open("/proc/self/status") as lines:
            return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))

    def write(dataset, path):
        writer = DatasetWriter(path, num_workers=2, samples_per_shard=20_000)
        if {source!r} == "dataset":
            return writer.from_indexed_dataset(dataset)
        if {source!r} == "iterable":
            return writer.from_iterable(dataset[i] for i in range(len(dataset)))
        if {source!r} == "lines":
            return writer.from_list((str(i) for i in range(len(dataset))), str.encode)
        return writer.from_webdataset("{{1..%d}}" % ({n} // 25_000), of_shard)

    assert write(Tiny(), {path!r}).samples == {n}
    print(peak(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def peaks(path: Path, source: str, n: int) -> tuple[int, int]:
    """KiB that the parent and the largest of its workers took."""
    code = textwrap.dedent(WRITE).format(path=str(path / f"{source}-{n}"), source=source, n=n)
    parent, worker = children.run(code, timeout=600).split()
    return int(parent), int(worker)


def check(path: Path, source: str, n: int) -> None:
    """Compare few samples with many; again if they differ, since a worker that has to wait for a CPU makes the parent
    keep the sizes of what others do meanwhile. What grows with the dataset does so every time."""
    few = peaks(path, source, 100_000)
    for turn in range(3):
        many = peaks(path / str(turn), source, n)
        # Allocators keep a little more than is asked for; 12 bytes for each of 900,000 samples would be 10,547 KiB.
        parent, worker = many[0] - few[0], many[1] - few[1]
        if parent < 6000 and worker < 9000:
            return
    raise AssertionError(f"KiB of parent and worker: {few} → {many}")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
@children.measures_memory
@pytest.mark.parametrize("source", ["dataset", pytest.param("iterable", marks=pytest.mark.long)])
def test_a_million_samples(tmp_path: Path, source: str) -> None:
    check(tmp_path, source, 1_000_000)


@pytest.mark.long
@children.measures_memory
@pytest.mark.parametrize("source", ["lines", "shards"])
def test_a_million_samples_of_other_sources(tmp_path: Path, source: str) -> None:
    check(tmp_path, source, 1_000_000)


@pytest.mark.long
@pytest.mark.parametrize("source", ["dataset", "iterable", "shards"])
def test_ten_million_samples(tmp_path: Path, source: str) -> None:
    check(tmp_path, source, 10_000_000)
