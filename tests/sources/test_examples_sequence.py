"""Sequence examples: a context, and lists of features."""

import pickle
from itertools import pairwise

import example_messages as twin
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutants

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.sources.tfrecord.examples import (
    ExampleError,
    FeatureCountError,
    FeatureKindError,
    FixedFeature,
    MissingFeatureError,
    Ragged,
    RaggedStrings,
    SequenceParser,
    VarFeature,
)
from ffrecord.sources.tfrecord.examples_batch import pack

STEPS = {
    "fixed": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2),
    "floats": st.lists(st.floats(width=32, allow_nan=False), max_size=3),
    "words": st.lists(st.binary(max_size=4), min_size=1, max_size=1),
    "texts": st.lists(st.binary(max_size=4), max_size=3),
    "frames": st.lists(st.binary(max_size=4), max_size=2),
    "image": st.binary(min_size=4, max_size=4).map(lambda each: [each]),
}
LISTS = {
    "fixed": FixedFeature("int64", (2,)),
    "floats": VarFeature("float32"),
    "words": FixedFeature("string"),
    "texts": VarFeature("string"),
    "frames": VarFeature("uint8"),
    "image": FixedFeature("uint8", (2, 2)),
}
PARSER = SequenceParser({"id": FixedFeature("int64")}, LISTS)
sequences = st.fixed_dictionaries({key: st.lists(steps, max_size=3) for key, steps in STEPS.items()})


def plain(key, step):
    """A step as a parsed one is compared."""
    if key == "image":
        return [list(step[0][:2]), list(step[0][2:])]
    return list(b"".join(step)) if key == "frames" else step[0] if key == "words" else step


def steps_of(column):
    rows, offsets = column
    if isinstance(rows, Ragged):
        found = [rows.values[a:b].tolist() for a, b in pairwise(rows.offsets)]
    elif isinstance(rows, RaggedStrings):
        strings = [rows.data[a:b].tobytes() for a, b in pairwise(rows.value_offsets)]
        found = [strings[a:b] for a, b in pairwise(rows.row_offsets)]
    else:
        found = rows.tolist()
    return [found[a:b] for a, b in pairwise(offsets)]


@given(st.lists(sequences, max_size=3), st.integers(1, 3))
def test_as_google_protobuf(batch, threads):
    records = [twin.sequence({"id": [i]}, each) for i, each in enumerate(batch)]
    context, lists = PARSER.parse_batch(*pack(records), num_threads=threads)
    assert context["id"].tolist() == list(range(len(batch)))
    for key in LISTS:
        assert steps_of(lists[key]) == [[plain(key, step) for step in each[key]] for each in batch]
    for i, record in enumerate(records):
        values, found = PARSER.parse(record)
        assert values == {"id": i}
        for key, steps in batch[i].items():
            assert [getattr(step, "tolist", lambda step=step: step)() for step in found[key]] == [
                plain(key, step) for step in steps
            ]


def test_pieces_and_repeated_keys():
    step = twin.int64s
    lists = [
        twin.entry(b"k", twin.field(1, step(9))),
        twin.entry(b"k", twin.field(1, step(1, 2)) + twin.field(7, 1), twin.field(1, step(3))),
    ]
    record = twin.field(2, lists[0]) + twin.field(2, lists[1]) + twin.field(9, b"unknown")
    _, found = SequenceParser({}, {"k": VarFeature("int64")}).parse(record)
    assert [each.tolist() for each in found["k"]] == [[1, 2], [3]]
    parsed = twin.SequenceExample.FromString(record).feature_lists.feature_list["k"].feature
    assert [list(each.int64_list.value) for each in parsed] == [[1, 2], [3]]


@pytest.mark.parametrize(
    "steps, error, message",
    [
        ([[1, 2], [3]], FeatureCountError, "step 1: it has 1 values, expected 2"),
        ([[1, 2], [0.5, 1.5]], FeatureKindError, "step 1: it holds float values"),
        ([[1, 2], [3, 4], []], MissingFeatureError, "step 2: it is missing"),
    ],
)
def test_not_as_asked(steps, error, message):
    good = twin.sequence({}, {"k": [[1, 2]] * 3})
    parser = SequenceParser({}, {"other": VarFeature("int64"), "k": FixedFeature("int64", (2,))}, optional=["other"])
    with pytest.raises(error) as caught:
        parser.parse_batch(*pack([good, twin.sequence({}, {"k": steps}), good]))
    assert f"example 1, feature 'k', {message}" in str(caught.value)
    assert (caught.value.key, caught.value.index) == ("k", 1)


