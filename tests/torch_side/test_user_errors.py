"""Mistakes in functions of users end a loop with an error that names the sample: no hang, no epoch cut short."""

import gc
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from typing import Any

import children
import numpy as np
import pytest
import torch
from loader_builders import mixed, write
from torch_builders import WORKERS_ANYWHERE, Ints, NewStyle, Plain

import ffrecord
from ffrecord.errors import ArgumentError, SampleError, UserFunctionError, WorkerError
from ffrecord.torch import DataLoader, Dataset, IterableDataset, Loader, Sampler

pytestmark = WORKERS_ANYWHERE
WORKERS = pytest.mark.parametrize("workers", [0, 1])


@pytest.fixture(scope="module")
def mixed_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("errors") / "mixed.ffr", map(mixed, range(23)))


# StopIteration


def stop() -> Any:
    return next(iter(()))


class Stopping(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[int]:
        return stop() if 9 in indices else super().process(indices, data)


class StoppingItems(NewStyle):
    def __getitem__(self, indices: Any) -> Any:
        return stop() if 9 in indices else super().__getitem__(indices)


class StoppingPlain(Plain):
    def __getitem__(self, index: int) -> int:
        return stop() if index == 9 else super().__getitem__(index)


def stopping_collate(samples: list[Any]) -> Any:
    return stop() if 9 in samples else samples


def taken(loader: Any, named: str = "9") -> int:
    """How many batches a loop has before its error, which names the sample."""
    count = 0
    with pytest.raises(UserFunctionError, match="StopIteration") as caught:
        for _ in loader:
            count += 1
    assert named in str(caught.value)
    return count


@WORKERS
@pytest.mark.parametrize("make", [Stopping, StoppingItems, lambda path: StoppingPlain(list(range(23)))])
def test_a_dataset_that_stops(path: str, make: Callable[[str], Any], workers: int):
    assert taken(DataLoader(make(path), 4, num_workers=workers)) == 2


@WORKERS
def test_a_collate_function_that_stops(workers: int):
    loader = DataLoader(Plain(list(range(23))), 4, collate_fn=stopping_collate, num_workers=workers)
    assert taken(loader) == 2


@pytest.mark.parametrize("make", [Stopping, StoppingItems])
def test_an_iterable_that_stops(path: str, make: Callable[[str], Any]):
    class Whole(make):  # type: ignore[misc, valid-type]
        pass

    assert taken(IterableDataset(Whole(path), 4, shuffle=False)) == 8


HOWS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 1}]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("function", ["transform", "batch_transform"])
def test_functions_of_the_loader_that_stop(mixed_path: str, how: dict[str, Any], function: str):
    def stopping(value: Any) -> Any:
        ids = np.atleast_1d(value["id"])
        return stop() if 9 in ids else value

    named = "sample 9" if function == "transform" else "samples 8, 9, 10, 11"
    assert taken(Loader(mixed_path, 4, "sequential", **{function: stopping}, **how), named) == 2


@pytest.mark.parametrize("how", HOWS)
def test_a_store_that_stops(mixed_path: str, how: dict[str, Any]):
    class Stopping(ffrecord.FileReader):
        def _begin_packed(self, indices: Any) -> Any:
            return stop() if 9 in indices else super()._begin_packed(indices)

    assert taken(Loader(Stopping(mixed_path), 4, "sequential", transform=str, **how)) == 2


@pytest.mark.parametrize("kind", ["map", "iterable", "loader"])
def test_garbage_that_refers_to_itself_is_not_waited_for(path: str, mixed_path: str, kind: str):
    """The collector closes the queues to the workers before it ends the iterator, which cannot tell them then."""
    loaders: dict[str, Callable[[], Any]] = {
        "map": lambda: DataLoader(Ints(path), 4, num_workers=1),
        "iterable": lambda: DataLoader(IterableDataset(Ints(path), 4), None, num_workers=1, skippable=False),
        "loader": lambda: Loader(mixed_path, 4, num_workers=1),
    }
    iterator = iter(loaders[kind]())
    next(iterator)
    cycle: list[Any] = [iterator]
    cycle.append(cycle)
    del iterator, cycle
    started = time.monotonic()
    gc.collect()
    assert time.monotonic() - started < 4  # torch's own iterator takes 5 s


# What does not pickle


