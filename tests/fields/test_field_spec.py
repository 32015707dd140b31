"""Schemas as builtins: what files hold, and what they may hold instead."""

import json
import time
import tracemalloc
from typing import Any

import children
import pytest
from field_cases import PLAIN

from ffrecord.errors import FormatError
from ffrecord.fields import (
    ImageField,
    JPEGField,
    NDArrayField,
    ScalarField,
    Schema,
    TensorField,
)

EVERYTHING = {
    "a": PLAIN,
    "b": [ScalarField("int16"), NDArrayField(">f4", (2, None)), NDArrayField("?", None)],
    "c": {"t": TensorField("bfloat16", (3,)), "i": ImageField(), "j": JPEGField(quality=80, as_bytes=True)},
}
SPEC = {
    "version": 1,
    "sample": {
        "kind": "dict",
        "items": [
            [
                "a",
                {
                    "kind": "tuple",
                    "items": [{"kind": kind} for kind in ("int", "float", "bool", "str", "bytes", "none", "json")],
                },
            ],
            [
                "b",
                {
                    "kind": "list",
                    "items": [
                        {"kind": "scalar", "dtype": "<i2"},
                        {"kind": "ndarray", "dtype": ">f4", "shape": [2, None]},
                        {"kind": "ndarray", "dtype": "|b1", "shape": None},
                    ],
                },
            ],
            [
                "c",
                {
                    "kind": "dict",
                    "items": [
                        ["t", {"kind": "tensor", "dtype": "bfloat16", "shape": [3]}],
                        ["i", {"kind": "image", "compress_level": 1}],
                        ["j", {"kind": "jpeg", "quality": 80, "as_bytes": True}],
                    ],
                },
            ],
        ],
    },
}


def test_builtins() -> None:
    schema = Schema.of(EVERYTHING)
    assert schema.to_builtins() == SPEC
    assert Schema.from_builtins(SPEC) == schema == Schema.from_builtins(json.loads(json.dumps(SPEC)))


def test_fingerprint_is_for_ever() -> None:
    schema = Schema.of(EVERYTHING)
    assert schema.fingerprint() == "d7d48d5e90d1c3175d6de0078754e77d78eb48db86881c4595e5be0254529b4c"
    assert schema.fingerprint() != Schema.of({**EVERYTHING, "d": None}).fingerprint()


