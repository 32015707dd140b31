"""The node of a rank, and the positions of each round that follow from it."""

from dataclasses import dataclass
from typing import SupportsIndex

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import check_range
from ffrecord.order.orders import Order
from ffrecord.order.sliced import SLICES, Placed

__all__ = ["Placement"]


@dataclass(frozen=True)
class Placement:
    """The node of a rank. All nodes have equally many ranks.

    Args:
        nodes: number of nodes, 1 <= nodes < 2**31.
        node: node of the rank, 0 <= node < nodes.
        local: number of the rank on its node, 0 <= local < world_size / nodes.

    Raises:
        ValueError: a number is out of range.
        TypeError: an argument is not an int.
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
        """Return the placement of a rank if the ranks of a node follow each other, `world_size / nodes` on each.

        Raises:
            ValueError: the nodes cannot have equally many ranks.
        """
        number = check_range("nodes", nodes, 1, SLICES)
        return cls(number, *divmod(rank, _ranks_per_node(world_size, number)))

    def turn(self, world_size: int) -> int:
        """Return the rank's place in a round of `world_size` positions, in which all nodes take turns.

        So the ranks of a node have the positions p with p mod nodes = node, and no two ranks have the same one.

        Raises:
            ValueError: `local` is too large, or the nodes cannot have equally many ranks.
        """
        check_range("local", self.local, 0, _ranks_per_node(world_size, self.nodes))
        return self.local * self.nodes + self.node

    def order(self, order: Order) -> Placed:
        """Return `order` with a slice for each node. An order that has slices already stays as it is.

        Raises:
            ValueError: its slices are not equally many for each node; or it is a mixture.
        """
        if not isinstance(order, Placed):
            return Placed(self.nodes, order)
        if order.slices % self.nodes:
            raise ArgumentError(
                f"the order has {order.slices} slices, expected a multiple of {self.nodes}, the number of nodes"
            )
        return order


def _ranks_per_node(world_size: int, nodes: int) -> int:
    """Return the number of ranks on each node."""
    if world_size % nodes:
        raise ArgumentError(f"world_size is {world_size}, expected a multiple of {nodes}, the number of nodes")
    return world_size // nodes
