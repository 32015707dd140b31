"""The orders in plain Python, slow and obvious: what the compiled ones must agree with."""

from math import isqrt

WORD = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def partly_mixed(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    return (z ^ z >> 27) * 0x94D049BB133111EB & WORD


def derive(*words: int, key: int = 0) -> int:
    for word in words:
        z = partly_mixed(key + GAMMA + word & WORD)
        key = z ^ z >> 31
    return key


def rounds_of(n: int) -> int:
    return 64 if n < 16 else 32 if n < 256 else 16 if n < 65536 else 8


class Network:
    """The permutation of [0, n). `rounds` other than its own show what the checks of shuffles see."""

    def __init__(self, n: int, key: int, rounds: int = 0, tweak: int = 0) -> None:
        self.n = n
        self.b = max(isqrt(n - 1) + 1, 2) if n else 2
        self.b += self.b % 2
        self.a = -(-n // self.b)
        self.keys = [derive(i, key=key) + tweak for i in range(rounds or rounds_of(n))]

    def added(self, i: int, x: int, side: int) -> int:
        return partly_mixed(self.keys[i] + x & WORD) * side >> 64

    def once(self, left: int, right: int) -> tuple[int, int]:
        for i in range(len(self.keys)):
            if i % 2 == 0:
                left = (left + self.added(i, right, self.a)) % self.a
            else:
                right = (right + self.added(i, left, self.b)) % self.b
        return left, right

    def __call__(self, position: int) -> int:
        while True:
            left, right = self.once(*divmod(position, self.b))
            position = left * self.b + right
            if position < self.n:
                return position


def block_order(n: int, block_size: int, window: int, lanes: int, key: int) -> list[int]:
    """The whole of it, by making what the arithmetic only computes places in."""
    blocks = [list(range(start, min(start + block_size, n))) for start in range(0, n, block_size)]
    places = Network(len(blocks), derive(2, key=key))
    sequence = [sample for slot in range(len(blocks)) for sample in blocks[places(slot)]]
    shuffled = []
    for lane in range(lanes):
        count = len(range(lane, n, lanes))
        shuffled.append(windows(sequence[:count], block_size * window, lane, key))
        del sequence[:count]
    return [shuffled[position % lanes][position // lanes] for position in range(n)]


def windows(places: list[int], size: int, lane: int, key: int) -> list[int]:
    found = []
    for number, start in enumerate(range(0, len(places), size)):
        inside = places[start : start + size]
        tweak = derive(lane, number, key=derive(0, key=key))
        network = Network(len(inside), derive(1, key=key), tweak=tweak)
        found += [inside[network(i)] for i in range(len(inside))]
    return found
