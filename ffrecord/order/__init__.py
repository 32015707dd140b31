"""The order of samples as arithmetic: the sample at each position of an epoch.

    keys.py         seeds and epochs -> keys; a seed for each sample
    orders.py       the base class of orders; sequential, random and block order
    mixture.py      several datasets as one, by weight
    weighted.py     draws by weight, with replacement
    sliced.py       the dataset in slices that are the same in every epoch
    environment.py  rank and node, from the environment; a node reads its own slice
    split.py        the positions of each rank
    state.py        a position in an epoch and the identity of its dataset, as data
    batch_plan.py   the batches of one rank from a position to the end of an epoch
    cursor.py       the position of one rank in its epochs

docs/ordering.md has the algorithms and their measurements. This package never imports torch.
"""

from ffrecord.order.batch_plan import Epoch, Run, Step
from ffrecord.order.cursor import Course, Cursor
from ffrecord.order.environment import Placement
from ffrecord.order.keys import sample_seeds
from ffrecord.order.mixture import Mixture
from ffrecord.order.orders import Block, Order, Random, Sequential, from_builtins, parse, register
from ffrecord.order.sliced import Placed
from ffrecord.order.split import Split
from ffrecord.order.state import Identity, State, identity_of
from ffrecord.order.weighted import Weighted, balance_classes

__all__ = [
    "Block",
    "Course",
    "Cursor",
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
    "Weighted",
    "balance_classes",
    "from_builtins",
    "identity_of",
    "parse",
    "register",
    "sample_seeds",
]
