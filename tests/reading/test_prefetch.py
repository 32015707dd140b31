"""`Prefetcher` alone, with batches that are numbers and a beginning that takes notes."""

import gc
import itertools
import weakref
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.reading.prefetch import Prefetcher


class Notes:
    """What was begun and what was ended, in that order."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.ended: list[int] = []

    def begin(self, batch: int) -> Callable[[], int]:
        self.begun.append(batch)
        if batch % 10 == 7:
            raise KeyError(batch)

        def result() -> int:
            self.ended.append(batch)
            if batch % 10 == 3:
                raise OverflowError(batch)
            return -batch

        return result

    @property
    def ahead(self) -> int:
        return len(self.begun) - len(self.ended)


def outcomes(iterator: Iterator[int]) -> list[object]:
    """Results, and errors in their place."""
    found = []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(type(error))


def expected(batches: list[int]) -> list[object]:
    return [KeyError if i % 10 == 7 else OverflowError if i % 10 == 3 else -i for i in batches]


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(0, 50))
def test_order(batches, ahead):
    """Whatever fails, and however far ahead: each result in its place."""
    notes = Notes()
    assert outcomes(Prefetcher(batches, notes.begin, ahead)) == expected(batches)
    assert notes.begun == batches


@pytest.mark.parametrize("ahead", range(9))
def test_no_more_than_so_many_ahead(ahead):
    """Counted where batches are taken, begun and ended, at every step."""
    taken = []

    def batches() -> Iterator[int]:
        for i in range(0, 1000, 10):
            taken.append(i)
            assert notes.ahead <= ahead
            yield i

    notes = Notes()
    prefetcher = Prefetcher(batches(), notes.begin, ahead)
    assert taken == []  # nothing is begun before it is asked for
    for turn, result in enumerate(prefetcher):
        assert result == -10 * turn
        assert len(taken) == len(notes.begun) == min(turn + 1 + ahead, 100)
        assert notes.ahead == min(ahead, 99 - turn)


def test_none_ahead_is_on_demand():
    notes = Notes()
    prefetcher = Prefetcher(itertools.count(), notes.begin, 0)
    for i in range(3):
        assert (next(prefetcher), notes.ahead) == (-i, 0)


def test_endless_batches():
    prefetcher = Prefetcher(itertools.count(0, 10), Notes().begin, 8)
    assert list(itertools.islice(prefetcher, 100)) == [-10 * i for i in range(100)]


class Broken:
    """An iterable that raises now and then, and goes on."""

    def __init__(self) -> None:
        self.i = -1

    def __iter__(self) -> "Broken":
        return self

    def __next__(self) -> int:
        self.i += 1
        if self.i == 10:
            raise StopIteration
        if self.i % 3 == 1:
            raise ZeroDivisionError
        return 10 * self.i


@pytest.mark.parametrize("ahead", [0, 1, 2, 50])
def test_batches_that_raise(ahead):
    wanted = [ZeroDivisionError if i % 3 == 1 else -10 * i for i in range(10)]
    assert outcomes(Prefetcher(Broken(), Notes().begin, ahead)) == wanted


def failing() -> Iterator[int]:
    yield from (0, 10)
    raise ZeroDivisionError


@pytest.mark.parametrize("ahead", [0, 1, 2, 50])
def test_a_generator_that_raises_has_no_more(ahead):
    assert outcomes(Prefetcher(failing(), Notes().begin, ahead)) == [0, -10, ZeroDivisionError]


@pytest.mark.parametrize("ahead", [0, 2])
def test_interrupts_are_not_kept_for_later(ahead):
    """Ctrl-C in the iterable is raised at once, and nothing that was begun is lost."""
    raised = []

    def batches() -> Iterator[int]:
        yield 0
        yield 10

    class Interrupted:
        def __init__(self) -> None:
            self.inner = batches()

        def __iter__(self) -> "Interrupted":
            return self

        def __next__(self) -> int:
            if len(raised) < 2 and notes.begun:
                raised.append(1)
                raise KeyboardInterrupt
            return next(self.inner)

    notes, found = Notes(), []
    prefetcher = Prefetcher(Interrupted(), notes.begin, ahead)
    for _ in range(5):
        try:
            found.append(next(prefetcher, None))
        except KeyboardInterrupt:
            found.append(KeyboardInterrupt)
    assert sorted(each for each in found if isinstance(each, int)) == [-10, 0]
    assert found.count(KeyboardInterrupt) == 2


def test_after_the_end_there_is_nothing():
    prefetcher = Prefetcher([0], Notes().begin, 2)
    assert list(prefetcher) == [0]
    assert list(prefetcher) == []
    assert iter(prefetcher) is prefetcher


def test_close():
    notes = Notes()
    prefetcher = Prefetcher(itertools.count(0, 10), notes.begin, 3)
    next(prefetcher)
    prefetcher.close()
    prefetcher.close()
    assert list(prefetcher) == []
    assert notes.begun == [0, 10, 20, 30]


def test_a_dropped_one_lets_go_of_what_was_begun():
    class Result:
        def __call__(self) -> int:
            return 1

    made = []

    def begin(batch: int) -> Result:
        result = Result()
        made.append(weakref.ref(result))
        return result

    prefetcher = Prefetcher(range(10), begin, 4)
    next(prefetcher)
    assert [reference() is None for reference in made] == [True, False, False, False, False]
    del prefetcher
    gc.collect()
    assert all(reference() is None for reference in made)


@pytest.mark.parametrize("wrong", [None, 3, object()])
def test_what_is_not_iterable(wrong):
    with pytest.raises(TypeError):
        Prefetcher(wrong, Notes().begin, 2)
