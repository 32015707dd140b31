"""Torch tensors: stored without importing torch, given back as arrays or as what the caller makes of them."""

import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from field_cases import pack, same
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ffrecord.errors import FormatError
from ffrecord.fields import Schema, TensorField, ZstdField

torch = pytest.importorskip("torch")
zstandard = find_spec("zstandard")

NATIVE = [
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
BITS = {"bfloat16": "uint16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def to_tensor(array: Any, dtype: str) -> Any:
    """What ffrecord.torch does, in short."""
    signed = array.view({2: np.int16, 1: np.uint8}[array.itemsize]) if dtype in BITS else array
    return torch.from_numpy(signed).view(getattr(torch, dtype)) if dtype in BITS else torch.from_numpy(signed)


@pytest.mark.parametrize("dtype", [*NATIVE, *BITS])
@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3, 4)])
def test_dtypes_and_shapes(dtype: str, shape: tuple[int, ...]) -> None:
    tensor = torch.arange(int(np.prod(shape)), dtype=torch.float32).reshape(shape).to(getattr(torch, dtype))
    for schema in (Schema.infer([tensor]), Schema.of(TensorField(dtype, [None] * len(shape)))):
        record = schema.encode(tensor)
        back = schema.decode(record, tensor=to_tensor)
        assert back.dtype is tensor.dtype and back.shape == tensor.shape
        assert bytes(back.reshape(-1).view(torch.uint8).tolist()) == bytes(
            tensor.reshape(-1).view(torch.uint8).tolist()
        )
        assert schema.decode(record).dtype == np.dtype(BITS.get(dtype, dtype))
        assert Schema.from_builtins(schema.to_builtins()) == schema


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from(NATIVE), st.booleans(), st.booleans())
def test_round_trip(data: st.DataObject, dtype: str, varying: bool, compressed: bool) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, min_side=0, max_side=4))
    array = data.draw(hnp.arrays(dtype, shape))
    field = TensorField(dtype, [None] * len(shape) if varying else shape)
    schema = Schema.of(ZstdField(field) if compressed and zstandard else field)
    records = pack([schema.encode(torch.from_numpy(array.copy()))] * 3)
    assert same(schema.decode_batch(*records), [array] * 3)
    column = schema.decode_columns(*records)["value"]
    assert same(column, [array] * 3) if varying and shape else same(column, np.stack([array] * 3))


def test_bfloat16_bytes() -> None:
    schema = Schema.infer([torch.tensor([1.0, -2.0], dtype=torch.bfloat16)])
    record = schema.encode(torch.tensor([1.0, -2.0], dtype=torch.bfloat16))
    assert record == bytes.fromhex("803f 00c0")
    assert same(schema.decode(record), np.array([0x3F80, 0xC000], np.uint16))
    assert schema.fields["value"].torch_dtype == "bfloat16"


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x.expand(3, 4),
        lambda x: x.clone().requires_grad_(),
        lambda x: torch.nn.Parameter(x.clone()),
        lambda x: torch.complex(x, x).conj(),
        lambda x: torch.complex(x, x).conj().imag,
        lambda x: x.to(torch.bfloat16).t(),
    ],
    ids=["transposed", "strided", "expanded", "grad", "parameter", "conj", "negative", "bfloat16"],
)
def test_any_tensor(make: Any) -> None:
    tensor = make(torch.arange(12.0).reshape(3, 4))
    schema = Schema.infer([tensor])
    back = schema.decode(schema.encode(tensor), tensor=to_tensor)
    assert type(back) is torch.Tensor and not back.requires_grad and back.is_contiguous()
    assert torch.equal(back, tensor.detach().resolve_conj().resolve_neg())


def test_batches() -> None:
    samples = [(torch.full((2,), float(i)), torch.arange(i), "x") for i in range(3)]
    schema = Schema.infer(samples)
    data, offsets = pack([schema.encode(sample) for sample in samples])
    decoded = schema.decode_batch(data, offsets, tensor=to_tensor)
    assert all(
        torch.equal(a, b) for x, y in zip(samples, decoded, strict=True) for a, b in zip(x[:2], y[:2], strict=True)
    )
    columns = schema.decode_columns(data, offsets, tensor=to_tensor)
    assert torch.equal(columns["[0]"], torch.stack([sample[0] for sample in samples]))
    assert [tensor.tolist() for tensor in columns["[1]"]] == [[], [0], [0, 1]]
    assert columns["[2]"] == ["x"] * 3
    assert same(schema.decode_columns(data, offsets)["[0]"], np.float32([[0, 0], [1, 1], [2, 2]]))


@pytest.mark.parametrize(
    ("value", "error", "words"),
    [
        (
            lambda: torch.zeros(3),
            ValueError,
            r"value: a torch float32 tensor of shape \(3,\), expected a torch float32 tensor of shape \(2,\); "
            r"TensorField\('float32', \(None,\)\) holds both",
        ),
        (lambda: torch.zeros(2, dtype=torch.float64), TypeError, "a torch float64 tensor"),
        (lambda: np.zeros(2, np.float32), TypeError, "a float32 array"),
        (lambda: torch.zeros(2).to_sparse(), ValueError, "not plain numbers in memory"),
        (lambda: torch.zeros(2, device="meta"), ValueError, "device .meta., where tensors have no items"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*sparse.*:UserWarning")
def test_refused(value: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Schema.of(TensorField("float32", (2,))).encode(value())


@pytest.mark.parametrize("dtype", [torch.quint8, "float4_e2m1fn_x2", "no such dtype", 5, None])
def test_dtypes_refused(dtype: Any) -> None:
    with pytest.raises(ValueError, match="cannot be stored, expected one of bool, uint8"):
        TensorField(dtype, ())


def test_dtype_by_name_or_object() -> None:
    assert TensorField(torch.bfloat16, (2,)) == TensorField("bfloat16", [2]) == TensorField("torch.bfloat16", (2,))
    assert repr(TensorField(torch.bfloat16, (2, None))) == "TensorField('bfloat16', (2, None))"


def test_bytes_that_are_no_bools() -> None:
    with pytest.raises(FormatError, match=r"value \(TensorField\): a bool is byte 2"):
        Schema.of(TensorField("bool", (2,))).decode(b"\1\2")


def test_read_without_torch() -> None:
    program = """
import sys
sys.modules["torch"] = None
import numpy as np
from ffrecord.fields import Schema
schema = Schema.from_builtins({"version": 1, "sample": {"kind": "tensor", "dtype": "bfloat16", "shape": [2]}})
assert schema.decode(b"abcd").tolist() == [0x6261, 0x6463]
try:
    schema.encode(np.zeros(2))
except TypeError as error:
    assert "expected a torch bfloat16 tensor" in str(error)
else:
    raise SystemExit("accepted")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_torch_is_not_imported() -> None:
    program = "import sys, ffrecord.fields; assert not {'torch', 'PIL', 'simplejpeg'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