class Failing(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[int]:
        class LocalError(Exception):
            pass

        raise LocalError("the reason")


def test_an_exception_that_does_not_pickle(path: str):
    loader = DataLoader(Failing(path), 4, num_workers=1, sampler=Sampler(23, shuffle=False))
    with pytest.raises(UserFunctionError, match=r"(?s)samples 0, 1, 2, 3.*the reason.*cannot be sent from a worker"):
        next(iter(loader))
    assert loader.state_dict()["position"] == 0


class FailingTogether(Ints):
    def process(self, indices: list[int], data: list[Any]) -> list[int]:
        raise ExceptionGroup("several", [ValueError("the reason")])  # noqa: F821


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no groups of exceptions")
def test_a_group_of_exceptions(path: str):
    with pytest.raises(UserFunctionError, match=r"(?s)several.*the reason"):
        next(iter(DataLoader(FailingTogether(path), 4, num_workers=1)))


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_a_batch_that_does_not_pickle(path: str, kind: str):
    dataset: Any = Ints(path) if kind == "map" else IterableDataset(Ints(path), 4)
    loader = DataLoader(dataset, 4, num_workers=1, collate_fn=lambda samples: lambda: samples)
    with pytest.raises(UserFunctionError, match=r"a batch cannot be sent from a worker: .*lambda"):
        next(iter(loader))


def test_indices_that_do_not_pickle(path: str):
    loader = DataLoader(Plain([1, 2]), 1, num_workers=1, sampler=[lambda: 1])
    with pytest.raises(UserFunctionError, match=r"indices cannot be sent to a worker: .*lambda"):
        next(iter(loader))


def test_a_batch_that_cannot_be_unpickled(path: str):
    loader = DataLoader(Ints(path), 4, num_workers=1, collate_fn=Fragile)
    with pytest.raises(UserFunctionError, match="cannot be unpickled: ValueError: not here"):
        next(iter(loader))


class Fragile:
    def __init__(self, samples: Any) -> None:
        self.samples = samples

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> None:
    raise ValueError("not here")


def test_an_exception_of_a_store_that_does_not_pickle(mixed_path: str):
    class Odd(ffrecord.FileReader):
        def _begin_packed(self, indices: Any) -> Any:
            class LocalError(Exception):
                pass

            raise LocalError("the reason")

    with pytest.raises(UserFunctionError, match=r"(?s)the reason.*cannot be sent from a worker"):
        next(iter(Loader(Odd(mixed_path), 4, num_workers=1, transform=str)))


# Exceptions without text


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("unprintable")


def fail(*_: Any) -> Any:
    raise Unprintable


@pytest.mark.parametrize("how", HOWS)
def test_an_exception_without_text(mixed_path: str, how: dict[str, Any]):
    for function in ("transform", "batch_transform"):
        with pytest.raises(UserFunctionError, match=r"failed on .*Unprintable \(its text cannot be made: ValueError"):
            next(iter(Loader(mixed_path, 4, **{function: fail}, **how)))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_writer_names_the_sample(tmp_path: Path, workers: int):
    class Odd(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            return fail() if index == 3 else super().__getitem__(index)

    writer = ffrecord.DatasetWriter(tmp_path / "out", {"i": ffrecord.fields.IntField()}, num_workers=workers)
    with pytest.raises(SampleError, match=r"sample 3: .*Unprintable") as caught:
        writer.from_indexed_dataset(Odd({"i": i} for i in range(5)))
    assert isinstance(caught.value, WorkerError)  # which programs catch
    assert (caught.value.index, caught.value.exitcode) == (3, None)


# Samples that do not make a batch


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"a": {"b": None}}, r"sample 2: column 'a.b' is None, but int 0 in the first sample"),
        ({"a": {"b": "text"}}, r"sample 2: column 'a.b' is str 'text', but int 0"),
        ({"a": {}}, r"sample 2: column 'a.b': the first sample has it, this one lacks it"),
        ({"a": 1}, r"sample 2: column 'a.b': the first sample has it, this one is int 1"),
        (None, r"transform returned None for sample 2 .*: return the sample"),
        ({"a": {"b": 1 << 70}}, r"sample 2: column 'a.b' is int 1180591620717411303424, expected -2\*\*63 <= int < "),
    ],
)
def test_the_column_and_the_sample_are_named(mixed_path: str, odd: Any, message: str):
    def transform(sample: Any) -> Any:
        return odd if sample["id"] == 2 else {"a": {"b": 0}}

    with pytest.raises(UserFunctionError, match=message):
        next(iter(Loader(mixed_path, 4, "sequential", transform=transform)))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_refused_by_name(tmp_path: Path, layout: Any):
    sample = {"id": 1, "mask": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)}
    with pytest.raises(ArgumentError, match="mask: a nested tensor has no shape; store its parts"):
        ffrecord.DatasetWriter(tmp_path / "inferred", num_workers=0).from_indexed_dataset([sample])
    fields = {"id": ffrecord.fields.IntField(), "mask": ffrecord.fields.TensorField("float32", (None,))}
    with pytest.raises(SampleError, match=r"sample 0: .*mask: a nested tensor has no shape"):
        ffrecord.DatasetWriter(tmp_path / "declared", fields, num_workers=0).from_indexed_dataset([sample])


