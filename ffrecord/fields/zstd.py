"""Field of values of another field, compressed with Zstandard."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.fields.field import KINDS, Encoded, Field, check_range, register
from ffrecord.fields.shapes import CHECKED, check_items
from ffrecord.fields.spec import field_from_spec, field_spec
from ffrecord.system.requirements import require
from ffrecord.system.values import describe, describe_wrong

CONTENT_MAX = 1 << 30  # bytes of a value before compression
CONTENT_PER_BYTE = 1 << 15  # a block has at least 4 bytes, and expands to at most 128 KiB

_contexts = threading.local()  # kept: making a context takes 25 times as long as compressing a small value


@register
@dataclass(frozen=True, repr=False)
class ZstdField(Field):
    """Values of another field, each compressed with Zstandard. They have varying size even if `inner` has a fixed size.

    Args:
        inner: any registered field except another ZstdField.
        level: in [1, 22]. Higher is smaller and slower to write; reading does not depend on it. From 20 on, writing
            takes hundreds of megabytes.

    The bytes depend on the value, the level and the release of Zstandard only, so every process writes the same.

    Raises:
        TypeError: `inner` is not a field, or `level` is not an int.
        ValueError: `inner` is not registered, or is a ZstdField itself; or `level` is out of range.
    """

    kind: ClassVar[str] = "zstd"
    inner: Field
    level: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Field):
            raise TypeError(describe_wrong("inner", self.inner, "a Field"))
        # Compressing twice only costs time.
        if KINDS.get(self.inner.kind) is not type(self.inner) or isinstance(self.inner, ZstdField):
            raise ValueError(f"inner is {self.inner!r}, expected a registered field that is not compressed")
        check_range("level", self.level, 1, 22)

    def __repr__(self) -> str:
        return f"ZstdField({self.inner!r}, level={self.level})"

    @property
    def expects(self) -> str:
        return self.inner.expects

    @property
    def torch_dtype(self) -> str | None:
        return self.inner.torch_dtype

    def encode(self, value: Any) -> Encoded:
        content = self.inner.encode(value)
        # The same limit as in reading.
        if len(content) > CONTENT_MAX:
            raise ValueError(f"the value has {len(content)} bytes before compression, expected at most {CONTENT_MAX}")
        compressed: bytes = _compressor(self.level).compress(content)
        return compressed

    def decode(self, data: memoryview) -> Any:
        return self.inner.decode(memoryview(self._content(data)))

    def collect(self, payloads: Sequence[memoryview]) -> Any:
        fixed = self.inner.fixed
        if fixed is None:
            return [self.decode(payload) for payload in payloads]
        # Contents of one size are one block of memory, and one column.
        contents = [self._content(payload) for payload in payloads]
        column = np.empty((len(contents), *fixed.shape), fixed.dtype)
        # One copy of all values.
        column.reshape(-1).view(np.uint8).data[:] = b"".join(contents)
        if fixed.dtype.kind in CHECKED:
            check_items(column)
        return self.inner.column(column)

    def _content(self, data: memoryview) -> bytes:
        zstandard = _zstandard()
        try:
            # The frame states its size, which is compared before it is unpacked.
            size = zstandard.get_frame_parameters(data).content_size
            self._check_content(size, len(data))
            # Bytes behind the frame would be lost.
            content: bytes = _decompressor().decompress(data, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise FormatError(f"the value of {len(data)} bytes is not a Zstandard frame: {error}") from error
        if len(content) != size:  # zstandard 0.22 returns nothing for a skippable frame
            raise FormatError(f"the Zstandard frame of {len(data)} bytes holds {len(content)} bytes, expected {size}")
        return content

    def _check_content(self, size: int, compressed: int) -> None:
        fixed = self.inner.fixed
        if fixed is not None and size != fixed.size:
            raise FormatError(f"the Zstandard frame holds {size} bytes, expected {fixed.size} for {self.inner!r}")
        limit = min(CONTENT_MAX, CONTENT_PER_BYTE * compressed)
        if size > limit:  # 2**64 - 1 stands for an unknown size
            raise FormatError(f"the Zstandard frame of {compressed} bytes holds {size}, expected at most {limit}")

    def spec(self) -> dict[str, Any]:
        return {"inner": field_spec(self.inner), "level": self.level}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> "ZstdField":
        if not isinstance(spec.get("inner"), Mapping) or spec["inner"].get("kind") == cls.kind:
            raise ValueError(f"inner is {describe(spec.get('inner'))}, expected a field that is not compressed")
        return cls(**{**spec, "inner": field_from_spec(spec["inner"])})


def same_bytes(field: Field, other: Field) -> bool:
    """Tell whether `field` and `other` have the same kind and layout, so that one reads the bytes of the other."""
    if isinstance(field, ZstdField) and isinstance(other, ZstdField):
        # Only what is inside counts: any level reads any other.
        return same_bytes(field.inner, other.inner)
    return field.kind == other.kind and field.fixed == other.fixed


def _zstandard() -> Any:
    return require("zstandard", "zstd", "a compressed field")


def _compressor(level: int) -> Any:
    # A context serves one thread at a time, so each thread has its own.
    known = vars(_contexts).setdefault("compressors", {})
    if level not in known:
        known[level] = _zstandard().ZstdCompressor(level=level)
    return known[level]


def _decompressor() -> Any:
    if not hasattr(_contexts, "decompressor"):
        _contexts.decompressor = _zstandard().ZstdDecompressor()
    return _contexts.decompressor
