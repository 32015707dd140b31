"""Values that are missing in some samples."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ffrecord.errors import FormatError
from ffrecord.fields.field import Encoded, register
from ffrecord.fields.inner import OuterField

MISSING, THERE = b"\0", b"\1"


@register
@dataclass(frozen=True, repr=False)
class OptionalField(OuterField):
    """What `inner` holds, or None. Of varying size, also where `inner` is not; its column is a list.

    Args:
        inner: any registered field whose values are no tensors.

    Raises:
        TypeError: `inner` is no field, or gives tensors.
        ValueError: `inner` is not registered, or one of more than 8 fields around each other.
    """

    kind: ClassVar[str] = "optional"

    @property
    def expects(self) -> str:
        return f"{self.inner.expects}, or None"

    def encode(self, value: Any) -> Encoded:
        return MISSING if value is None else THERE + self.inner.encode(value)

    def decode(self, data: memoryview) -> Any:
        if data[:1] == THERE:
            return self._decode_inner(data[1:])
        if data != MISSING:
            begins = f"{len(data)} bytes that begin with {bytes(data[:1])!r}"
            raise FormatError(f"{begins}, expected {THERE!r} and a value, or {MISSING!r}")
        return None
