"""On which node a rank is, and so which positions of each round are its own."""

from dataclasses import dataclass
from typing import SupportsIndex

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import check_range
from ffrecord.order.orders import Order
from ffrecord.order.sliced import SLICES, Placed

__all__ = ["Placement"]


@dataclass(frozen=True)
class Placement:
    """Which of the nodes a rank is on. All nodes have equally many ranks.

    Args:
        nodes: 1 <= nodes < 2**31.
        node: that the rank is on, 0 <= node < nodes.
        local: which of the ranks there it is, 0 <= local < world_size / nodes.

    Raises:
        ValueError: out of range.
        TypeError: no ints.
    """

    nodes: int
    node: int
    local: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "nodes", check_range("nodes", self.nodes, 1, SLICES))
        for name, stop in (("node", self.nodes), ("local", SLICES)):
            object.__setattr__(self, name, check_range(name, getattr(self, name), 0, stop))

    @classmethod
    def of(cls, rank: int, world_size: int, nodes: SupportsIndex) -> "Placement":
        """That of a rank where the first `world_size / nodes` ranks share a node, and the next ones, and so on.

        Raises:
            ValueError: the ranks cannot be shared out to so many nodes.
        """
        number = check_range("nodes", nodes, 1, SLICES)
        return cls(number, *divmod(rank, _each(world_size, number)))

    def turn(self, world_size: int) -> int:
        """The rank's place in a round of `world_size` positions: all nodes come in turn, then again.

        So the ranks of a node have the positions p with p mod nodes = node, and no two ranks have the same.

        Raises:
            ValueError: `local` is too large, or the ranks cannot be shared out to so many nodes.
        """
        check_range("local", self.local, 0, _each(world_size, self.nodes))
        return self.local * self.nodes + self.node

    def order(self, order: Order) -> Placed:
        """`order` with a slice for each node; one that is in slices already is left as it is.

        Raises:
            ValueError: it has slices, and not equally many for each node; or it is a mixture.
        """
        if not isinstance(order, Placed):
            return Placed(self.nodes, order)
        if order.slices % self.nodes:
            raise ArgumentError(f"{order.slices} slices for {self.nodes} nodes, expected a multiple of {self.nodes}")
        return order


def _each(world_size: int, nodes: int) -> int:
    """Ranks on each node."""
    if world_size % nodes:
        raise ArgumentError(f"{world_size} ranks on {nodes} nodes, expected equally many on each")
    return world_size // nodes
