"""Which readers an object lists."""

import copy
import pickle

import pytest

from ffrecord.reader import FileReader
from ffrecord.torch import Dataset, ReaderRegistry


class Pair(ReaderRegistry):
    def __init__(self, path: str) -> None:
        self.first = FileReader(path)
        self.second = FileReader(path)


class Nested(Dataset[int]):
    def __init__(self, path: str) -> None:
        self.own = FileReader(path)
        self.pair = Pair(path)
        self.other = FileReader(path)
        self.name = "nested"


def test_readers_are_found_at_any_depth_without_init(path: str):
    nested = Nested(path)
    assert nested.ffreaders() == [nested.own, nested.other, nested.pair.first, nested.pair.second]
    assert all(isinstance(reader, FileReader) for reader in nested.ffreaders())
    assert nested.name == "nested"


def test_nothing_held():
    assert ReaderRegistry().ffreaders() == []


@pytest.mark.parametrize("value", [None, 3, "text", [1]])
def test_reassigning_forgets_the_reader(path: str, value: object):
    pair = Pair(path)
    pair.first = value
    assert pair.first is value
    assert pair.ffreaders() == [pair.second]


def test_reassigning_a_reader_and_a_registry(path: str):
    nested = Nested(path)
    old, nested.own = nested.own, nested.other
    assert old not in nested.ffreaders()
    nested.pair = nested.other
    assert nested.ffreaders() == [nested.other] * 3
    nested.name = Pair(path)
    assert len(nested.ffreaders()) == 5


def test_deleting(path: str):
    nested = Nested(path)
    del nested.own
    del nested.pair
    assert nested.ffreaders() == [nested.other]
    for name in ("own", "pair", "never"):
        with pytest.raises(AttributeError, match=name):
            getattr(nested, name)
        with pytest.raises(AttributeError, match=name):
            delattr(nested, name)


def test_a_class_attribute_does_not_hide_the_reader(path: str):
    class Late(ReaderRegistry):
        reader = None

    late = Late()
    assert late.ffreaders() == []
    late.reader = FileReader(path)
    assert late.reader is late.ffreaders()[0]


def test_where_ffrecord_1_kept_them(path: str):
    nested = Nested(path)
    assert nested._readers == {"own": nested.own, "other": nested.other}
    assert nested._resitries == {"pair": nested.pair}
    nested._readers = ["a program's own"]
    assert nested._readers == ["a program's own"]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies(path: str, clone):
    copied = clone(Nested(path))
    assert len(copied.ffreaders()) == 4
    assert [len(reader.read([0, -1])) for reader in copied.ffreaders()] == [2] * 4
