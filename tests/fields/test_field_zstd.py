"""Fields compressed with Zstandard."""

import pickle
import resource
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from field_cases import fields, pack, run_without, same, values
from hypothesis import given, settings
from hypothesis import strategies as st

from ffrecord.errors import FormatError
from ffrecord.fields import (
    BoolField,
    BytesField,
    FloatField,
    IntField,
    JSONField,
    NDArrayField,
    NoneField,
    ScalarField,
    Schema,
    StrField,
    TensorField,
    ZstdField,
    zstd,
)

zstandard = pytest.importorskip("zstandard")

MASK = NDArrayField("uint8", (64, 64))


def record(payload: bytes) -> bytes:
    return len(payload).to_bytes(8, "little") + payload


@settings(deadline=None, max_examples=100)
@given(st.data(), fields(), st.integers(1, 22))
def test_round_trip(data: st.DataObject, inner: Any, level: int) -> None:
    schema = Schema.of({"x": ZstdField(inner, level), "y": IntField()})
    samples = [{"x": value, "y": i} for i, value in enumerate(data.draw(st.lists(values(inner), max_size=4)))]
    records = [schema.encode(sample) for sample in samples]
    assert all(same(schema.decode(each), sample) for each, sample in zip(records, samples, strict=True))
    assert same(schema.decode_batch(*pack(records)), samples)
    # A column is what it is without compression.
    plain = Schema.of(inner)
    expected = plain.decode_columns(*pack([plain.encode(sample["x"]) for sample in samples]))["value"]
    found = schema.decode_columns(*pack(records))["x"]
    assert same(found, expected)
    if isinstance(found, np.ndarray):
        assert found.flags.writeable and found.flags.aligned and found.flags.c_contiguous


def test_it_compresses() -> None:
    schema = Schema.of(ZstdField(MASK))
    assert len(schema.encode(np.zeros((64, 64), np.uint8))) < 40
    assert schema.record_size is None and not schema.slots
    sizes = [len(ZstdField(StrField(), level).encode("abcdefgh" * 500 + str(list(range(3000))))) for level in (1, 19)]
    assert sizes[1] < sizes[0]


def test_columns_of_fixed_size_are_arrays() -> None:
    schema = Schema.of({"mask": ZstdField(MASK), "none": ZstdField(NoneField()), "text": ZstdField(StrField())})
    records = [schema.encode({"mask": np.full((64, 64), i, np.uint8), "none": None, "text": "x" * i}) for i in range(3)]
    columns = schema.decode_columns(*pack(records))
    assert columns["mask"].shape == (3, 64, 64) and columns["mask"][:, 5, 5].tolist() == [0, 1, 2]
    assert columns["none"] == [None] * 3 and columns["text"] == ["", "x", "xx"]
    assert schema.decode_columns(np.empty(0, np.uint8), [0])["mask"].shape == (0, 64, 64)


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    schema = Schema.of({"x": ZstdField(TensorField("bfloat16", (4,)))})
    data, offsets = pack([schema.encode({"x": torch.arange(4).to(torch.bfloat16) * i}) for i in range(3)])
    as_tensor = lambda array, dtype: torch.from_numpy(array.view(np.int16)).view(getattr(torch, dtype))  # noqa: E731
    assert schema.decode_columns(data, offsets, as_tensor)["x"].tolist() == [[0, 0, 0, 0], [0, 1, 2, 3], [0, 2, 4, 6]]
    assert schema.decode_batch(data, offsets, as_tensor)[2]["x"].tolist() == [0, 2, 4, 6]


def test_same_bytes_whatever_came_before() -> None:
    """One compressor serves many values; what it gives depends on none of those before."""
    field = ZstdField(BytesField(), 5)
    random = np.random.default_rng(0)
    contents = [random.integers(0, 4, size, np.uint8).tobytes() for size in (10, 200_000, 3, 5000, 0, 70_000)]
    expected = [field.encode(content) for content in contents]
    assert [field.encode(content) for content in contents[::-1]] == expected[::-1]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(field.encode, contents * 20)) == expected * 20
        back = pool.map(lambda payload: field.decode(memoryview(payload)), expected * 20)
        assert list(back) == contents * 20


def test_contexts_are_per_thread() -> None:
    ZstdField(IntField()).encode(1)
    found = []
    thread = threading.Thread(target=lambda: found.append(vars(zstd._contexts).copy()))
    thread.start()
    thread.join()
    assert vars(zstd._contexts)["compressors"] and found == [{}]


def test_schema() -> None:
    schema = Schema.of([ZstdField(NDArrayField("<f4", (None, 4)), 9)])
    assert schema.to_builtins()["sample"]["items"] == [
        {"kind": "zstd", "inner": {"kind": "ndarray", "dtype": "<f4", "shape": [None, 4]}, "level": 9}
    ]
    assert Schema.from_builtins(schema.to_builtins()) == schema == pickle.loads(pickle.dumps(schema))
    assert ZstdField(IntField()).expects == IntField().expects
    assert repr(schema.fields["[0]"]) == "ZstdField(NDArrayField('float32', (None, 4)), level=9)"


