"""TensorProtos messages, against google.protobuf."""

import contextlib
import math
import struct

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutants
from tensor_messages import TensorProto, TensorProtos, default_sample

from ffrecord.errors import FormatError
from ffrecord.sources.lmdb.torchrecord import sample, tensors


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def message(*protos: TensorProto) -> np.ndarray:
    return array(TensorProtos(protos=protos).SerializeToString())


def shaped(*dims: int) -> bytes:
    proto = TensorProto(data_type=2, dims=dims, int32_data=[1] * math.prod(dims))
    return TensorProtos(protos=[proto]).SerializeToString()


CASES = [
    (TensorProto(float_data=[1.5, -2]), np.array([1.5, -2], np.float32)),
    (TensorProto(data_type=1, dims=[2, 1], float_data=[1.5, -2]), np.array([[1.5], [-2]], np.float32)),
    (TensorProto(data_type=2, int32_data=[-1, 2**31 - 1]), np.array([-1, 2**31 - 1], np.int32)),
    (TensorProto(data_type=3, byte_data=b"ab"), np.array([97, 98], np.uint8)),
    (TensorProto(data_type=5, int32_data=[0, 1]), np.array([False, True])),
    (TensorProto(data_type=6, int32_data=[0, 255]), np.array([0, 255], np.uint8)),
    (TensorProto(data_type=7, int32_data=[-128, 127]), np.array([-128, 127], np.int8)),
    (TensorProto(data_type=8, int32_data=[65535]), np.array([65535], np.uint16)),
    (TensorProto(data_type=9, int32_data=[-32768]), np.array([-32768], np.int16)),
    (TensorProto(data_type=10, int64_data=[-(2**63), 2**63 - 1]), np.array([-(2**63), 2**63 - 1], np.int64)),
    (TensorProto(data_type=12, int32_data=[0x3E00, 0xC000]), np.array([1.5, -2], np.float16)),
    (TensorProto(data_type=13, double_data=[0.1]), np.array([0.1])),
    (TensorProto(data_type=13, dims=[0, 4]), np.empty((0, 4))),
]


@pytest.mark.parametrize("proto, expected", CASES)
def test_each_data_type(proto, expected):
    (found,) = sample(message(proto)).values()
    assert found.dtype == expected.dtype and found.shape == expected.shape
    assert np.array_equal(found, expected) and found.flags.writeable


def test_strings_are_a_list():
    assert sample(message(TensorProto(data_type=4, string_data=[b"a", b"", b"\xff"]))) == {"0": [b"a", b"", b"\xff"]}


def test_names_and_segments():
    proto = TensorProto(name="weights", dims=[100], float_data=[1, 2])
    proto.segment.begin, proto.segment.end = 10, 12
    (found,) = tensors(message(proto))
    assert found.name == "weights" and np.array_equal(found.in_shape(), [1, 2])


def test_not_packed_is_the_same():
    """Writers that do not pack, or a part of it only: each value with its own tag."""
    floats = b"".join(b"\x1d" + struct.pack("<f", value) for value in (1.5, -2)) + b"\x1a\x04" + struct.pack("<f", 3)
    (found,) = tensors(array(b"\x0a" + bytes([len(floats) + 2]) + b"\x0a\x00" + floats))
    assert np.array_equal(found.values, np.array([1.5, -2, 3], np.float32))
    packed_dims = b"\x0a\x02\x01\x03" + b"\x1a\x0c" + struct.pack("<3f", 1, 2, 3)
    assert sample(array(b"\x0a" + bytes([len(packed_dims)]) + packed_dims))["0"].shape == (1, 3)


def test_the_default_sample():
    pixels = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    found = sample(array(default_sample(pixels, 17)))
    assert found["label"] == 17 and type(found["label"]) is int
    assert np.array_equal(found["image"], pixels) and found["image"].flags.writeable


@pytest.mark.parametrize("label", [b"", b"cat", b"1.5", b"1" * 30, b"--1", "²".encode()])
def test_a_label_that_is_no_number_stays_what_it_is(label):
    picture = TensorProto(data_type=3, dims=[1, 1, 3], byte_data=b"rgb")
    found = sample(message(picture, TensorProto(data_type=3, byte_data=label)))
    assert found["0"].shape == (1, 1, 3) and found["1"].tobytes() == label


