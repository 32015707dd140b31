"""Ranks of a node, and the workers of their loaders, share one cache."""

from pathlib import Path

import children
import pytest
from remote_datasets import NUMBERS, numbers_of
from servers import Nginx

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("obstore", reason="obstore is not installed")

from torch.utils.data import DataLoader  # noqa: E402

from ffrecord.torch import Dataset, Loader  # noqa: E402

LONG = [pytest.param(method, marks=pytest.mark.long) for method in ("spawn", "forkserver")]


@pytest.mark.parametrize("method", ["fork", *LONG])
def test_what_one_worker_fetched_no_other_fetches(numbers_served: Nginx, tmp_path: Path, method: str) -> None:
    """Each epoch has workers of its own, and other samples for each."""
    with Dataset(f"{numbers_served.url}/set", cache_dir=tmp_path / "cache", cache_limit="1GB") as dataset:
        loader = DataLoader(dataset, 8, shuffle=True, num_workers=2, multiprocessing_context=method)
        assert sorted(numbers_of(loader)) == list(range(NUMBERS))
        with numbers_served.counted() as requests:
            assert sorted(numbers_of(loader)) == list(range(NUMBERS))
        assert set(requests) <= {"GET /set/dataset.json 200"}  # of workers that open the dataset themselves


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=["threads", "workers"])
def test_ranks(numbers_served: Nginx, tmp_path: Path, options: dict[str, int]) -> None:
    """In the second epoch each has samples that another fetched in the first."""

    def epoch(rank: int, number: int) -> list[int]:
        with Loader(
            f"{numbers_served.url}/set", 8, seed=3, rank=rank, world_size=2, cache_dir=tmp_path / "cache", **options
        ) as loader:
            loader.set_epoch(number)
            return numbers_of(loader)

    def child() -> bool:
        (tmp_path / "there").write_text(" ".join(map(str, epoch(1, 0))))
        return True

    here = epoch(0, 0)
    assert children.in_child(child) == 0
    there = [int(each) for each in (tmp_path / "there").read_text().split()]
    assert sorted(here + there) == list(range(NUMBERS))
    with numbers_served.counted() as requests:
        again = epoch(0, 1)
    assert set(again) & set(there) and set(requests) == {"GET /set/dataset.json 200"}