@pytest.mark.parametrize("how", HOWS)
def test_samples_without_columns(tmp_path: Path, how: dict[str, Any]):
    ffrecord.DatasetWriter(tmp_path / "empty", num_workers=0).from_indexed_dataset([{}] * 5)
    assert [batch.tolist() for batch in Loader(str(tmp_path / "empty"), 2, transform=len, **how)] == [
        [0, 0],
        [0, 0],
        [0],
    ]
    assert list(Loader(str(tmp_path / "empty"), 2, **how)) == [{}] * 3


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_do_not_make_a_batch(mixed_path: str):
    def transform(sample: Any) -> Any:
        return {"mask": torch.nested.nested_tensor([torch.ones(sample["id"] + 1)])}

    with pytest.raises(UserFunctionError, match="sample 0: column 'mask' is a nested torch float32 tensor"):
        next(iter(Loader(mixed_path, 4, "sequential", transform=transform)))


# Another default device


def test_another_default_device(tmp_path: Path, mixed_path: str):
    """All tensors that we make are in ordinary memory, whatever torch makes by default."""
    samples = [{"i": i, "x": np.full(3, i), "t": torch.ones(2), "v": np.arange(i % 3 + 1)} for i in range(20)]
    ffrecord.DatasetWriter(tmp_path / "data", num_workers=0).from_indexed_dataset(samples)
    data = str(tmp_path / "data")
    dataset: Dataset[Any] = Dataset(data)
    with torch.device("meta"):
        batch = torch.utils.data.default_collate(dataset.__getitems__([1, 4]))
        assert {name: batch[name].device.type for name in "ixt"} == dict.fromkeys("ixt", "cpu")
        assert next(iter(IterableDataset(dataset, 5)))["t"].device.type == "cpu"
        for ragged, how in itertools.product(("list", "padded"), HOWS[:2]):
            for transform in (None, lambda sample: {**sample, "n": 7 if sample["i"] % 2 else 0.5}):
                loader = Loader(data, 5, transform=transform, ragged=ragged, policy="pad", rank=0, world_size=1, **how)
                batch = next(iter(loader))
                found = [batch[name] for name in "ixtn" if name in batch] + [loader.batch_mask]
                found += list(batch["v"]) if ragged == "list" else [batch["v"].values, batch["v"].lengths]
                assert {tensor.device.type for tensor in found} == {"cpu"}
        sampler = Sampler(dataset)
        assert len(list(sampler)) == 20 and sampler.state_dict()["epoch"] == 1


def test_another_default_device_and_workers(tmp_path: Path):
    code = """
        import sys
        import numpy as np, torch
        from ffrecord.torch import Loader
        with torch.device("meta"):
            for transform in (None, lambda sample: sample):
                batch = next(iter(Loader(sys.argv[1], 5, num_workers=1, transform=transform)))
                print(*(batch[name].device for name in sorted(batch)))
    """
    samples = [{"i": i, "x": np.full(40_000, i)} for i in range(10)]
    ffrecord.DatasetWriter(tmp_path / "data", num_workers=0).from_indexed_dataset(samples)
    said = children.finished(dedent(code), tmp_path / "data", PYTHONWARNINGS="ignore")
    assert said.stdout.split() == ["cpu"] * 4, said.stderr[-2000:]
