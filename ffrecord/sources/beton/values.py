"""Values of .beton fields: metadata and bytes of the pages → values for users."""

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import FormatError
from ffrecord.fields.images.jpeg_codec import decompress
from ffrecord.reading.batch_forms import Array
from ffrecord.sources.beton.layout import JPEG, BetonField
from ffrecord.sources.pieces import as_values, gather_pieces

Rows = npt.NDArray[np.void]


def values(field: BetonField, rows: Rows, pieces: list[Array], decode: bool) -> list[Any]:
    """Return the values of a field in k samples.

    Args:
        rows: [k], their metadata.
        pieces: bytes of each value in the pages; empty for a field that has none there.
        decode: decode JPEG images to arrays; otherwise they stay bytes.

    Raises:
        FormatError: a value is invalid; .args[0] begins with the place of the sample in the batch.
    """
    column = rows[field.column]
    if field.kind in ("int", "float"):
        return list(column.tolist())
    if not field.has_data:
        return list(column)
    found = []
    for place, piece in enumerate(pieces):
        try:
            found.append(_value(field, column[place], piece, decode))
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{place}: field {field.name!r}: {error}") from None
    return found


def _value(field: BetonField, said: Any, piece: Array, decode: bool) -> Any:
    if field.kind == "bytes":
        return piece.tobytes()
    if field.dtype is not None:
        return as_values(piece[None], field.dtype, field.shape)[0].copy()
    if field.kind == "json":
        text, end, _ = piece.tobytes().partition(b"\0")
        if not end:
            raise FormatError(f"its {len(text)} bytes of JSON do not end with a NUL byte")
        return json.loads(text.decode())
    shape = (int(said["height"]), int(said["width"]), 3)
    if said["mode"] != JPEG:
        return piece.reshape(shape)
    if not decode:
        return piece.tobytes()
    image = decompress(piece.data, grey=False)
    if image.shape != shape:
        raise FormatError(f"its JPEG has shape {image.shape}, its metadata says {shape}")
    return image


def column(field: BetonField, rows: Rows, data: Array, starts: npt.NDArray[np.int64]) -> npt.NDArray[Any] | None:
    """Return the values of a field in k samples as one array [k, ...] if they have one size, else None.

    Args:
        rows: [k], their metadata.
        data: bytes of all samples, packed.
        starts: int64 [k], start of each value in `data`.
    """
    said = rows[field.column]
    if not field.has_data:
        return np.ascontiguousarray(said)
    if field.dtype is not None:
        return as_values(gather_pieces(data, starts, field.size), field.dtype, field.shape)
    if field.kind == "image" and len(rows) and (said["mode"] != JPEG).all():
        width, height = said["width"][0], said["height"][0]
        if (said["width"] == width).all() and (said["height"] == height).all():
            shape = (int(height), int(width), 3)
            return gather_pieces(data, starts, shape[0] * shape[1] * 3).reshape(-1, *shape)
    return None
