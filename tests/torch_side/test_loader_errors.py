"""Bad records, and functions of the user that raise or hang."""

import os
import resource
import signal
import sys
import threading
import time
from typing import NamedTuple

import children
import numpy as np
import pytest
import torch
from loader_builders import child_processes, damage, fixed, flat, ids, mixed, write
from torch.utils.data import Subset
from torch_builders import WORKERS_ANYWHERE

from ffrecord import FFRecordError, FormatError
from ffrecord.errors import BatchTimeoutError, ChecksumError, UserFunctionError, WorkerError
from ffrecord.order import Epoch, Random
from ffrecord.torch import Dataset, Loader
from ffrecord.torch.loading import iteration
from ffrecord.torch.loading.bad_records import ATTEMPTS, choose_replacement

pytestmark = WORKERS_ANYWHERE
COUNT = 30
BAD = 17
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]


@pytest.fixture(params=["checksum of a fixed-size record", "checksum", "text that is no UTF-8", "record cut short"])
def bad(request, tmp_path):
    """A file in which sample BAD cannot be had."""
    kind = request.param
    if kind.startswith("checksum"):
        path = write(tmp_path / "bad.ffr", map(fixed if "fixed" in kind else mixed, range(COUNT)))
        damage(path, BAD)
        return path

    def spoil(i, record):
        if i != BAD:
            return record
        return record.replace(b"sample", b"\xff\xff\xff\xff\xff\xff") if "UTF" in kind else record[:-9]

    return write(tmp_path / "bad.ffr", map(mixed, range(COUNT)), spoil)


def epoch(seed=0):
    return Epoch(Random(), COUNT, seed, 0, None)


@pytest.mark.parametrize("how", MAKERS)
def test_raise(bad, how):
    loader = Loader(bad, 4, "sequential", **how)
    seen = []
    with pytest.raises((ChecksumError, FormatError), match=f"Sample {BAD}: .*bad.ffr: sample {BAD}"):
        for batch in loader:
            seen += flat([batch])
    assert seen == list(range(16)) and loader.position == 16


@pytest.mark.parametrize("how", MAKERS)
def test_skip(bad, how, caplog):
    loader = Loader(bad, 4, "sequential", on_error="skip", **how)
    batches = ids(loader)
    assert batches[4] == [16, 18, 19]
    assert [i for batch in batches for i in batch] == [i for i in range(COUNT) if i != BAD]
    assert loader.stats().skipped == 1 and loader.stats().samples == COUNT - 1
    assert f"skipped: Sample {BAD}: " in caplog.text


@pytest.mark.parametrize("how", MAKERS)
def test_replace(bad, how, caplog):
    loader = Loader(bad, 4, seed=6, on_error="replace", **how)
    order = epoch(6).indices(np.arange(COUNT)).tolist()
    position = order.index(BAD)
    attempts = (choose_replacement(epoch(6), position, attempt) for attempt in range(1, ATTEMPTS + 1))
    order[position] = next(index for index in attempts if index != BAD)
    assert flat(loader) == order
    assert loader.stats().skipped == 1
    assert f"replaced: Sample {BAD}: " in caplog.text


