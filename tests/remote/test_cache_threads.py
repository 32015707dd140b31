"""Threads of one reader that use one copy of a shard at the same moment."""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import children
import numpy as np
import pytest
import shards

from ffrecord.reading.stats import Counters
from ffrecord.remote.cache import cache as module
from ffrecord.remote.cache.cache import Cache, CachedFile

THREADS = 4


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(work: Callable[[int], object]) -> None:
    """Run it by some threads, which begin at once."""
    barrier, failed = threading.Barrier(THREADS), list[BaseException]()

    def run(number: int) -> None:
        try:
            barrier.wait(60)
            work(number)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


def test_all_threads_open_one_copy(source: shards.Source, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = source.in_cache(Cache(directory))
    source.give(file, [1])
    file.close()
    barrier, opened, found = threading.Barrier(THREADS), CachedFile._open, []

    def slowly(self: CachedFile) -> object:
        copy = opened(self)
        barrier.wait(60)
        return copy

    monkeypatch.setattr(CachedFile, "_open", slowly)
    together(lambda number: found.append(file._open_copy()))
    assert found[0] is not None
    assert found == [found[0]] * THREADS


def test_records_that_several_threads_store(source: shards.Source, directory: Path, restless: None) -> None:
    """Are missing no more, but once: a copy is complete when it has all of them."""
    file = source.in_cache(cache := Cache(directory))
    source.give(file, [])
    for i in range(source.n - 1):
        together(lambda number, i=i: [source.give(file, [i]) for _ in range(5)])  # type: ignore[misc]
        assert file._copy is not None
        assert file._copy.missing == source.n - 1 - i
        assert not file.sealing and file.path() is None
    together(lambda number: source.give(file, [source.n - 1]))
    shards.whole(cache, file)


def test_records_that_threads_store_at_once(source: shards.Source, directory: Path) -> None:
    """Each before it knows of the other."""
    file = source.in_cache(Cache(directory))
    source.give(file, [0])
    copy, both = file._open_copy(), threading.Barrier(THREADS)

    class Known(np.ndarray):  # type: ignore[type-arg]
        def __getitem__(self, places: Any) -> Any:
            found = super().__getitem__(places)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(1)
            return found

    assert copy is not None
    copy.known = copy.known.view(Known)
    together(lambda number: source.give(file, [1 + number]))
    assert copy.missing == source.n - 1 - THREADS


def test_sums_of_many_threads(restless: None) -> None:
    tally = Counters()
    together(lambda number: [tally.add(a=1, b=2) for _ in range(2000)])
    assert (tally["a"], tally["b"], tally["c"]) == (2000 * THREADS, 4000 * THREADS, 0)
    assert tally.sums() == {"a": 2000 * THREADS, "b": 4000 * THREADS}
    tally.clear()
    assert tally["a"] == 0


def test_locks_that_were_held_when_a_process_forked(source: shards.Source, directory: Path) -> None:
    tally, file = Counters(), source.in_cache(Cache(directory))

    def child() -> bool:
        tally.add(a=1)
        source.give(file, [2])
        return source.found(file) == [2] and tally["a"] == 1

    with tally._lock, module._sharing:
        assert children.in_child(child) == 0


def test_every_change_is_another_number(directory: Path, restless: None) -> None:
    cache, seen = Cache(directory), list[int]()

    def note(number: int) -> None:
        for _ in range(500):
            cache.note_change(number, whole=True)
            seen.append(cache.changes)

    together(note)
    assert next(cache._change) == 500 * THREADS + 1 > max(seen)
    assert np.array_equal(cache.complete(), range(THREADS))
