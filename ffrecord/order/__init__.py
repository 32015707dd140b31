"""The order of samples as arithmetic: which sample is at which position of an epoch.

    keys.py      seeds and epochs -> keys; a seed for each sample
    orders.py    what an order is; sequential, random
    block.py     blocks of neighbours in random order
    shares.py    how many draws of a cycle are each dataset's, and which
    mixture.py   several datasets as one, by weight
    placed.py    the dataset in slices that are the same in every epoch
    placement.py which node a rank is on, so that a slice is a node's
    launched.py  rank and node, from the environment
    split.py     which positions are whose
    identity.py  what a dataset is, for states
    state.py     a place in an epoch, as data
    run.py       one rank's batches from a position to the end of an epoch
    course.py    one rank's way through the epochs
    quality.py   how well an order mixes; `python -m ffrecord.order` prints it

docs/ordering.md has the algorithms and their measurements. torch is never imported here.
"""

from ffrecord.order.batch_plan import Epoch, Run, Step
from ffrecord.order.block import Block
from ffrecord.order.cursor import Course
from ffrecord.order.identity import Identity, identity_of
from ffrecord.order.keys import sample_seeds
from ffrecord.order.mixture import Mixture
from ffrecord.order.node import Placement
from ffrecord.order.orders import Order, Random, Sequential, from_builtins, parse, register
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
