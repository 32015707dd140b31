import pytest

from ffrecord.system.open_all import open_all


class File:
    closed = False

    def close(self):
        self.closed = True


def test_all_or_none():
    files = [File(), File()]
    assert open_all(iter(files)) == files and not any(file.closed for file in files)

    def opens():
        yield from files
        raise OSError("no third one")

    with pytest.raises(OSError, match="no third one"):
        open_all(opens())
    assert all(file.closed for file in files)
