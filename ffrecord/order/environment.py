"""Rank and node of this process, from the environment, and the positions of each round that follow from the node."""

import os
import re
from dataclasses import dataclass

from ffrecord.errors import ArgumentError
from ffrecord.order.keys import check_range
from ffrecord.order.orders import Order
from ffrecord.order.sliced import SLICES, Placed

__all__ = ["Placement", "placement_of", "rank_of"]


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
    def of(cls, rank: int, world_size: int, nodes: int) -> "Placement":
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
        # Local rank first: neighbouring positions then belong to different nodes, as their slices do.
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


@dataclass(frozen=True)
class Launcher:
    """The environment variables of one kind of launcher.

    Attributes:
        rank, size: rank of the process, and number of ranks.
        on_node: number of ranks on this node; or a list of the numbers of all nodes, as Slurm writes it.
        local: number of the rank on its node; empty if no variable is reliable.
        node, nodes: number of the node, and number of nodes; empty if there is no such variable.
        alone: True if `rank` may be set without `size`, and then means nothing.
    """

    rank: str
    size: str
    on_node: str
    local: str = ""
    node: str = ""
    nodes: str = ""
    alone: bool = False

    def is_present(self) -> bool:
        """Tell whether this launcher has started the process."""
        # Without `size`, such a rank may be that of a batch script of Slurm; see `LAUNCHERS`.
        return self.size in os.environ or (self.rank in os.environ and not self.alone)


# The order matters: a launcher that another one starts comes before it. torchrun's LOCAL_RANK may be 0 for all ranks,
# so the local rank is computed. Slurm sets SLURM_PROCID and SLURM_NTASKS in batch scripts too, which are not ranks; the
# variables of a step are set only in ranks.
LAUNCHERS = [
    Launcher("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", node="GROUP_RANK", nodes="GROUP_WORLD_SIZE"),
    Launcher(
        *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        local="OMPI_COMM_WORLD_LOCAL_RANK",
    ),
    Launcher(
        *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
        local="MV2_COMM_WORLD_LOCAL_RANK",
    ),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", local="MPI_LOCALRANKID"),
    Launcher(
        *("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_LOCALID"),
        *("SLURM_NODEID", "SLURM_STEP_NUM_NODES"),
        alone=True,
    ),
]


def rank_of() -> tuple[int | None, int | None]:
    """Return rank and number of ranks from the first launcher that sets one of them; None for a missing one.

    Raises:
        ValueError: a variable is not an int.
    """
    for launcher in LAUNCHERS:
        if launcher.is_present():
            return _int(launcher.rank), _int(launcher.size)
    return None, None


def placement_of(rank: int, world_size: int) -> Placement:
    """Return the node of a rank, from the first launcher that knows the nodes and agrees on rank and number of ranks.

    Raises:
        ValueError: no launcher does; variables contradict each other; or the nodes have different numbers of ranks.
    """
    for launcher in LAUNCHERS:
        # A launcher that says another rank does not know the node of this one.
        if launcher.on_node in os.environ and (_int(launcher.rank), _int(launcher.size)) == (rank, world_size):
            return _read_placement(launcher, rank, world_size)
    # Alone there is only one place.
    if world_size == 1:
        return Placement(1, 0, 0)
    known = ", ".join(launcher.on_node for launcher in LAUNCHERS)
    raise ArgumentError(
        f"the environment does not say how many ranks share a node with rank {rank} of {world_size}, expected one of "
        f"{known}, set by the launcher of this rank; or pass the number of nodes"
    )


def _read_placement(launcher: Launcher, rank: int, world_size: int) -> Placement:
    here = _same_on_all_nodes(launcher.on_node)
    if here < 1 or world_size % here:
        raise ArgumentError(
            f"{launcher.size} is {world_size}, expected a multiple of {launcher.on_node}, which is {here}"
        )
    nodes = world_size // here
    # Missing variables are computed, and those that exist are compared.
    said, node, local = (_int(name) for name in (launcher.nodes, launcher.node, launcher.local))
    if said is not None and said != nodes:
        raise ArgumentError(
            f"{launcher.nodes} is {said}, expected {nodes}: {launcher.size} is {world_size} and {launcher.on_node} is "
            f"{here}"
        )
    if node is not None and local is not None:
        found = Placement(nodes, node, local)
        # Raises if the numbers contradict each other.
        found.turn(world_size)
        return found
    # Assume that the ranks of a node follow each other: there is no other way to know the node.
    found = Placement.of(rank, world_size, nodes)
    for name, value, expected in ((launcher.node, node, found.node), (launcher.local, local, found.local)):
        if value is not None and value != expected:
            raise ArgumentError(
                f"{name} is {value} for {launcher.rank} {rank}, expected {expected}: the {here} ranks of a node must "
                "follow each other"
            )
    return found


def _same_on_all_nodes(name: str) -> int:
    """Return a variable's number that is the same for all nodes: "8", or "8(x4)" for four times 8.

    Raises:
        ValueError: the numbers differ, or it is something else.
    """
    text = os.environ[name]
    # Slurm writes "8(x4)" for four nodes of 8.
    numbers = {re.sub(r"\(x\d+\)$", "", each) for each in text.split(",")}
    if len(numbers) > 1:
        raise ArgumentError(f"environment variable {name} is {text!r}, expected the same number of ranks on each node")
    return _number(name, numbers.pop())


def _int(name: str) -> int | None:
    text = os.environ.get(name)
    return None if text is None else _number(name, text)


def _number(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ArgumentError(f"environment variable {name} is {os.environ[name]!r}, expected an int") from None
