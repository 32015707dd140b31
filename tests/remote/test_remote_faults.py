"""Whatever a network does to answers: every sample is there, and every byte of it right (long: 1,000 faults)."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import builders
import numpy as np
import pytest
import remote_datasets
from servers import Faulty, Nginx, faulty, nginx

from ffrecord import FileReader
from ffrecord.errors import RemoteError, TransientError

pytest.importorskip("obstore", reason="obstore is not installed")
NETWORK = ("reset", "cut", "503", "429", "slow", "short", "less", "stale")  # nothing that TCP would not notice
ALL = (*NETWORK, "corrupt")
DATA = builders.records([20_000 + 91 * (i % 300) for i in range(300)], seed=9)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    directory = tmp_path_factory.mktemp("faults")
    remote_datasets.write_dataset(directory / "root" / "set", DATA, 45)
    with nginx(directory / "root", directory=directory / "nginx") as running:
        yield running


def read_until(reader: FileReader, proxy: Faulty, faults: int, seed: int) -> None:
    """Epochs in random order, each sample compared, until so many faults were injected."""
    random = np.random.default_rng(seed)
    while proxy.done.total() < faults:
        order = random.permutation(len(DATA))
        batches = [order[start : start + 16] for start in range(0, len(order), 16)]
        for batch, arrays in zip(batches, reader.iter_batches(batches, 4), strict=True):
            assert [array.tobytes() for array in arrays] == [DATA[i] for i in batch]


@pytest.mark.parametrize("faults", [60, pytest.param(1200, marks=pytest.mark.long)])
@pytest.mark.parametrize("backend", ["obstore", pytest.param("fsspec", marks=pytest.mark.long)])
def test_faults_during_reads(served: Nginx, backend: str, faults: int) -> None:
    with (
        faulty(served.url, seed=faults, share=0) as proxy,
        FileReader(f"{proxy.url}/set", storage_options={"backend": backend}) as reader,
    ):
        proxy.share, proxy.kinds = 0.2, ALL
        read_until(reader, proxy, faults, seed=1)
    assert set(proxy.done) == set(ALL)
    assert proxy.done.total() >= faults


@pytest.mark.long
def test_faults_in_workers(served: Nginx) -> None:
    """Each with connections of its own."""
    pytest.importorskip("torch", reason="torch is not installed")
    from torch.utils.data import DataLoader

    from ffrecord.torch import Dataset

    class Bytes(Dataset[bytes]):
        def process(self, indices: list[int], data: list[np.ndarray]) -> list[bytes]:
            return [bytes([index % 256]) + array.tobytes() for index, array in zip(indices, data, strict=True)]

    with faulty(served.url, seed=5, share=0) as proxy, Bytes(f"{proxy.url}/set") as dataset:
        proxy.share, proxy.kinds = 0.2, ALL
        while proxy.done.total() < 300:
            loader = DataLoader(dataset, 10, shuffle=True, num_workers=2, collate_fn=list)
            found = [sample for batch in loader for sample in batch]
            assert sorted(found) == sorted(bytes([i % 256]) + sample for i, sample in enumerate(DATA))


def test_faults_while_opening(served: Nginx) -> None:
    done: Counter[str] = Counter()
    for seed in range(6):
        with (
            faulty(served.url, seed=seed, share=0.6, kinds=NETWORK) as proxy,
            FileReader(f"{proxy.url}/set") as reader,
        ):
            assert reader.read([seed])[0].tobytes() == DATA[seed]
        done += proxy.done
    assert done.total() >= 6 <= len(done)


def test_what_stays_bad_is_told(served: Nginx) -> None:
    options = {"max_tries": 3}
    with (
        faulty(served.url, share=0) as proxy,
        FileReader(f"{proxy.url}/set", on_error="skip", storage_options=options) as reader,
    ):
        assert reader.read([1])[0].tobytes() == DATA[1]
        proxy.share, proxy.in_a_row = 1, 100
        for kind, said in {
            "reset": "the connection",
            "503": "HTTP status 503",
            "short": "the connection",
            "less": r"\d+ bytes arrived, expected \d+",
        }.items():
            proxy.kinds = (kind,)
            with pytest.raises(TransientError, match=rf"^Sample 7: {proxy.url}/set/part%20000.ffr: .*{said}") as told:
                reader.read([7])
            assert "tried 3 times in" in str(told.value)
        assert reader.skipped == 0
        proxy.share = 0
        assert reader.read([7])[0].tobytes() == DATA[7]


def test_what_came_damaged_and_then_right_is_told(served: Nginx, caplog: pytest.LogCaptureFixture) -> None:
    """A network that damages what it carries would only be slower, and go unnoticed."""
    caplog.set_level("INFO", "ffrecord")
    with faulty(served.url, share=0, kinds=["corrupt"], in_a_row=1) as proxy, FileReader(f"{proxy.url}/set") as reader:
        assert reader.read([1, 50, 100])[1].tobytes() == DATA[50]  # and tables
        assert reader.stats().refetched == 0
        proxy.share = 1
        assert [array.tobytes() for array in reader.read([7, 46, 99])] == [DATA[7], DATA[46], DATA[99]]
        stats = reader.stats()
    assert stats.refetched == 3 == proxy.done["corrupt"]
    assert stats.crc_seconds > 0
    said = sorted((record.levelname, record.getMessage()) for record in caplog.records if record.name == "ffrecord")
    assert [level for level, _ in said] == ["INFO", "INFO", "WARNING"]
    message = f"{proxy.url}/set/part%20000.ffr: sample 7 arrived damaged, and is fetched again"
    assert message in [each for _, each in said]


def test_a_server_that_goes_away_and_comes_back(served: Nginx, tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to(served.root)
    options = {"max_tries": 2}
    with nginx(tmp_path / "root", directory=tmp_path / "nginx") as running:
        reader = FileReader(f"{running.url}/set", storage_options=options)
        reader.read([3])
    with pytest.raises(RemoteError, match=r"Sample 9: .*refused.*tried 2 times"):
        reader.read([9])
    with pytest.raises(TransientError, match=r"refused.*tried 2 times"):
        FileReader(f"{running.url}/set", storage_options=options)
    reader.close()
