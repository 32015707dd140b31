import pytest

from ffrecord.system.open_all import all_opened


class File:
    closed = False

    def close(self):
        self.closed = True


def test_all_or_none():
    files = [File(), File()]
    assert all_opened(iter(files)) == files and not any(file.closed for file in files)

    def opens():
        yield from files
        raise OSError("no third one")

    with pytest.raises(OSError, match="no third one"):
        all_opened(opens())
    assert all(file.closed for file in files)
