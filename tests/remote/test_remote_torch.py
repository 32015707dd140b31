"""torch reads datasets by URL, whatever way its workers are started."""

import pickle
from pathlib import Path

import pytest
from remote_datasets import NUMBERS, numbers_of
from servers import Nginx

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")

from torch.utils.data import DataLoader  # noqa: E402

from ffrecord.torch import Dataset, Loader  # noqa: E402


def test_dataset(numbers_served: Nginx) -> None:
    with numbers_served.counted() as requests, Dataset(f"{numbers_served.url}/set") as dataset:
        assert len(dataset) == NUMBERS
        assert [sample["number"] for sample in dataset[[3, 90, 3]]] == [3, 90, 3]
    assert len(requests) < 8
    assert f"{numbers_served.url}/set/" in repr(dataset)


LONG = [pytest.param(method, marks=pytest.mark.long) for method in ("spawn", "forkserver")]


@pytest.mark.parametrize("method", ["fork", *LONG])
def test_data_loader(numbers_served: Nginx, method: str) -> None:
    with Dataset(f"{numbers_served.url}/set", storage_options={"max_requests": 8}) as dataset:
        assert dataset[0]["number"] == 0  # threads and connections that workers cannot use
        loader = DataLoader(dataset, 16, shuffle=True, num_workers=2, multiprocessing_context=method)
        assert sorted(numbers_of(iter(loader))) == list(range(NUMBERS))


def test_what_a_spawned_worker_gets(numbers_served: Nginx, tmp_path: Path) -> None:
    host = numbers_served.url.partition("://")[2]
    dataset = Dataset(f"http://user:secret-word@{host}/basic/set", cache_dir=tmp_path, cache_limit="1GB")
    with pickle.loads(pickle.dumps(dataset)) as again:
        assert [sample["number"] for sample in again[[0, 7]]] == [0, 7]
        assert "secret" not in repr(again)
        assert again.fnames == dataset.fnames == f"{numbers_served.url}/basic/set"
    dataset.close()
    given = (f"http://user:secret-word@{host}/basic/set", f"{numbers_served.url}/set?sig=secret")
    with Dataset(given) as several:
        assert several.fnames == [f"{numbers_served.url}/basic/set", f"{numbers_served.url}/set?…"]


@pytest.mark.parametrize("options", [{}, {"num_threads": 0}, {"num_workers": 2}], ids=["threads", "alone", "workers"])
def test_loader(numbers_served: Nginx, tmp_path: Path, options: dict[str, int]) -> None:
    cached = {"cache_dir": tmp_path / "cache"} if options else {}
    with Loader(f"{numbers_served.url}/set", 16, seed=3, **options, **cached) as loader:
        first = numbers_of(iter(loader))
        second = numbers_of(iter(loader))
        assert sorted(first) == sorted(second)
        assert len(set(first)) == len(first) == NUMBERS
    with Loader(f"{numbers_served.url}/set", 16, seed=3) as loader:
        assert numbers_of(iter(loader)) == first
        state = loader.state_dict()
    with Loader(f"{numbers_served.url}/set", 16, seed=3) as loader:
        loader.load_state_dict(state)
        assert numbers_of(iter(loader)) == second
