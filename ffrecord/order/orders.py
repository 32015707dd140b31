"""Orders: the base class, the registry, and the sequential, random and block orders."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.kernels._permutation import check, permute, permute_blocks
from ffrecord.order.keys import EPOCHS, LENGTH_MAX, SEEDS, as_positions, check_range, key_of
from ffrecord.system.values import describe_wrong

__all__ = ["Block", "Order", "Random", "Sequential", "from_builtins", "parse", "register"]

SHOWN = 200  # characters of a value from a state in a message


@dataclass(frozen=True)
class Order(ABC):
    """The order of the samples of an epoch: a pure function of (n, seed, epoch), which seeks in O(1).

    Subclasses are frozen dataclasses whose attributes go through JSON. `register` makes them known.

    Attributes:
        name: name of the order in states. The order of a name never changes; a better algorithm gets another name.
        word: word for `parse`; empty if the order cannot be made without arguments.
    """

    name: ClassVar[str]
    word: ClassVar[str] = ""

    @property
    def window_length(self) -> int:
        """The number of positions of a window, in which neighbours are read; 0 for an order without windows.

        Windows begin at the multiples of it.
        """
        return 0

    def length(self, n: int) -> int:
        """Return the number of positions in an epoch over n samples.

        Raises:
            ValueError: not 0 <= n <= 2**62.
        """
        return check_range("n", n, 0, LENGTH_MAX + 1)

    def indices(self, positions: npt.ArrayLike, n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """Return the samples at some positions.

        Args:
            positions: int64 [k] or ints, each in [0, length(n)), in any order; repeats are allowed.
            n: samples in the dataset, 0 <= n <= 2**62.
            seed: 0 <= seed < 2**64.
            epoch: 0 <= epoch < 2**63.

        Returns:
            int64 [k], a new array; each in [0, n). All positions together give every sample exactly once, unless the
                order says otherwise.

        Raises:
            IndexError: a position is out of range.
            ValueError: n, seed or epoch is out of range.
            TypeError: an argument is not an int.
        """
        length = self.length(n)
        check_range("seed", seed, 0, SEEDS)
        check_range("epoch", epoch, 0, EPOCHS)
        array = as_positions(positions)
        # Bounds once here: the kernels then read without checks.
        check(array, length)
        self._place(array, int(n), int(seed), int(epoch))
        return array

    @abstractmethod
    def _place(self, array: npt.NDArray[np.int64], n: int, seed: int, epoch: int) -> None:
        """Replace positions, which are in range, by samples."""

    def to_builtins(self) -> dict[str, Any]:
        """Return the order as a dict that JSON can hold: its name, and its attributes."""
        # JSON has no tuples.
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}
        return {"name": self.name, **values}


Kind = TypeVar("Kind", bound=type[Order])

NAMES: dict[str, type[Order]] = {}
WORDS: dict[str, Callable[[], Order]] = {}


def register(kind: Kind) -> Kind:
    """Make a kind of order known to `from_builtins`, and to `parse` if it has a word."""
    if not isinstance(getattr(kind, "name", None), str):
        raise ArgumentTypeError(describe_wrong("kind", kind, "a class of orders with a name"))
    NAMES[kind.name] = kind
    if kind.word:
        WORDS[kind.word] = kind
    return kind


def from_builtins(order: Mapping[str, Any]) -> Order:
    """Return the order that `to_builtins` described.

    Raises:
        ValueError: `order` is not an order, or this version does not know it.
    """
    if not isinstance(order, Mapping) or "name" not in order:
        raise ArgumentError(f"order is {repr(order)[:SHOWN]}, expected a dict with a name")
    given = dict(order)
    kind = NAMES.get(str(given.pop("name")))
    if kind is None:
        raise ArgumentError(f"order is {str(order['name'])[:SHOWN]!r}, expected one of {', '.join(sorted(NAMES))}")
    wanted = [field.name for field in fields(kind)]
    # Fields of a name never change, so anything else is not this order.
    if sorted(given) != sorted(wanted):
        raise ArgumentError(f"order {order['name']} has {str(sorted(given))[:SHOWN]}, expected {sorted(wanted)}")
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise ArgumentError(f"order {order['name']}: {error}") from None


def parse(order: "str | Order") -> Order:
    """Return the order of a word: "sequential", "random" or "block". Orders are returned as they are.

    Raises:
        ValueError: the word is unknown.
        TypeError: `order` is neither a str nor an Order.
    """
    if isinstance(order, Order):
        return order
    if not isinstance(order, str):
        raise ArgumentTypeError(describe_wrong("order", order, "a str or an Order"))
    if order not in WORDS:
        raise ArgumentError(f"order is {order!r}, expected one of {', '.join(sorted(WORDS))}, or an Order")
    return WORDS[order]()


@register
@dataclass(frozen=True)
class Sequential(Order):
    """Sample i at position i, in every epoch."""

    name: ClassVar[str] = "sequential-1"
    word: ClassVar[str] = "sequential"

    def _place(self, array: npt.NDArray[np.int64], n: int, seed: int, epoch: int) -> None:
        pass


@register
@dataclass(frozen=True)
class Random(Order):
    """A keyed permutation of [0, n), as good as a shuffle in every measurement; see docs/ordering.md."""

    name: ClassVar[str] = "random-1"
    word: ClassVar[str] = "random"

    def _place(self, array: npt.NDArray[np.int64], n: int, seed: int, epoch: int) -> None:
        permute(array, n, key_of(self.name, n, seed, epoch))


@register
@dataclass(frozen=True)
class Block(Order):
    """Blocks of neighbours in random order, with samples shuffled within windows of some blocks.

    The dataset is cut into blocks of `block_size`; the last one may be shorter. The blocks are permuted, and laid one
    after the other into a sequence of n places. This sequence is cut into `lanes` slices, as equal as possible.
    Position p belongs to lane p mod lanes, and has number p // lanes there. A lane is cut into windows of block_size *
    window places; the last one may be shorter. Each window is permuted by itself.

    So only the blocks of the current window are read: at most window + 1, because windows need not begin where blocks
    do. A window that has the short block inside reads one block more. If W divides `lanes`, a rank that reads every
    W-th position reads lanes / W lanes, and so many times as many blocks. Otherwise it reads all lanes.

    Args:
        block_size: samples in a block, >= 1. Make a block worth a request: some 256 kB on a disk, some MB on a network.
        window: blocks in a window, >= 1; block_size * window <= 2**62. A window takes no memory.
        lanes: 1 <= lanes <= 2**31; a multiple of every number of ranks that the run may have. Another number of lanes
            is another order.

    Raises:
        ValueError: a number is out of range.
        TypeError: an argument is not an int.
    """

    block_size: int = 256
    window: int = 64
    lanes: int = 1

    name: ClassVar[str] = "block-1"
    word: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        for name, most in (("block_size", LENGTH_MAX), ("window", LENGTH_MAX), ("lanes", 1 << 31)):
            object.__setattr__(self, name, check_range(name, getattr(self, name), 1, most + 1))
        # Positions of a window are computed with 64 bits.
        if self.block_size * self.window > LENGTH_MAX:
            raise ArgumentError(f"block_size * window is {self.block_size * self.window}, expected <= {LENGTH_MAX}")

    @property
    def window_length(self) -> int:
        return self.block_size * self.window * self.lanes

    def _place(self, array: npt.NDArray[np.int64], n: int, seed: int, epoch: int) -> None:
        # All arguments are part of the key, so that other ones give an independent order.
        key = key_of(self.name, n, seed, epoch, self.block_size, self.window, self.lanes)
        window_size = self.block_size * self.window
        permute_blocks(array, n, block_size=self.block_size, window_size=window_size, lanes=self.lanes, key=key)