def test_replace() -> None:
    schema = Schema.of(ZstdField(IntField()))
    assert schema.replace({"value": ZstdField(IntField(), 22)}).decode(schema.encode(5)) == 5
    for other in (ZstdField(FloatField()), IntField(), ZstdField(StrField())):
        with pytest.raises(ValueError, match="cannot read values that ZstdField"):
            schema.replace({"value": other})
    with pytest.raises(ValueError, match="cannot read values that IntField"):
        Schema.of(IntField()).replace({"value": ZstdField(IntField())})


def test_values_refused() -> None:
    with pytest.raises(TypeError, match=r"^x: str 'a', expected an int"):
        Schema.of({"x": ZstdField(IntField())}).encode({"x": "a"})


def test_large_values_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zstd, "CONTENT_MAX", 1000)
    schema = Schema.of({"x": ZstdField(BytesField())})
    assert schema.decode(schema.encode({"x": bytes(1000)})) == {"x": bytes(1000)}
    with pytest.raises(ValueError, match="x: the value has 1001 bytes before compression, expected at most 1000"):
        schema.encode({"x": bytes(1001)})


class Unregistered(IntField):
    kind = "test.unregistered"


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((5,), TypeError, "inner is int 5, expected a Field"),
        ((IntField,), TypeError, "inner is an? .*type, expected a Field"),
        ((ZstdField(IntField()),), ValueError, "a registered field that is not compressed"),
        ((Unregistered(),), ValueError, "a registered field"),
        ((IntField(), 0), ValueError, "level is 0, expected 1 to 22"),
        ((IntField(), 23), ValueError, "level is 23"),
        ((IntField(), True), TypeError, "level is True, expected an int"),
    ],
)
def test_parameters_refused(arguments: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        ZstdField(*arguments)


NESTED: Any = {"kind": "zstd", "inner": {"kind": "int"}, "level": 3}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"kind": "zstd", "level": 3}, "x: zstd: inner is None, expected a field"),
        ({"kind": "zstd", "inner": 5, "level": 3}, "inner is int 5"),
        ({"kind": "zstd", "inner": NESTED, "level": 3}, "a field that is not compressed"),
        ({"kind": "zstd", "inner": {"kind": "dict", "items": []}, "level": 3}, "field kind 'dict' is unknown here"),
        ({"kind": "zstd", "inner": {"kind": "acme.x"}, "level": 3}, "schema: x: field kind 'acme.x' is unknown here"),
        ({"kind": "zstd", "inner": {"kind": "scalar", "dtype": "O"}, "level": 3}, "x: zstd: dtype is 'O'"),
        ({"kind": "zstd", "inner": {"kind": "int"}, "level": 99}, "level is 99"),
        ({"kind": "zstd", "inner": {"kind": "int"}, "window": 3}, "window"),
    ],
)
def test_broken_specs(spec: Any, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        Schema.from_builtins({"version": 1, "sample": {"kind": "dict", "items": [["x", spec]]}})


def frame(content: bytes, **options: Any) -> bytes:
    compressed: bytes = zstandard.ZstdCompressor(**options).compress(content)
    return compressed


def saying(size: int) -> bytes:
    """A frame of five bytes that says it gives `size`."""
    return bytes.fromhex("28b52ffd e0") + struct.pack("<Q", size) + frame(b"12345")[6:]


SKIPPABLE = struct.pack("<II", 0x184D2A50, 8) + bytes(8)
DAMAGED = [
    (b"", "the value of 0 bytes is not a Zstandard frame"),
    (b"12345678", "the value of 8 bytes is not a Zstandard frame"),
    (frame(b"x" * 100)[:-1], "bytes is not a Zstandard frame"),
    (frame(b"x" * 100)[:5], "bytes is not a Zstandard frame"),
    (frame(b"x") + b"y", "bytes is not a Zstandard frame"),
    (frame(b"x") * 2, "bytes is not a Zstandard frame"),
    (SKIPPABLE, "bytes is not a Zstandard frame"),
    (
        frame(b"x", write_content_size=False),
        "the Zstandard frame of 10 bytes holds 18446744073709551615, expected at most",
    ),
    (saying(2**64 - 2), "the Zstandard frame of 21 bytes holds 18446744073709551614"),
    (saying(2**40), "the Zstandard frame of 21 bytes holds 1099511627776"),
    (saying(1000), "bytes is not a Zstandard frame"),
    (saying(3), "bytes is not a Zstandard frame"),
]


@pytest.mark.parametrize(("payload", "words"), DAMAGED)
def test_hostile_payloads(payload: bytes, words: str) -> None:
    schema = Schema.of({"x": ZstdField(BytesField())})
    with pytest.raises(FormatError, match=rf"^x \(ZstdField\): .*{words}"):
        schema.decode(record(payload))
    for decode in (schema.decode_batch, schema.decode_columns):
        with pytest.raises(FormatError, match=rf"^record 1 of the batch: x \(ZstdField\): .*{words}"):
            decode(*pack([schema.encode({"x": b"good"}), record(payload)]))


def test_frames_to_be_skipped_as_old_releases_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    decompressor = SimpleNamespace(decompress=lambda data, allow_extra_data: b"")
    monkeypatch.setattr(zstd, "_decompressor", lambda: decompressor)
    for inner in (BytesField(), IntField()):
        schema = Schema.of(ZstdField(inner))
        with pytest.raises(FormatError, match="the Zstandard frame of 16 bytes holds 0 bytes, expected 8"):
            schema.decode_columns(*pack([record(SKIPPABLE)]))


def test_a_frame_that_says_its_size_is_read() -> None:
    assert ZstdField(BytesField()).decode(memoryview(saying(5))) == b"12345"


@pytest.mark.parametrize("inner", [IntField(), FloatField(), BoolField(), ScalarField("u1"), MASK])
@pytest.mark.parametrize("content", [b"", b"12345", bytes(4097)])
def test_contents_of_another_size(inner: Any, content: bytes) -> None:
    schema = Schema.of(ZstdField(inner))
    payload = record(frame(content))
    words = rf"value \(ZstdField\): the Zstandard frame holds {len(content)} bytes, expected {inner.fixed.size} for "
    for decode in (lambda: schema.decode(payload), lambda: schema.decode_columns(*pack([payload]))):
        with pytest.raises(FormatError, match=words):
            decode()


@pytest.mark.parametrize(
    ("inner", "content", "words"),
    [
        (BoolField(), b"\2", "a bool is byte 2"),
        (StrField(), b"\xff", "the value is not UTF-8"),
        (JSONField(), b"{", "the value is not JSON"),
        (NDArrayField("u1", (None,)), struct.pack("<Q", 2**60), "the array has 0 bytes of uint8 items"),
    ],
)
def test_contents_that_the_inner_field_refuses(inner: Any, content: bytes, words: str) -> None:
    schema = Schema.of(ZstdField(inner))
    payload = record(frame(content))
    with pytest.raises(FormatError, match=rf"^value \(ZstdField\): {words}"):
        schema.decode(payload)
    with pytest.raises(FormatError, match=rf"^record 0 of the batch: value \(ZstdField\): {words}"):
        schema.decode_columns(*pack([payload]))


def test_bombs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is really there is bounded by CONTENT_MAX; what is only said costs nothing."""
    bomb = frame(bytes(1 << 24))
    assert len(bomb) < 1000
    monkeypatch.setattr(zstd, "CONTENT_MAX", 1 << 20)
    with pytest.raises(FormatError, match=r"the Zstandard frame of .* bytes holds 16777216, expected at most 1048576"):
        ZstdField(BytesField()).decode(memoryview(bomb))


def test_nothing_is_allocated_by_what_a_frame_says() -> None:
    schema = Schema.of(ZstdField(NDArrayField("u1", (1 << 29,))))
    payload = record(saying(1 << 29))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for decode in (lambda: schema.decode(payload), lambda: schema.decode_columns(*pack([payload] * 50))):
        with pytest.raises(FormatError, match="holds 536870912, expected at most"):
            decode()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def test_the_bound_on_what_a_frame_can_give_holds() -> None:
    for size in (0, 1, 100, 1 << 17, 1 << 25):
        for level in (1, 3, 19):
            assert ZstdField(BytesField()).decode(memoryview(frame(bytes(size), level=level))) == bytes(size)


def test_any_damage() -> None:
    """Any bytes are decoded or refused as a FormatError, and a batch does the same."""
    random = np.random.default_rng(0)
    schema = Schema.of(ZstdField(NDArrayField("<u2", (300,))))
    whole = np.frombuffer(schema.encode(np.arange(300, dtype="<u2") // 7), np.uint8)[8:]
    for _ in range(500):
        data = whole[: random.integers(1, len(whole) + 1)].copy()
        data[random.integers(0, len(data), 2)] = random.integers(0, 256, 2)
        outcomes = []
        for decode in (lambda r: [schema.decode(r)], lambda r: list(schema.decode_columns(*pack([r]))["value"])):
            try:
                outcomes.append(decode(record(data.tobytes()))[0].tolist())
            except FormatError as error:
                outcomes.append(str(error).removeprefix("record 0 of the batch: "))
        assert outcomes[0] == outcomes[1]


def test_without_zstandard() -> None:
    words = "a compressed field needs zstandard: pip install zstandard"
    assert words in run_without(["zstandard"], "ZstdField(IntField()).encode(1)")
    assert words in run_without(["zstandard"], "ZstdField(IntField()).decode(memoryview(b'1'))")
    assert "8" in run_without(["zstandard"], "print(Schema.of([ZstdField(IntField()), IntField()]).fixed_size)")
