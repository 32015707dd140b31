"""What a state accepts, and the identity of datasets in it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord.order import Identity, State, from_builtins
from ffrecord.order.state import Contents, identity_of

GOOD = {
    "version": 1,
    "order": {"name": "random-1"},
    "dataset": {"samples": 10, "shards": 2, "fingerprint": "ab"},
    "indices": None,
    "seed": 0,
    "epoch": 3,
    "position": 4,
}
DATASET = GOOD["dataset"]

states = st.builds(
    State,
    version=st.just(1),
    order=st.sampled_from([{"name": "random-1"}, {"name": "block-1", "block_size": 3, "window": 2, "lanes": 1}]),
    dataset=st.builds(Contents, st.integers(0, 2**62), st.integers(0, 2**62), st.text(max_size=8)),
    indices=st.none() | st.integers(0, 2**32 - 1),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**63 - 1),
    position=st.integers(0, 2**62),
)


@given(states)
def test_through_json(state):
    assert State.from_builtins(json.loads(json.dumps(state.to_builtins()))) == state


def test_what_it_looks_like():
    assert State.from_builtins(GOOD).to_builtins() == GOOD
    assert len(json.dumps(GOOD)) < 200


WRONG = {
    "None": (None, "the state is None, expected the dict"),
    "a list": ([1, 2], "the state is a list of 2, expected the dict"),
    "text": ("state", "expected the dict that state_dict.. returned; json.loads makes it of text"),
    "nothing": ({}, "it has no 'version', "),
    "a later version": ({**GOOD, "version": 2}, "state has version 2, this release of ffrecord reads version 1"),
    "a version in words": ({**GOOD, "version": "1"}, "state has version '1', this release of ffrecord reads version 1"),
    "a field too many": ({**GOOD, "more": 1}, "it has 'more'; pass the dict"),
    "a field too few": ({name: GOOD[name] for name in GOOD if name != "epoch"}, "it has no 'epoch'; pass the dict"),
    "a dataset too much": ({**GOOD, "dataset": {**DATASET, "more": 1}}, "unknown field `more`"),
    "no dataset": ({**GOOD, "dataset": None}, "got `null`"),
    "a number for the order": ({**GOOD, "order": 3}, "got `int`"),
    "negative position": ({**GOOD, "position": -1}, ">= 0"),
    "huge position": ({**GOOD, "position": 2**62 + 1}, "<="),
    "half a position": ({**GOOD, "position": 0.5}, "got `float`"),
    "a float position": ({**GOOD, "position": 4.0}, "got `float`"),
    "a bool position": ({**GOOD, "position": True}, "got `bool`"),
    "negative epoch": ({**GOOD, "epoch": -1}, "epoch of the state is -1, expected 0 <="),
    "huge epoch": ({**GOOD, "epoch": 2**63}, "epoch of the state is 9223372036854775808"),
    "a float epoch": ({**GOOD, "epoch": 3.0}, "got `float`"),
    "negative seed": ({**GOOD, "seed": -1}, "seed of the state is -1"),
    "huge seed": ({**GOOD, "seed": 2**64}, "seed of the state is 18446744073709551616, expected 0 <="),
    "no seed": ({**GOOD, "seed": None}, "got `null`"),
    "negative samples": ({**GOOD, "dataset": {**DATASET, "samples": -1}}, ">= 0"),
    "no CRC-32": ({**GOOD, "indices": 2**32}, "<= 4294967295|< 4294967296"),
}


@pytest.mark.parametrize(("state", "message"), WRONG.values(), ids=WRONG)
def test_wrong_states(state, message):
    with pytest.raises(ValueError, match=message):
        State.from_builtins(state)


def test_orders_of_states_can_be_made_again():
    assert from_builtins(State.from_builtins(GOOD).order).to_builtins() == GOOD["order"]


# Identity


class Shards:
    """A reader as far as identities look at one: its fingerprint is the text of its shards."""

    def __init__(self, **shards: int) -> None:
        self.shards = shards

    @property
    def fnames(self) -> list[str]:
        return list(self.shards)

    def __len__(self) -> int:
        return sum(self.shards.values())

    def fingerprint(self, shards: int | None = None) -> str:
        return str(list(self.shards.items())[:shards])


def test_identity_of_a_reader():
    found = identity_of(Shards(a=3, b=4))
    assert (found.samples, found.shards, found.fingerprint) == (7, 2, "[('a', 3), ('b', 4)]")
    assert found.prefix(1) == "[('a', 3)]"
    assert found == identity_of(Shards(a=3, b=4))


NOW = identity_of(Shards(a=3, b=4))
DIFFERENCES = [
    (Shards(a=3, b=4), None, False),
    (Shards(a=3), "3 samples then, 7 now; 1 shard then, 2 now", True),
    (Shards(a=4), "4 samples then, 7 now; 1 shard then, 2 now", False),
    (Shards(b=4, a=3), "as many samples and shards, 7 and 2, but other contents: fingerprint .* then, .* now", False),
    (Shards(a=7), "1 shard then, 2 now", False),
    (Shards(a=3, b=5), "8 samples then, 7 now", False),
    (Shards(a=3, b=4, c=1), "8 samples then, 7 now; 3 shards then, 2 now", False),
    (Shards(), "0 samples then, 7 now; 0 shards then, 2 now", True),
]


@pytest.mark.parametrize(("before", "difference", "extends"), DIFFERENCES)
def test_differences(before, difference, extends):
    found = NOW.difference(identity_of(before))
    assert found is None if difference is None else re.fullmatch(difference, found)
    assert NOW.extends(identity_of(before)) is extends


def test_without_a_fingerprint_only_numbers_count():
    assert Identity(7).difference(Identity(7)) is None
    assert Identity(8).difference(Identity(7)) == "7 samples then, 8 now"
    assert not Identity(8, 2).extends(Identity(7, 1))
    assert "fingerprint unknown then" in Identity(7, 0, "ab").difference(Identity(7))
