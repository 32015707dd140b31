"""Damaged copies of a file's bytes, the same ones for the same seed."""

import random
from collections.abc import Iterator

# Where programs go wrong: nothing, one, all ones, signs, and just beside powers of two.
INTERESTING = (0, 1, 2, 3, 7, 8, 9, 15, 16, 127, 128, 255, 256, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
INTERESTING += (1 << 32, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def mutants(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """`count` copies of `data`, each damaged in one to four places."""
    for number in range(count):
        chance = random.Random(f"{seed}/{number}")
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            chance.choice(KINDS)(changed, chance)
        yield bytes(changed)


def flip(data: bytearray, chance: random.Random) -> None:
    """One bit."""
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut(data: bytearray, chance: random.Random) -> None:
    """The end missing."""
    del data[chance.randrange(len(data) + 1) :]


def overwrite(data: bytearray, chance: random.Random) -> None:
    """A number replaced, of one to eight bytes, in either byte order."""
    width = chance.choice((1, 2, 4, 8))
    if len(data) >= width:
        value = chance.choice((*INTERESTING, len(data), chance.getrandbits(64))) % (1 << 8 * width)
        at = chance.randrange(len(data) - width + 1)
        data[at : at + width] = value.to_bytes(width, chance.choice(("little", "big")))


def nudge(data: bytearray, chance: random.Random) -> None:
    """One byte a little more, or less."""
    if data:
        at = chance.randrange(len(data))
        data[at] = (data[at] + chance.choice((-2, -1, 1, 2))) % 256


def repeat(data: bytearray, chance: random.Random) -> None:
    """A piece twice."""
    start, stop = _piece(data, chance)
    data[start:start] = data[start:stop]


def remove(data: bytearray, chance: random.Random) -> None:
    """A piece missing."""
    start, stop = _piece(data, chance)
    del data[start:stop]


def move(data: bytearray, chance: random.Random) -> None:
    """A piece copied over another place."""
    start, stop = _piece(data, chance)
    at = chance.randrange(len(data) + 1)
    data[at : at + stop - start] = data[start:stop]


def zeros(data: bytearray, chance: random.Random) -> None:
    """A piece lost to zeros, as after a power cut."""
    start, stop = _piece(data, chance)
    data[start:stop] = bytes(stop - start)


def _piece(data: bytearray, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.choice((1, 4, 16, 64, len(data))))


KINDS = (flip, flip, cut, overwrite, overwrite, nudge, repeat, remove, move, zeros)