def node(**spec: Any) -> dict[str, Any]:
    return {"version": 1, "sample": spec}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "schema is None, expected a dict with a version"),
        ([], "schema is a list of 0"),
        ({}, "expected a dict with a version"),
        ({"version": True, "sample": {"kind": "int"}}, "expected a dict with a version"),
        ({"version": 2, "sample": {"kind": "int"}}, "schema has version 2, this release of ffrecord reads version 1"),
        ({"version": 1}, "schema: sample is None, expected a dict with a kind"),
        (node(), "schema: sample: field kind None is unknown here"),
        (node(kind="video"), "field kind 'video' is unknown here; import the module that registers it"),
        (node(kind="x" * 10_000), "field kind 'x{60}' is unknown"),
        (node(kind=["int"]), "field kind a list of 1 is unknown"),
        ({"version": 1, "sample": {5: "int", "kind": "int"}}, "a dict of 2, expected a dict with a kind"),
        (node(kind="int", more=1), "sample: int: .*unexpected keyword"),
        (node(kind="tuple"), "items of the tuple is None, expected a list"),
        (node(kind="list", items={}), "items of the list is a dict of 0, expected a list"),
        (node(kind="list", items=[], more=1), "items of the list is a list of 0, expected a list and no other entry"),
        (node(kind="dict", items=["ab"]), "not pairs of key and node"),
        (node(kind="dict", items=[["a"]]), "not pairs of key and node"),
        (node(kind="dict", items=[[1, {"kind": "int"}]]), "a key is int 1"),
        (
            node(kind="dict", items=[["a", {"kind": "int"}]] * 2),
            "sample: 2 keys, 1 of them different, expected each key once",
        ),
        (node(kind="dict", items=[["a" * 1000, {"kind": "int"}]]), "a key has 1000 characters"),
        (node(kind="dict", items=[["a", {"kind": "list", "items": [5]}]]), r"a\[0\] is int 5"),
        (node(kind="scalar"), "scalar: dtype is 'None'"),
        (node(kind="scalar", dtype="<V4"), "dtype is '<V4'"),
        (node(kind="scalar", dtype="|S4"), "text or bytes"),
        (node(kind="ndarray", dtype="<f4"), "shape is str 'missing'"),
        (node(kind="ndarray", dtype="<f4", shape=5), "shape is int 5"),
        (node(kind="ndarray", dtype="<f4", shape="ab"), "shape is str 'ab'"),
        (node(kind="ndarray", dtype="<f4", shape=[1] * 33), "shape is a list of 33"),
        (node(kind="ndarray", dtype="<f4", shape=[-1]), "an axis of -1"),
        (node(kind="ndarray", dtype="<f4", shape=[True]), "an axis of shape is True"),
        (node(kind="ndarray", dtype="<f4", shape=[1.0]), "float"),
        (node(kind="ndarray", dtype="<f4", shape=["1"]), "str"),
        (node(kind="ndarray", dtype="<f4", shape=[2**62]), "have more than 9223372036854775807 bytes"),
        (node(kind="ndarray", dtype="<f4", shape=[0, 2**62]), "have more than 9223372036854775807 bytes"),
        (node(kind="ndarray", dtype="<f4", shape=[2**1000]), "have more than 9223372036854775807 bytes"),
        (node(kind="ndarray", dtype="<f4", shape=[], more=1), "unexpected keyword"),
        (node(kind="ndarray", dtype="|O", shape=[]), r"dtype is '\|O'"),
        (node(kind="ndarray", dtype="f4,f4", shape=[]), "dtype is 'f4,f4'"),
        (node(kind="ndarray", dtype="<f3", shape=[]), "ndarray: "),
        (node(kind="ndarray", dtype="|S0", shape=[]), "of fixed size"),
        (node(kind="ndarray", dtype="|S9999999999", shape=[]), "ndarray: "),
        (node(kind="ndarray", dtype="<M8[parsec]", shape=[]), "ndarray: "),
        (node(kind="ndarray", dtype=["<f4"], shape=[]), "dtype is "),
        (node(kind="ndarray", dtype="<f4" * 1000, shape=[]), "dtype is '<f4<f4"),
        (node(kind="ndarray", dtype="<f16", shape=[]), "differs between machines"),
        (node(kind="tensor", dtype=5, shape=[]), "dtype is int .*, expected the name of a torch dtype"),
        (node(kind="tensor", dtype="float3", shape=[]), "'float3' cannot be stored"),
        (node(kind="jpeg", quality=0, as_bytes=False), "quality is 0"),
        (node(kind="jpeg", quality="x" * 1000, as_bytes=False), "quality is str .*, expected an int"),
        (node(kind="image", compress_level=[]), "compress_level is a list of 0, expected an int"),
    ],
)
def test_refused(spec: Any, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        Schema.from_builtins(spec)
    assert len(str(caught.value)) < 500


def test_records_too_large_to_count() -> None:
    half = {"kind": "ndarray", "dtype": "|u1", "shape": [2**62]}
    with pytest.raises(FormatError, match="schema: records have 9223372036854775808 bytes or more"):
        Schema.from_builtins(node(kind="list", items=[half, half]))


def test_giant_arrays_cost_nothing_until_there_is_a_record() -> None:
    schema = Schema.from_builtins(node(kind="ndarray", dtype="|S2147483647", shape=[2**31]))
    with pytest.raises(FormatError, match="the record has 4 bytes, expected 4611686016279904256"):
        schema.decode(b"1234")


def deep() -> Any:
    found: Any = {"kind": "int"}
    for _ in range(100_000):
        found = {"kind": "list", "items": [found]}
    return found


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: {"kind": "list", "items": [{"kind": "int"}] * 1_000_000}, "more than 4096 columns"),
        (lambda: {"kind": "list", "items": [{"kind": "list", "items": []}] * 5000}, "more than 4096 columns"),
        (deep, "nested more than 32 levels deep"),
    ],
)
def test_size_is_bounded(make: Any, words: str) -> None:
    spec = {"version": 1, "sample": make()}
    tracemalloc.start()
    started = time.perf_counter()
    with pytest.raises(FormatError, match=words):
        Schema.from_builtins(spec)
    assert time.perf_counter() - started < children.PATIENCE
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()
    while isinstance(spec, dict) and len(spec.get("items", [])) == 1:  # a deep one would overflow the stack when freed
        spec = spec["items"][0]
