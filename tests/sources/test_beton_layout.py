"""The layout of .beton files, byte by byte."""

import struct

import numpy as np
import pytest
from beton_twin import array_arguments, beton

from ffrecord.errors import FormatError
from ffrecord.sources.beton.layout import HEADER, METADATA, BetonLayout, descriptors_size, parse

IMAGE = np.zeros((1, 2, 3), np.uint8)
ONE = {"image": IMAGE, "int": 1, "bytes": b"x", "float": 0.5, "array": np.zeros(2, np.float32), "json": None}


def layout(data: bytes, **custom) -> BetonLayout:
    size = descriptors_size(data[: HEADER.size], len(data))
    return parse(data[: HEADER.size], data[HEADER.size : HEADER.size + size], len(data), custom)


@pytest.mark.parametrize(
    ("kinds", "size", "offsets"),
    [
        (["image", "int"], 24, [0, 16]),
        (["image", "bytes"], 29, [0, 13]),
        (["bytes", "int"], 24, [0, 16]),
        (["int", "float"], 16, [0, 8]),
        (["int", "float", "array", "bytes", "json", "image"], 72, [0, 8, 16, 24, 40, 56]),
        (["json"], 16, [0]),
        (["image", "array", "image"], 40, [0, 16, 24]),
    ],
)
def test_rows_are_laid_out_as_ffcv_does(kinds, size, offsets):
    fields = {f"{i}": ("array", "<f4", (2,)) if kind == "array" else kind for i, kind in enumerate(kinds)}
    found = layout(beton(fields, [{name: ONE[kind] for name, kind in zip(fields, kinds, strict=True)}]))
    assert found.row.itemsize == size
    assert [found.row.fields[field.column][1] for field in found.fields] == offsets


def test_header_bytes():
    assert HEADER.pack(2, 1, 0x200000, 3, 0x1000000) == bytes.fromhex(
        "0200 0100 00002000 0300000000000000 0000000100000000"
    )
    assert METADATA["image"].itemsize == 13


def test_where_things_are():
    found = layout(beton({"a": "int", "b": "bytes"}, [{"a": i, "b": b"xyz"} for i in range(5)]))
    assert (found.n, found.rows_start, found.data_start) == (5, 24 + 2 * 1041, 4096)
    assert (found.table_start, found.allocations, found.page_size) == (8192, 5, 4096)


def test_names_that_were_cut_to_the_same_are_told_apart():
    fields = {"the_colour_picture_1": "int", "the_colour_picture_2": "int"}
    found = layout(beton(fields, [dict.fromkeys(fields, 1)]))
    assert [field.name for field in found.fields] == ["the_colour_pictu", "the_colour_pictu_1"]


@pytest.mark.parametrize(
    ("dtype", "shape"), [("<f4", (2, 3)), (">i2", (5,)), ("|b1", ()), ("<M8[ns]", (1,)), ("|S7", (2,))]
)
def test_arrays_of_any_plain_dtype(dtype, shape):
    found = layout(beton({"a": ("array", dtype, shape)}, [{"a": np.zeros(shape, dtype)}])).fields[0]
    assert (found.dtype, found.shape, found.size) == (np.dtype(dtype), shape, np.zeros(shape, dtype).nbytes)


def edited(offset: int, piece: bytes) -> bytes:
    data = bytearray(beton({"a": ("array", "<f4", (2,)), "b": "int"}, [{"a": ONE["array"], "b": 1}]))
    data[offset : offset + len(piece)] = piece
    return bytes(data)


ARGUMENTS = 24 + 17


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\2\0", "2 bytes, expected at least 24"),
        (edited(0, b"\3"), "version is 3, expected 2"),
        (edited(4, b"\1\0\0\1"), "page size is 16777217"),
        (edited(4, b"\0\0\0\0"), "page size is 0"),
        (edited(2, b"\0\0"), "no fields"),
        (edited(2, b"\xff\xff"), "65535 field descriptors end at offset 68221959, but the file has"),
        (edited(16, bytes(8)), "unfinished"),
        (edited(16, b"\xff" * 8), "begins at offset 18446744073709551615"),
        (edited(8, b"\xff" * 8), "18446744073709551615 rows of metadata"),
        (edited(8, struct.pack("<Q", 400)), "400 rows of metadata of 16 bytes end at offset"),
        (beton({"b": "bytes"}, [{"b": b"x"}])[:-1], "23 bytes from offset 8192"),
        (edited(24, b"\7"), "field 0, 'a': type is 7"),
        (edited(25, b"\xff"), "expected ASCII characters"),
        (edited(24, b"\xff"), "has a custom class"),
        (edited(ARGUMENTS, struct.pack("<Q", 2**60)), "its arrays have 4611686018427387904 bytes, but the file has"),
        (edited(ARGUMENTS + 256, struct.pack("<Q", 2**40)), "its dtype has 1099511627776 bytes, expected at most 760"),
        (edited(ARGUMENTS + 264, b'[["", "|O"]]'), "expected one simple dtype"),
        (edited(ARGUMENTS + 264, b'{["", "<f4"]'), "expected one simple dtype"),
        (edited(ARGUMENTS + 256, array_arguments("<f4,<f4", (1,))[256:]), "expected one simple dtype"),
    ],
)
def test_what_does_not_fit_is_refused(data, message):
    with pytest.raises(FormatError) as caught:
        layout(data)
    assert message in str(caught.value)