def test_replacement_is_the_same_on_any_ranks(bad):
    whole = flat(Loader(bad, 4, seed=6, on_error="replace"))
    parts = [flat(Loader(bad, 3, seed=6, on_error="replace", rank=r, world_size=2)) for r in range(2)]
    assert [parts[i % 2][i // 2] for i in range(COUNT)] == whole


def test_replacements_may_be_bad_too(tmp_path):
    path = write(tmp_path / "bad.ffr", map(fixed, range(COUNT)))
    position = epoch().indices(np.arange(COUNT)).tolist().index(BAD)
    chain = [BAD, *(choose_replacement(epoch(), position, attempt) for attempt in range(1, ATTEMPTS + 1))]
    damage(path, *set(chain[:3]))
    found = flat(Loader(path, 4, on_error="replace"))
    assert found[position] == next(index for index in chain if index not in chain[:3])
    damage(path, *(set(chain) - set(chain[:3])))
    with pytest.raises(ChecksumError, match=f"Sample {BAD}: "):
        list(Loader(path, 4, on_error="replace"))


def test_replacement_goes_through_the_same_functions(tmp_path):
    """It has the seed of the position, and comes from the filter."""
    path = write(tmp_path / "bad.ffr", map(fixed, range(COUNT)))
    damage(path, BAD)
    made = {"seed": 6, "transform": note, "on_error": "replace", "indices": np.array([BAD, 3, 4])}
    for (images, seeds), (_, good) in zip(
        Loader(path, 2, **made), Loader(path, 2, **made | {"indices": [0, 3, 4]}), strict=True
    ):
        assert set(images.flatten().tolist()) <= {3, 4}
        assert seeds.tolist() == good.tolist()


def note(sample, seed):
    return sample[0], seed >> 1


def test_batches_without_any_good_sample_are_left_out(tmp_path):
    path = write(tmp_path / "bad.ffr", map(fixed, range(6)))
    damage(path, 2, 3)
    loader = Loader(path, 2, "sequential", on_error="skip")
    positions = [(batch[1].tolist(), loader.position) for batch in loader]
    assert positions == [([0, 1], 2), ([4, 5], 6)]


def test_too_many_bad_samples(tmp_path, monkeypatch):
    monkeypatch.setattr(iteration, "SKIPPED_MOST", 2)
    path = write(tmp_path / "bad.ffr", map(fixed, range(8)))
    damage(path, 1, 4, 6)
    with pytest.raises(FFRecordError, match=r"Sample 6: .* limit of 2 bad samples"):
        list(Loader(path, 2, on_error="skip", order="sequential"))


def test_skipped_padding_is_still_padding(tmp_path):
    path = write(tmp_path / "bad.ffr", map(fixed, range(5)))
    damage(path, 4)
    loader = Loader(path, 3, "sequential", on_error="skip", rank=1, world_size=2, policy="pad")
    assert [(batch[1].tolist(), loader.batch_mask.tolist()) for batch in loader] == [([1, 3, 0], [True, True, False])]
    damage(path, 0)
    assert [(batch[1].tolist(), loader.batch_mask.tolist()) for batch in loader] == [([1, 3], [True, True])]


# Functions of the user


def fails(sample):
    if sample["id"] == BAD:
        raise LookupError("no such thing")
    return sample


def fails_whole(batch):
    if BAD in batch["id"].tolist():
        raise LookupError("no such thing")
    return batch


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("loader") / "good.ffr", map(mixed, range(COUNT)))


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize("how", MAKERS)
def test_transform_that_raises(path, how, on_error):
    loader = Loader(path, 4, "sequential", transform=fails, on_error=on_error, **how)
    seen = []
    message = rf"transform failed on sample {BAD} \(.*good\.ffr: sample {BAD}\): LookupError: no such thing"
    with pytest.raises(UserFunctionError, match=message) as caught:
        for batch in loader:
            seen += flat([batch])
    assert seen == list(range(16))
    assert "num_workers" in how or isinstance(caught.value.__cause__, LookupError)
    assert gone(threading.enumerate)


@pytest.mark.parametrize("wrap", [lambda dataset: dataset, lambda dataset: Subset(dataset, range(COUNT))])
@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("how", MAKERS)
def test_transform_of_a_dataset_that_raises(path, how, on_error, wrap):
    """A mistake in a program is no damaged sample: nothing is left out because of it."""
    dataset = wrap(Dataset(path, transform=fails))
    message = rf"transform failed on sample {BAD} \(.*good\.ffr: sample {BAD}\): LookupError: no such thing"
    with pytest.raises(UserFunctionError, match=message):
        flat(Loader(dataset, 4, "sequential", on_error=on_error, **how))


@pytest.mark.parametrize("how", MAKERS)
def test_batch_transform_that_raises(path, how):
    loader = Loader(path, 4, "sequential", batch_transform=fails_whole, **how)
    with pytest.raises(UserFunctionError, match="batch_transform failed on the batch of samples 16, 17, 18, 19 "):
        list(loader)


def test_transform_whose_results_do_not_fit(path):
    with pytest.raises(
        UserFunctionError, match=r"transform returned samples that do not make a batch: sample 1: column .*lacks it"
    ):
        list(Loader(path, 4, "sequential", transform=lambda sample: {sample["id"]: 0}))


def gone(listed, seconds=5.0):
    """Whether soon nothing of a loader is left."""
    deadline = time.monotonic() + seconds
    while left := [each for each in listed() if "ffrecord" in each.name or "DataLoader" in each.name]:
        if time.monotonic() > deadline:
            return not left
        time.sleep(0.01)
    return True


def test_transform_that_hangs_in_a_thread(path):
    release = threading.Event()

    def hangs(sample):
        if sample["id"] == BAD:
            release.wait(60)
        return sample

    loader = Loader(path, 4, "sequential", transform=hangs, timeout=2, num_threads=2)
    seen = []
    try:
        with pytest.raises(
            BatchTimeoutError,
            match=rf"the batch of samples 16, 17, 18, 19 was not .* 2 s: .* transform of sample {BAD}",
        ):
            for batch in loader:
                seen += flat([batch])
    finally:
        release.set()
    assert seen == list(range(16))
    assert gone(threading.enumerate)


def hangs(sample):
    if sample["id"] == BAD:
        time.sleep(60)
    return sample


def test_transform_that_hangs_in_a_worker(path):
    before = child_processes()
    loader = Loader(path, 4, "sequential", transform=hangs, timeout=2, num_workers=2)
    start = time.monotonic()
    with pytest.raises(BatchTimeoutError, match="the batch of samples 16, 17, 18, 19 was not ready after 2 s"):
        list(loader)
    assert time.monotonic() - start < 30  # the worker sleeps 60
    assert child_processes() <= before  # not even a zombie


def dies(sample):
    if sample["id"] == BAD:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def test_worker_that_dies(path):
    before = child_processes()
    loader = Loader(path, 4, "sequential", transform=dies, num_workers=2)
    with pytest.raises(
        WorkerError, match="worker process was ended by SIGKILL at sample 17 of the batch of samples 16, 17, 18, 19 "
    ):
        list(loader)
    assert child_processes() <= before


def dies_later(sample):
    if sample["id"] == BAD:
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def test_a_worker_that_dies_interrupts_nobody_else(path):
    """The step of training that runs then is not where the error comes from."""
    batches = iter(Loader(path, 4, "sequential", transform=dies_later, num_workers=2, prefetch=16))
    next(batches)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        pass
    words = r"was ended by SIGKILL at sample 17 of .* \(worker 0, process \d+\): probably out of memory$"
    with pytest.raises(WorkerError, match=words):
        list(batches)


# What cannot go to workers, or come from them


def with_a_lock(batch):
    return [*batch, threading.Lock()]


def test_a_batch_that_cannot_be_sent(path):
    """torch would print it in a thread of the worker, and wait for ever."""
    loader = Loader(path, 4, num_workers=1, batch_transform=with_a_lock)
    with pytest.raises(UserFunctionError, match=r"a batch cannot be sent from a worker: .*lock"):
        list(loader)


def with_an_object(batch):
    return [*batch, np.array([threading.Lock()])]


def with_a_gradient(batch):
    return [*batch, torch.ones(2, requires_grad=True) * 2]


@pytest.mark.parametrize(
    "function, message", [(with_an_object, "cannot pickle .*lock"), (with_a_gradient, "non-leaf tensor")]
)
def test_arrays_and_tensors_that_cannot_be_sent(path, function, message):
    with pytest.raises(UserFunctionError, match=message):
        list(Loader(path, 4, num_workers=1, batch_transform=function))


def with_more_descriptors_than_there_are(batch):
    return [torch.nn.Parameter(torch.ones(2)) for _ in range(resource.getrlimit(resource.RLIMIT_NOFILE)[0])]


class Odd(torch.Tensor):
    """With an attribute that cannot be pickled."""


def with_an_odd_tensor(batch):
    odd = torch.ones(2).as_subclass(Odd)
    odd.lock = threading.Lock()
    return [odd]


@pytest.fixture
def few_descriptors():
    """Leave 100 descriptors, however many earlier tests of this process keep open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("function", [with_more_descriptors_than_there_are, with_an_odd_tensor])
def test_what_torch_cannot_send(path, function, few_descriptors):
    with pytest.raises(UserFunctionError, match="a batch cannot be sent"):
        list(Loader(path, 4, num_workers=1, batch_transform=function, timeout=20))


def test_more_parameters_are_kept_than_there_are_descriptors(path, few_descriptors):
    """What torch says of it, "received 0 items of ancdata", tells nobody what to do."""
    with pytest.raises(OSError, match="comes as descriptors; keep fewer batches, or raise the limit"):
        kept = list(Loader(path, 1, num_workers=1, batch_transform=with_parameters, timeout=20))
        raise AssertionError(len(kept))


def with_parameters(batch):
    return [torch.nn.Parameter(torch.ones(2)) for _ in range(10)]


class Marked(NamedTuple("Marked", [("x", torch.Tensor)])):
    """A named tuple with attributes of its own."""


def marked(batch):
    found = Marked(torch.ones(3))
    found.extra = 5
    return {"marked": found, "kind": Marked, "pair": (1, [torch.ones(2, 3, 4).permute(2, 0, 1), torch.ones(4)])}


def test_structures_arrive_as_they_are(path):
    for batch in Loader(path, 4, num_workers=1, batch_transform=marked):
        assert (batch["marked"].extra, batch["marked"].x.tolist(), batch["kind"]) == (5, [1, 1, 1], Marked)
        assert batch["pair"][1][0].stride() == (1, 12, 4)


class Shut:
    """Pickles, and does not unpickle."""

    def __reduce__(self):
        return int, ("x",)


def with_what_does_not_unpickle(batch):
    return [Shut()]


def test_a_batch_that_cannot_be_received(path):
    with pytest.raises(UserFunctionError, match="data from a worker cannot be unpickled: ValueError"):
        list(Loader(path, 4, num_workers=1, batch_transform=with_what_does_not_unpickle))


def test_a_function_that_exits(path):
    with pytest.raises(WorkerError, match=r"exited with code 3 at .*the batch of samples 0, 1, 2, 3 "):
        list(Loader(path, 4, "sequential", num_workers=1, batch_transform=lambda batch: sys.exit(3)))


FULL = """
import sys
import children, torch
from ffrecord.errors import UserFunctionError
from ffrecord.torch import Dataset, Loader
try:
    children.small_disk("/dev/shm", 256 << 10)
except OSError as error:
    sys.exit(print(f"no mounts: {error}"))
many = {
    "contiguous": lambda: torch.ones(300_000),
    "dense": lambda: torch.ones(300, 1000).T,
    "gaps": lambda: torch.ones(300, 1000)[:, ::2],
    "list": lambda: [torch.ones(300_000), torch.ones(2)],
    "own": lambda: (torch.nn.Parameter(torch.ones(3)), "text"),
}
made = lambda batch: {name: make() for name, make in many.items()}
for batch in Loader(sys.argv[1], 4, num_workers=2, batch_transform=made):
    assert batch["contiguous"].sum() == batch["dense"].sum() == 2 * batch["gaps"].sum() == 300_000
    assert len(batch["list"]) == 2 and len(batch["own"]) == 2
try:
    list(Loader(sys.argv[1], 4, num_workers=2, batch_transform=lambda batch: torch.nn.Parameter(torch.ones(300_000))))
except UserFunctionError as error:
    assert "a batch cannot be sent from a worker: RuntimeError: unable to" in str(error), error
else:
    sys.exit("nothing was noticed")
"""


def test_shared_memory_that_is_full(path):
    """torch's workers would lose the batch, and the loop wait for ever."""
    if "no mounts" in children.run(FULL, path):
        pytest.skip("this machine allows no mounts")


def test_functions_that_cannot_be_sent(path):
    loader = Loader(path, 4, num_workers=1, transform=lambda sample: sample, multiprocessing_context="spawn")
    with pytest.raises(TypeError, match="cannot be sent to worker processes of start method 'spawn'"):
        next(iter(loader))


def stuck_after_the_first(sample):
    if sample["id"] > 0:
        time.sleep(60)
    return sample


def test_leaving_workers_that_hang(path):
    """They are killed; torch by itself waits 5 s for each."""
    iterator = iter(Loader(path, 1, "sequential", num_workers=2, transform=stuck_after_the_first))
    next(iterator)
    before = time.monotonic()
    iterator.close()
    assert time.monotonic() - before < 4.5 * children.PATIENCE


@pytest.mark.parametrize("how", [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 1}])
def test_an_epoch_of_which_all_is_left_out_is_an_error(how):
    """A wrong name or a mistake in a program looked like an epoch of bad data, without a batch and without an error."""

    class Samples:
        def __init__(self, good):
            self.good = good

        def __len__(self):
            return 20

        def __getitem__(self, index):
            return {"x": index if index in self.good else index / 0}

    with pytest.raises(FFRecordError, match=r"^all samples of epoch 0 were left out, .* skipped: .*division by zero"):
        list(Loader(Samples([]), 4, on_error="skip", seed=0, **how))
    (batch,) = Loader(Samples([7]), 4, on_error="skip", seed=0, **how)
    assert batch["x"].tolist() == [7]
