"""Files that tests of an encoder write to."""

from pathlib import Path

import pytest

from ffrecord.dataset_writer.shards import ShardFiles


@pytest.fixture
def files(tmp_path: Path) -> ShardFiles:
    """Three empty shards."""
    made = ShardFiles(str(tmp_path), "/final")
    for number in range(3):
        Path(made.path(number)).touch()
    return made
