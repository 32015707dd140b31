"""Fields around another field: values that may be missing, and lists of lengths that differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import KINDS, Encoded, Field, mismatch, register
from ffrecord.fields.spec import field_from_spec, field_spec
from ffrecord.system.values import describe, describe_wrong

DEPTH_MAX = 8  # fields around each other


@dataclass(frozen=True, repr=False)
class OuterField(Field):
    """A field around another one, whose values are not tensors."""

    inner: Field

    def __post_init__(self) -> None:
        _check_inner(self.inner)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    def _decode_inner(self, data: memoryview) -> Any:
        """Decode the value of `inner` in `data`.

        Raises:
            FormatError: `data` is not a value of `inner`, or has another size.
        """
        fixed = self.inner.fixed
        # Checked here, since fields of fixed size rely on it.
        if fixed is not None and len(data) != fixed.size:
            raise FormatError(f"the value has {len(data)} bytes, expected {fixed.size} for {self.inner!r}")
        return self.inner.decode(data)

    def spec(self) -> dict[str, Any]:
        return {"inner": field_spec(self.inner)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "OuterField":
        return cls(**{**spec, "inner": _inner_from_spec(spec)})


def _check_inner(inner: Any) -> None:
    """Check that a field may hold values of `inner`.

    Raises:
        TypeError: `inner` is not a field, or gives tensors, which batches could not tell from arrays.
        ValueError: `inner` is not registered, or there are more than DEPTH_MAX fields around each other.
    """
    if not isinstance(inner, Field):
        raise TypeError(describe_wrong("inner", inner, "a Field"))
    # A field that cannot be read back must not be written.
    if KINDS.get(inner.kind) is not type(inner):
        raise ValueError(f"inner is {inner!r}, expected a registered field")
    if inner.torch_dtype is not None:
        raise TypeError(f"inner is {inner!r}, whose values are tensors; use NDArrayField")
    depth, each = 1, inner
    # Bounded: a chain from a file could be endless.
    while isinstance(getattr(each, "inner", None), Field):
        depth, each = depth + 1, each.inner  # type: ignore[attr-defined]
    if depth > DEPTH_MAX:
        raise ValueError(f"inner is {depth} fields deep, expected at most {DEPTH_MAX}")


def _inner_from_spec(spec: Mapping[str, Any]) -> Field:
    """Return the inner field of a `spec`, in which anything may be wrong.

    Raises:
        FormatError, TypeError, ValueError, OverflowError, LookupError: `field_from_spec` refuses the inner field.
        ValueError: there are too many fields around each other; found before any field is made.
    """
    depth, each = 0, spec
    # Counted before any field is made: each may allocate something.
    while isinstance(each.get("inner"), Mapping):
        depth, each = depth + 1, each["inner"]
        if depth > DEPTH_MAX:
            raise ValueError(f"inner is more than {DEPTH_MAX} fields deep, expected at most {DEPTH_MAX}")
    if depth == 0:
        raise ValueError(f"inner is {describe(spec.get('inner'))}, expected a field")
    return field_from_spec(spec["inner"])


MISSING, PRESENT = b"\0", b"\1"


@register
@dataclass(frozen=True, repr=False)
class OptionalField(OuterField):
    """Values of another field, or None. They have varying size even if `inner` has a fixed size; batches return a list.

    Args:
        inner: any registered field whose values are not tensors.

    Raises:
        TypeError: `inner` is not a field, or gives tensors.
        ValueError: `inner` is not registered, or there are more than 8 fields around each other.
    """

    kind: ClassVar[str] = "optional"

    @property
    def expects(self) -> str:
        return f"{self.inner.expects}, or None"

    def encode(self, value: Any) -> Encoded:
        # One byte in front tells None from a value, also from an empty one.
        return MISSING if value is None else PRESENT + self.inner.encode(value)

    def decode(self, data: memoryview) -> Any:
        if data[:1] == PRESENT:
            return self._decode_inner(data[1:])
        # Exactly one byte; anything behind it would be lost.
        if data != MISSING:
            begins = f"the value has {len(data)} bytes and begins with {bytes(data[:1])!r}"
            raise FormatError(f"{begins}, expected {PRESENT!r} and a value, or {MISSING!r} alone")
        return None


NUMBER = np.dtype("<u8")


@register
@dataclass(frozen=True, repr=False)
class ListField(OuterField):
    """Lists of any number of values that `inner` holds. Batches return a list.

    Args:
        inner: any registered field whose values are not tensors.

    Raises:
        TypeError: `inner` is not a field, or gives tensors.
        ValueError: `inner` is not registered, or there are more than 8 fields around each other.
    """

    kind: ClassVar[str] = "list of"

    @property
    def expects(self) -> str:
        return f"a list in which each item is {self.inner.expects}"

    def encode(self, value: Any) -> Encoded:
        if not isinstance(value, list):
            raise TypeError(mismatch(self, value))
        items = [self._item(place, each) for place, each in enumerate(value)]
        # The number of items, then the size of each.
        sizes = np.array([len(items), *map(len, items)], NUMBER)
        return sizes.tobytes() + b"".join(items)

    def _item(self, place: int, value: Any) -> bytes:
        try:
            # Views are copied: the field may use their memory for the next item.
            return bytes(self.inner.encode(value))
        except (TypeError, ValueError) as error:
            # Some types, such as UnicodeEncodeError, are not made of a text alone.
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(f"item {place}: {error}") from error

    def decode(self, data: memoryview) -> list[Any]:
        # Compared with the bytes that are there before anything is allocated.
        count = int.from_bytes(data[: NUMBER.itemsize], "little")
        start = NUMBER.itemsize * (1 + count)
        if len(data) < NUMBER.itemsize or start > len(data):
            raise FormatError(
                f"the list of {count} items has {len(data)} bytes, expected at least {start} for their sizes"
            )
        found: list[Any] = []
        at = start
        for size in np.frombuffer(data[NUMBER.itemsize : start], NUMBER).tolist():
            # Each size against what is left: sums of such numbers could overflow.
            if size > len(data) - at:
                raise FormatError(f"item {len(found)} of {count} has {size} bytes, but only {len(data) - at} are left")
            found.append(self._decode_inner(data[at : at + size]))
            at += size
        # Every byte has a meaning.
        if at != len(data):
            raise FormatError(
                f"the list of {count} items has {len(data) - at} bytes after its last item, expected none"
            )
        return found