def test_kinds_of_steps_of_any_size():
    with pytest.raises(FeatureKindError, match="example 1, feature 'k', step 1: it holds bytes"):
        records = [twin.sequence({}, {"k": [[1]]}), twin.sequence({}, {"k": [[1], [b"a"]]})]
        SequenceParser({}, {"k": VarFeature("int64")}).parse_batch(*pack(records))


def test_absent_lists():
    records = [twin.sequence({"id": [1]}, {"k": [[1]]}), twin.sequence({"id": [2]}, {})]
    for feature in (VarFeature("int64"), FixedFeature("int64")):
        with pytest.raises(MissingFeatureError, match="example 1, feature 'k': it is missing"):
            SequenceParser({}, {"k": feature}).parse_batch(*pack(records))
        _, lists = SequenceParser({}, {"k": feature}, optional=["k"]).parse_batch(*pack(records))
        assert lists["k"].offsets.tolist() == [0, 1, 1]


def test_arguments():
    with pytest.raises(ArgumentError, match="default"):
        SequenceParser({}, {"k": FixedFeature("int64", (), 0)})
    with pytest.raises(ArgumentError, match="optional has \\['other'\\]"):
        SequenceParser({}, {"k": VarFeature("int64")}, optional=["other"])
    again = pickle.loads(pickle.dumps(SequenceParser({}, {"k": VarFeature("int64")}, optional=["k"])))
    assert again.optional == {"k"} and again.parse(b"")[1]["k"] == [] and "VarFeature" in repr(again)


def test_steps_without_values_take_no_memory_for_rows():
    """A megabyte of empty steps is refused before room is made for half a million images."""
    record = twin.field(2, twin.entry(b"k", twin.field(1, b"") * 500_000))
    parser = SequenceParser({}, {"k": FixedFeature("uint8", (4096, 4096))})
    with pytest.raises(MissingFeatureError, match="step 0"):
        parser.parse(record)
    with pytest.raises(FeatureCountError, match="step 1: it has 1 bytes, expected 4"):
        SequenceParser({}, {"k": FixedFeature("uint8", (4,))}).parse(twin.sequence({}, {"k": [[b"abcd"], [b"a"]]}))


WHOLE = twin.sequence(
    {"id": [7]},
    {
        "fixed": [[1, 2]], "floats": [[0.5], []], "words": [[b"a"], [b"bc"]], "texts": [[b"d", b""], []],
        "frames": [[b"jpeg"]], "image": [[b"abcd"]],
    },
)  # fmt: skip


def survives(record):
    try:
        PARSER.parse_batch(*pack([record, record]))
    except FormatError as error:
        assert isinstance(error, ExampleError) and "example 0" in str(error)


def test_damage():
    PARSER.parse(WHOLE)
    for at in range(len(WHOLE)):
        survives(WHOLE[:at])
        survives(WHOLE[:at] + bytes([WHOLE[at] ^ 1 << at % 8]) + WHOLE[at + 1 :])
    for mutant in mutants(WHOLE, 1500, seed=2):
        survives(mutant)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 15))
def test_many_mutants(seed):
    for mutant in mutants(WHOLE, 40_000, seed=seed):
        survives(mutant)


def test_batches_of_many():
    rng = np.random.default_rng(1)
    steps = [[[int(v)] * 2 for v in rng.integers(0, 9, n)] for n in rng.integers(0, 60, 500)]
    records = [twin.sequence({}, {"fixed": each}) for each in steps]
    parser = SequenceParser({}, {"fixed": LISTS["fixed"]}, optional=["fixed"])
    assert steps_of(parser.parse_batch(*pack(records), num_threads=3)[1]["fixed"]) == steps
