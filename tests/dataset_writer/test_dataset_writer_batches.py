"""Datasets that give several samples at once."""

import time

import numpy as np
import pytest

from ffrecord import DatasetWriter, FileReader, WorkerError


class Several:
    """100 samples; remembers what it was asked for."""

    def __init__(self, bad: int | None = None, short: bool = False) -> None:
        self.bad, self.short, self.asked, self.alone = bad, short, [], []

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> bytes:
        if index == self.bad:
            raise KeyError(f"no sample {index}")
        self.alone.append(index)
        return b"%d" % index

    def __getitems__(self, indices: list[int]) -> list[bytes]:
        self.asked.append(indices)
        if self.bad in indices:
            raise KeyError("one of them")
        return [b"%d" % index for index in indices][self.short :]


def written(path, dataset: Several, **options: object) -> list[bytes]:
    options = {"samples_per_shard": 1000, "serializer": bytes, **options}
    DatasetWriter(path, num_workers=0, **options).from_indexed_dataset(dataset)
    with FileReader(path) as reader:
        return [record.tobytes() for record in reader]


def test_they_are_asked_for_together(tmp_path):
    dataset = Several()
    assert written(tmp_path / "out", dataset) == [b"%d" % i for i in range(100)]
    assert dataset.asked == [list(range(50)), list(range(50, 100))] and not dataset.alone


@pytest.mark.parametrize("workers", [0, 2])
def test_the_one_that_fails_is_named(tmp_path, workers):
    writer = DatasetWriter(tmp_path / "out", num_workers=workers, serializer=bytes)
    with pytest.raises(WorkerError, match="no sample 70") as raised:
        writer.from_indexed_dataset(Several(bad=70))
    assert raised.value.index == 70


def test_the_one_that_fails_is_left_out(tmp_path):
    dataset = Several(bad=3)
    assert written(tmp_path / "out", dataset, on_error="skip") == [b"%d" % i for i in range(100) if i != 3]
    assert len(dataset.asked) == 2 and dataset.alone == [i for i in range(50) if i != 3]


def test_as_many_as_were_asked_for(tmp_path):
    """Else one by one."""
    dataset = Several(short=True)
    assert written(tmp_path / "out", dataset) == [b"%d" % i for i in range(100)] and len(dataset.alone) == 100


@pytest.mark.parametrize("collated", [dict, list])
def test_a_batch_that_is_collated_already(tmp_path, collated):
    """Keys, or columns, of a batch are no samples, also of as many samples as there are columns."""

    class Collating:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> bytes:
            return b"%d" % index

        def __getitems__(self, indices: list[int]) -> object:
            return collated({b"x": indices, b"y": indices})

    assert written(tmp_path / "out", Collating()) == [b"0", b"1"]


def test_a_dataset_may_say_how_many_it_gives_at_once(tmp_path):
    dataset = Several()
    dataset.samples_at_once = lambda indices: 40
    assert written(tmp_path / "out", dataset) == [b"%d" % i for i in range(100)]
    assert [len(indices) for indices in dataset.asked] == [40, 40, 20]


def test_a_dataset_may_say_what_one_worker_is_to_have(tmp_path):
    class Undivided(Several):
        """Of seven each."""

        tasks: list[int]

        def samples_of_task(self, indices: np.ndarray) -> int:
            end = int(indices[-1]) + 1
            self.tasks.append(max(1, end - end % 7 - int(indices[0])))
            return self.tasks[-1]

    dataset = Undivided()
    dataset.tasks = []
    assert written(tmp_path / "out", dataset) == [b"%d" % i for i in range(100)]
    firsts = np.cumsum([0, *dataset.tasks])
    assert dataset.tasks and all(first % 7 == 0 for first in firsts if first >= 7)


@pytest.mark.parametrize("said", [None, lambda indices: 0], ids=["None", "nothing"])
def test_a_dataset_that_does_not_say_what_one_worker_is_to_have(tmp_path, said):
    dataset = Several()
    dataset.samples_of_task = said
    assert written(tmp_path / "out", dataset) == [b"%d" % i for i in range(100)]


class Noting(Several):
    """Varied samples; notes in a file what it is asked for."""

    may_be_asked_ahead = True

    def __init__(self, log) -> None:
        super().__init__()
        self.log = log

    def __len__(self) -> int:
        return 1000

    def __getitems__(self, indices: list[int]) -> list[bytes]:
        with open(self.log, "a") as log:
            print(indices[0], file=log)
        return super().__getitems__(indices)


class WaitingFor:
    """Sample 0, once it was asked for with others, is not serialized before some others were asked for, too."""

    def __init__(self, log, wanted: set[int]) -> None:
        self.log, self.wanted = log, wanted

    def __call__(self, sample: bytes) -> bytes:
        end = time.monotonic() + 20
        while sample == b"0" and self.log.exists() and not self.wanted <= self.asked_for():
            assert time.monotonic() < end, self.asked_for()
            time.sleep(0.001)
        if sample == b"0" and self.log.exists():
            time.sleep(0.05)
            assert self.asked_for() == self.wanted  # and not more, which would all be in memory
        return sample

    def asked_for(self) -> set[int]:
        return set(map(int, self.log.read_text().split()))


def test_tasks_in_reserve_are_asked_for_ahead(tmp_path):
    """While the first one is packed, so that a disk has something to do all the time."""
    log = tmp_path / "log"
    writer = DatasetWriter(tmp_path / "out", num_workers=1, serializer=WaitingFor(log, {0, 50, 100, 200, 300}))
    writer.from_indexed_dataset(Noting(log), chunksize=100)
    with FileReader(tmp_path / "out") as reader:
        assert [record.tobytes() for record in reader] == [b"%d" % i for i in range(1000)]
