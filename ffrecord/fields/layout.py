"""The place of each column in a record; encoding and decoding of one record.

    0                the values of the fixed-size columns, back to back in column order
    fixed_size       uint64 size of each other column, in column order
    head_size        the payloads of the other columns, back to back in column order; the last one ends the record

Integers are little-endian, and nothing is aligned. A record of only fixed-size columns is a row of a packed table, so
one strided view shows a batch of them.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import SIZE_MAX, Field
from ffrecord.system.values import describe

SIZE = np.dtype("<u8")

Column = tuple[str, Field]


class Slot(NamedTuple):
    """The place of a fixed-size column in every record.

    Attributes:
        offset: offset of its value from the start of the record, in bytes.
        size: size of its value in bytes.
        dtype: stored dtype of an element.
        shape: shape of a value.
    """

    offset: int
    size: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class RecordLayout:
    """The columns of a record and their places.

    Attributes:
        columns: (name, field) of each column, in the order of the values.
        slots: the Slot of each column, None if its size varies.
        variable: positions of the columns whose sizes vary.
        fixed_size: bytes of the fixed-size columns.
        head_size: bytes before the first payload; bytes of the whole record if no size varies.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        """Lay out `columns`.

        Raises:
            ValueError: together they are larger than SIZE_MAX.
        """
        self.columns = tuple(columns)
        self.slots, self.fixed_size = _place([field for _, field in columns])
        self.variable = tuple(i for i, slot in enumerate(self.slots) if slot is None)
        self.head_size = self.fixed_size + SIZE.itemsize * len(self.variable)
        # Compiled once, as each record needs it.
        self._sizes = struct.Struct(f"<{len(self.variable)}Q")

    def sizes(self, record: memoryview) -> tuple[int, ...]:
        """Return the sizes of the variable columns of `record`, which must fill it exactly.

        Raises:
            FormatError: they do not fill it; the message names the column.
        """
        # Longer records are fine only if something varies.
        if len(record) < self.head_size or (not self.variable and len(record) > self.head_size):
            raise FormatError(f"the record has {len(record)} bytes, expected {self._describe_size()}")
        sizes = self._sizes.unpack_from(record, self.fixed_size)
        # Python's ints cannot overflow, whatever the sizes are.
        if sum(sizes) + self.head_size != len(record):
            raise FormatError(self._describe_misfit(sizes, len(record)))
        return sizes

    def _describe_size(self) -> str:
        parts = [f"{name} {slot.size}" for (name, _), slot in zip(self.columns, self.slots, strict=True) if slot][:8]
        more = f"{self.head_size} or more" if self.variable else f"{self.head_size}"
        return f"{more} ({', '.join(parts) or 'no fixed-size column'}{', …' if len(parts) == 8 else ''})"

    def _describe_misfit(self, sizes: tuple[int, ...], size: int) -> str:
        left = size - self.head_size
        for position, each in zip(self.variable, sizes, strict=True):
            if each > left:
                column = column_label(*self.columns[position])
                return f"{column}: its size is {each}, but only {left} bytes of the record of {size} are left"
            left -= each
        return f"the record has {size} bytes, but its columns end at {size - left}"

    def encoder(self) -> Callable[[Sequence[Any]], bytes]:
        """Return a function from values to a record."""
        return _fixed_encoder(self) if not self.variable else _mixed_encoder(self, self._sizes)

    def decoder(self) -> Callable[[memoryview], list[Any]]:
        """Return a function from a record to values."""
        slots = zip(self.columns, self.slots, strict=True)
        places = [(field.decode, slot.offset, slot.offset + slot.size) for (_, field), slot in slots if slot]
        payloads = [(i, self.columns[i][1].decode) for i in self.variable]
        # Local names: each is looked up for each record.
        check, head_size, fixed_only = self.sizes, self.head_size, not self.variable

        def decode(record: memoryview) -> list[Any]:
            # Without columns that vary, the size alone is enough.
            if fixed_only and len(record) == head_size:
                return [get(record[start:stop]) for get, start, stop in places]
            sizes, at = check(record), head_size
            values = [get(record[start:stop]) for get, start, stop in places]
            for (position, get), size in zip(payloads, sizes, strict=True):
                values.insert(position, get(record[at : at + size]))  # positions ascend, so each value stays in place
                at += size
            return values

        return self._with_column_names(decode)

    def _with_column_names(self, decode: Callable[[memoryview], list[Any]]) -> Callable[[memoryview], list[Any]]:
        """Return `decode` with errors that name the column.

        After an error the record is decoded again, column by column. That is cheaper than tracking the column every
        time.
        """

        def decode_named(record: memoryview) -> list[Any]:
            try:
                return decode(record)
            except FormatError:
                self._blame(record)
                raise

        return decode_named

    def _blame(self, record: memoryview) -> None:
        sizes, at = iter(self.sizes(record)), self.head_size
        for (name, field), slot in zip(self.columns, self.slots, strict=True):
            start = slot.offset if slot else at
            stop = start + (slot.size if slot else next(sizes))
            at = at if slot else stop
            try:
                field.decode(record[start:stop])
            except FormatError as error:
                raise FormatError(f"{column_label(name, field)}: {error}") from error

    def explain(self, values: Sequence[Any]) -> None:
        """Raise the error that keeps `values` from being encoded, with the name of the column; return if there is none.

        Raises:
            TypeError, ValueError, OSError: errors of `Field.encode`.
        """
        for (name, field), slot, value in zip(self.columns, self.slots, values, strict=True):
            # A field of a user may raise for one value and return nonsense for another.
            try:
                encoded = field.encode(value)
                size = _size(field, encoded)
            except TypeError as error:
                raise TypeError(f"{name}: {error}") from error
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            except OSError as error:  # from a field that takes paths
                # A new OSError would lose its number, so it is made from the parts.
                raise OSError(error.errno, f"{name}: {error.strerror or error}", error.filename) from error
            # A field that lies about its size would shift all columns behind it.
            if slot and size != slot.size:
                raise ValueError(f"{name}: {field!r} encoded {size} bytes, expected its fixed size, {slot.size}")


