"""Caches of remote shards that are being filled, completed and evicted from when their process, or the power, goes."""

import json
import logging
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
from crash_case import DONE, Case, Say
from disk_calls import Calls
from killing import Killer, at_every_call
from power_cuts import recorded, replayed

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))
import shards

from ffrecord.remote.cache import cache as module
from ffrecord.remote.cache.cache import Cache, CachedFile

SIZES = (100, 0, 5000, 33, 9000, 1, 4096, 300)


class Cached(Case):
    """Copies in a cache: nothing half-written is believed, and what was complete stays so.

    Args:
        place: the cache's directory.
        names: of the shards that are read.
        limit: of the cache.
    """

    def __init__(self, place: Path, names: str, limit: int | None = None) -> None:
        super().__init__(place)
        self._limit = limit
        self._names = names
        self._sources = {name: shards.source(place.with_name(f"{name}.ffr"), SIZES, seed=ord(name)) for name in "abcd"}

    def prepare(self) -> None:
        """Before, there is a complete copy of a shard, and some records of another, which nobody used for a day."""
        cache = Cache(self.place)
        self._sources["a"].give(self._file(cache, "a"))
        assert shards.settled(cache, shards.PATIENCE)
        self._sources["b"].give(self._file(cache, "b"), [2, 4, 6])
        cache.close()
        then = time.time() - 86400
        for name in os.listdir(self.place):
            os.utime(self.place / name, (then, then))

    def _file(self, cache: Cache, name: str) -> CachedFile:
        return self._sources[name].in_cache(cache, f"s3://bucket/{name}.ffr")

    def work(self, say: Say) -> None:
        cache = Cache(self.place, self._limit)
        files = [(self._sources[name], self._file(cache, name)) for name in self._names]
        for low in range(0, len(SIZES), 2):
            for source, file in files:
                source.give(file, [low + 1, low])
        assert shards.settled(cache, shards.PATIENCE)
        if all(file.path() is not None for _, file in files):
            say(DONE)
        cache.close()

    def check(self, said: int, synced: bool = False) -> None:
        module.SEAL_AGAIN_SECONDS = 0.0
        cache = Cache(self.place)
        for name, source in self._sources.items():
            file = self._file(cache, name)
            path = file.path()
            if said == DONE and name in self._names:
                assert path is not None, f"{name} was complete"
            self._check_right(path, name)
            source.found(file)
            for _ in range(3):  # a record that does not match is found when it is completed
                source.give(file, self._missing(name, file))
                assert shards.settled(cache, shards.PATIENCE)
            assert file.path() is not None, os.listdir(self.place)
            self._check_right(file.path(), name)
        cache.close()
        assert len(os.listdir(self.place)) <= 2 * len(self._sources) + 1, os.listdir(self.place)

    def _missing(self, name: str, file: CachedFile) -> list[int]:
        records = file.read(np.arange(len(SIZES)))
        return [i for i, record in enumerate(records) if record is None]

    def _check_right(self, path: str | None, name: str) -> None:
        assert path is None or Path(path).read_bytes() == self._sources[name].data


def cases(root: Path) -> dict[str, Cached]:
    """By names."""
    place = root / "cache"
    return {"filled": Cached(place, "abcd"), "evicted from": Cached(place, "cd", 60_000)}


def kill(root: str, step: str, actions: str) -> None:
    """Kill processes at every call, or some, and print as JSON how many of each case."""
    logging.getLogger("ffrecord").setLevel(logging.ERROR)
    killer = Killer(Calls())
    print(
        json.dumps(
            {name: at_every_call(killer, case, int(step), int(actions)) for name, case in cases(Path(root)).items()}
        )
    )


def cut(root: str, count: str, seed: str) -> None:
    """Cut the power so often in each case, and print as JSON how many different disks that left."""
    logging.getLogger("ffrecord").setLevel(logging.ERROR)
    found = {}
    for name, case in cases(Path(root)).items():
        disk = recorded(case, Path(root) / "log")
        found[name] = replayed(case, disk, int(count), random.Random(int(seed)))
    print(json.dumps(found))
