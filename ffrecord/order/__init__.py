"""The order of samples as arithmetic: the sample at each position of an epoch.

    keys.py         seeds and epochs -> keys; a seed for each sample
    orders.py       the base class of orders; sequential, random and block order
    shares.py       division of draws among datasets
    mixture.py      several datasets as one, by weight
    sliced.py       the dataset in slices that are the same in every epoch
    node.py         the node of a rank, so that a node reads its own slice
    environment.py  rank and node, from the environment
    split.py        the positions of each rank
    identity.py     identity of a dataset, for states
    state.py        a position in an epoch, as data
    batch_plan.py   the batches of one rank from a position to the end of an epoch
    cursor.py       the position of one rank in its epochs

docs/ordering.md has the algorithms and their measurements. This package never imports torch.
"""

from ffrecord.order.batch_plan import Epoch, Run, Step
from ffrecord.order.cursor import Course
from ffrecord.order.identity import Identity, identity_of
from ffrecord.order.keys import sample_seeds
from ffrecord.order.mixture import Mixture
from ffrecord.order.node import Placement
from ffrecord.order.orders import Block, Order, Random, Sequential, from_builtins, parse, register
from ffrecord.order.sliced import Placed
from ffrecord.order.split import Split
from ffrecord.order.state import State

__all__ = [
    "Block",
    "Course",
    "Epoch",
    "Identity",
    "Mixture",
    "Order",
    "Placed",
    "Placement",
    "Random",
    "Run",
    "Sequential",
    "Split",
    "State",
    "Step",
    "from_builtins",
    "identity_of",
    "parse",
    "register",
    "sample_seeds",
]
