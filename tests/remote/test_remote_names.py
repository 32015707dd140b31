"""A dataset may have any name: what a writer accepts is opened by every entry point."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import Storage, nginx, without_nginx

import ffrecord
from ffrecord import DatasetWriter, FileReader
from ffrecord.errors import ArgumentError

NAMES = (
    "x.ffr",
    "dataset.json",
    "x.tar",
    "x.tar.gz",
    "x.zip",
    "x.parquet",
    "x.tfrecord",
    "x.rec",
    "x.beton",
    "x.lmdb",
    "x",
)
SAMPLES = [{"number": i} for i in range(5)]


def check(url: str, tmp_path: Path, options: dict[str, Any]) -> None:
    """Every way to read it."""
    for read in (FileReader, ffrecord.open):
        for source in (url, [url]) if url.startswith(("/", "file:")) else (url, [url], f"{url}/dataset.json"):
            with read(source, **options) as store:
                assert [sample["number"] for sample in store.samples(range(5))] == [0, 1, 2, 3, 4]
    out = tmp_path / f"out-{abs(hash(url))}"
    result = ffrecord.convert(url, out, num_workers=0, verify=True, **options)
    assert result.samples == 5
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from ffrecord.torch import Dataset, Loader

    assert torch.utils.data.default_collate([Dataset(url, **options)[2]])["number"].tolist() == [2]
    assert [batch["number"].tolist() for batch in Loader(url, 5, "sequential", **options)] == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("name", NAMES)
def test_in_memory(name: str, tmp_path: Path) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    url = f"memory://names/{name}"
    for mode in ("create", "append"):
        DatasetWriter(url, num_workers=0, mode=mode, staging=tmp_path / "s").from_indexed_dataset(SAMPLES)
    DatasetWriter(f"{url}-2", num_workers=0, staging=tmp_path / "s").from_indexed_dataset(SAMPLES)
    with FileReader(url) as reader:
        assert len(reader) == 10
    check(f"{url}-2", tmp_path, {})


@pytest.mark.parametrize("name", ["x.ffr", "dataset.json", "x.tar"])
def test_in_a_store(name: str, storage: Storage, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed")
    url, options = storage.url(f"names/{name}"), {"storage_options": storage.storage_options}
    DatasetWriter(url, num_workers=0, staging=tmp_path / "s", **options).from_indexed_dataset(SAMPLES)
    check(url, tmp_path, options)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("names")
    for name in NAMES:
        DatasetWriter(directory / "root" / name, num_workers=0).from_indexed_dataset(SAMPLES)
    with nginx(directory / "root", directory=directory / "nginx") as running:
        yield running.url


@without_nginx
@pytest.mark.parametrize("backend", ["obstore", "fsspec"])
@pytest.mark.parametrize("name", ["x.ffr", "dataset.json", "x.zip"])
def test_behind_a_web_server(served: str, name: str, backend: str, tmp_path: Path) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    check(f"{served}/{name}", tmp_path, {"storage_options": {"backend": backend}})


@without_nginx
@pytest.mark.parametrize("command", ["info", "verify"])
def test_commands(served: str, command: str) -> None:
    for name in ("x.ffr", "x.zip"):
        run = [sys.executable, "-m", "ffrecord", command, f"{served}/{name}"]
        ended = subprocess.run(run, capture_output=True, text=True, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("name", NAMES)
def test_on_this_machine(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    DatasetWriter(path, num_workers=0).from_indexed_dataset(SAMPLES)
    check(str(path), tmp_path, {})
    check(f"file://{path}", tmp_path, {})


def test_names_of_other_formats_that_are_not_there() -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(ArgumentError, match=r"memory://names/none.tar: only .ffr files can be read from a URL: copy"):
        ffrecord.open("memory://names/none.tar")
    with pytest.raises(ArgumentError, match=r"memory://names/x: only .ffr files can be read from a URL, not zip"):
        ffrecord.open("memory://names/x", "zip")
