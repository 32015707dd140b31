"""Field of lists whose lengths differ between samples, for values that JSON does not hold."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import Encoded, mismatch, register
from ffrecord.fields.inner import OuterField

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
        sizes = np.array([len(items), *map(len, items)], NUMBER)
        return sizes.tobytes() + b"".join(items)

    def _item(self, place: int, value: Any) -> bytes:
        try:
            return bytes(self.inner.encode(value))
        except (TypeError, ValueError) as error:
            raise type(error)(f"item {place}: {error}") from None

    def decode(self, data: memoryview) -> list[Any]:
        count = int.from_bytes(data[: NUMBER.itemsize], "little")
        start = NUMBER.itemsize * (1 + count)
        if len(data) < NUMBER.itemsize or start > len(data):
            raise FormatError(
                f"the list of {count} items has {len(data)} bytes, expected at least {start} for their sizes"
            )
        found: list[Any] = []
        at = start
        for size in np.frombuffer(data[NUMBER.itemsize : start], NUMBER).tolist():
            if size > len(data) - at:
                raise FormatError(f"item {len(found)} of {count} has {size} bytes, but only {len(data) - at} are left")
            found.append(self._decode_inner(data[at : at + size]))
            at += size
        if at != len(data):
            raise FormatError(
                f"the list of {count} items has {len(data) - at} bytes after its last item, expected none"
            )
        return found