def test_nothing_at_all():
    assert sample(array(b"")) == {}
    assert sample(message(TensorProto()))["0"].shape == (0,)


@pytest.mark.parametrize(
    "data, error",
    [
        (b"\x0a", "the number at byte 1 does not end"),
        (b"\x0a\x05\x00", "field 1 at byte 0 ends at byte 7, but its message at byte 3"),
        (b"\x0a" + b"\xff" * 9 + b"\x01", "field 1 at byte 0 ends at byte 18446744073709551626"),
        (b"\xff" * 11, "the number at byte 0 does not end"),
        (b"\x08\x00", "field 1 has wire type 0, expected 2"),
        (b"\x0b", "field 1 at byte 0 has wire type 3"),
        (b"\x00\x00", "field number at byte 0 is 0"),
        (b"\x0a\x02\x1a\xff", "the number at byte 3 does not end"),
        (b"\x0a\x03\x1a\x01\x00", "field 3 has 1 bytes, expected a multiple of 4"),
        (b"\x0a\x03\x22\x01\x80", None),
        (b"\x0a\x05\x10\x02\x22\x01\x80", "in 1 bytes of packed numbers, one number does not end"),
        (b"\x0a\x02\x10\x0b", "data type of the tensor is 11, expected one of"),
        (b"\x0a\x02\x08\x02", r"a tensor of shape \[2\] has 0 values"),
        (b"\x0a\x0b\x08" + b"\xff" * 9 + b"\x01", r"a tensor of shape \[-1\] has 0 values"),
        (shaped(0, 2**62, 2**62), r"a tensor of shape \[0, 4611686018427387904, 4611686018427387904\]: "),
        (shaped(*[1] * 65), "the tensor has 65 axes, expected at most 64"),
        (b"\x0a\x02\x18\x00", "field 3 at byte 3 has wire type 0, expected 5"),
    ],
)
def test_damage(data, error):
    if error is None:
        assert len(sample(array(data))["0"]) == 0  # numbers of a field that its data type does not have
        return
    with pytest.raises(FormatError, match=error):
        sample(array(data))


VALUES = {
    "dims": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
    "float_data": st.lists(st.floats(width=32), max_size=5),
    "int32_data": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5),
    "byte_data": st.binary(max_size=9),
    "string_data": st.lists(st.binary(max_size=3), max_size=3),
    "name": st.text(max_size=3),
    "double_data": st.lists(st.floats(), max_size=5),
    "int64_data": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
}
HOLDS = {1: "float_data", 2: "int32_data", 3: "byte_data", 4: "string_data", 10: "int64_data", 13: "double_data"}


def alike(data: bytes) -> None:
    """Both read the same values."""
    twin = TensorProtos.FromString(data)
    found = tensors(array(data))
    assert len(found) == len(twin.protos)
    for mine, its in zip(found, twin.protos, strict=True):
        expected = getattr(its, HOLDS[mine.data_type])
        if isinstance(mine.values, list):
            assert mine.values == list(expected)
        else:
            wanted = np.frombuffer(expected, np.uint8) if mine.data_type == 3 else np.array(expected, mine.values.dtype)
            assert mine.values.tobytes() == wanted.tobytes()
        assert (mine.dims, mine.name) == (list(its.dims), its.name)


@given(st.lists(st.fixed_dictionaries({"data_type": st.sampled_from(sorted(HOLDS))}, optional=VALUES), max_size=3))
def test_as_protobuf(protos):
    alike(TensorProtos(protos=[TensorProto(**proto) for proto in protos]).SerializeToString())


@pytest.mark.parametrize("count", [1500, pytest.param(200_000, marks=pytest.mark.long)])
def test_mutants(count):
    """Nothing but a FormatError says no; what both accept they read alike. (Protobuf looks at unused fields, too.)"""
    whole = TensorProtos(protos=[proto for proto, _ in CASES]).SerializeToString()
    accepted = 0
    for data in mutants(whole, count, seed=4):
        try:
            found = tensors(array(data))
            twin = TensorProtos.FromString(data)
        except (FormatError, DecodeError):
            continue
        accepted += 1
        assert [mine.dims for mine in found if mine.dims] == [list(its.dims) for its in twin.protos if its.dims]
        with contextlib.suppress(FormatError):
            sample(array(data))
    assert count / 4 < accepted < count