def _size(field: Field, encoded: Any) -> int:
    """Return the bytes that a field encoded, after checking them: the field may be a user's."""
    try:
        view = memoryview(encoded)
    except TypeError:
        raise TypeError(f"{field!r}.encode returned {describe(encoded)}, expected bytes") from None
    # len() must count bytes, as the encoders below use it.
    if view.nbytes != len(encoded) or not view.c_contiguous:
        raise TypeError(f"{field!r}.encode returned {describe(encoded)}, expected flat bytes")
    return view.nbytes


def column_label(name: str, field: Field) -> str:
    """Return the name of a column and its field, for messages about bytes that the field does not decode."""
    return f"{name} ({type(field).__name__})"


def _place(fields: Sequence[Field]) -> tuple[tuple[Slot | None, ...], int]:
    slots: list[Slot | None] = []
    offset = 0
    for field in fields:
        fixed = field.fixed
        if fixed is not None:
            slots.append(Slot(offset, fixed.size, fixed.dtype, fixed.shape))
            offset += fixed.size
        else:
            slots.append(None)
    # The sizes of the others are part of the record.
    if offset > SIZE_MAX - SIZE.itemsize * len(fields):
        raise ValueError(f"records have {offset} bytes or more, expected at most {SIZE_MAX}")
    return tuple(slots), offset


def _fixed_encoder(layout: RecordLayout) -> Callable[[Sequence[Any]], bytes]:
    encoders = [field.encode for _, field in layout.columns]
    expected, explain = layout.fixed_size, layout.explain

    def encode(values: Sequence[Any]) -> bytes:
        try:
            # No `strict`, which costs time: the flattener has counted.
            record = b"".join([to_bytes(value) for to_bytes, value in zip(encoders, values)])  # noqa: B905  # same schema
        except (TypeError, ValueError, OSError):
            # The hot path carries no names, so find the column now.
            explain(values)
            raise
        if len(record) != expected:
            explain(values)
            raise ValueError(f"the record has {len(record)} bytes, its columns have {expected}")
        return record

    return encode


def _mixed_encoder(layout: RecordLayout, sizes: struct.Struct) -> Callable[[Sequence[Any]], bytes]:
    encoders = [(field.encode, slot is None) for (_, field), slot in zip(layout.columns, layout.slots, strict=True)]
    head_size, explain, pack = layout.head_size, layout.explain, sizes.pack

    def encode(values: Sequence[Any]) -> bytes:
        fixed: list[Any] = []
        payloads: list[Any] = []
        try:
            for (to_bytes, varies), value in zip(encoders, values):  # noqa: B905  # same schema
                (payloads if varies else fixed).append(to_bytes(value))
            # len() is right: `explain` refuses anything else below.
            lengths = list(map(len, payloads))
            record = b"".join([*fixed, pack(*lengths), *payloads])
        except (TypeError, ValueError, OSError):
            explain(values)
            raise
        expected = head_size + sum(lengths)
        if len(record) != expected:
            explain(values)
            raise ValueError(f"the record has {len(record)} bytes, its columns have {expected}")
        return record

    return encode
