"""A batch of samples that is decoded when somebody looks at it.

torch's loader asks a dataset for a list of samples and hands it to a collate function, which by default makes a tensor
of each column. It need not have samples for that: the records hold the columns. So the list is made of records, and
`ffrecord.torch.collate` takes the columns, where nobody has looked at the samples before.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.fields import Schema
from ffrecord.torch.tensors import as_tensor

__all__ = ["FIRST_TYPES", "LazySamples", "SampleRecords", "plain"]


class SampleRecords(NamedTuple):
    """k records of one schema.

    Attributes:
        schema: theirs.
        data: uint8, the records back to back.
        offsets: int64 [k + 1], where they begin and end in `data`.
    """

    schema: Schema
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    def decode(self, stop: int) -> list[Any]:
        """The first `stop` samples."""
        samples: list[Any] = self.schema.decode_batch(self.data, self.offsets[: stop + 1], tensor=as_tensor)
        return samples


# torch's default_collate chooses what to do by the type of the first sample. By these it finds its way to us.


class FirstDict(dict[Any, Any]):
    """A dict, the first sample of `LazySamples`. Copied or pickled, it is a plain one."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class FirstTuple(tuple[Any, ...]):
    """A tuple, likewise."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return tuple, (list(self),)


class FirstList(list[Any]):
    """A list, likewise."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


FIRST_TYPES: dict[type, type] = {dict: FirstDict, tuple: FirstTuple, list: FirstList}
PLAIN_TYPES = {first: kind for kind, first in FIRST_TYPES.items()}


def plain(sample: Any) -> Any:
    """`sample` as a plain dict, tuple or list, if it is a first one."""
    kind = PLAIN_TYPES.get(type(sample))
    return sample if kind is None else kind(sample)


class _Undecoded:
    """What code that does not ask `LazySamples` for its items, as little C code does, finds instead of them."""

    def __repr__(self) -> str:
        return "<sample not yet decoded>"


UNDECODED = _Undecoded()


class LazySamples(list[Any]):
    """The list of the samples of some records: decoded when it is looked at, and from then on like any list.

    Asking for item 0, once, decodes that one only, since default_collate does so.

    Args:
        records: one or more, of a schema whose samples are dicts, tuples or lists.

    Attributes:
        records: those, or None since they were decoded.
        looked: whether item 0 was asked for.
    """

    __slots__ = ("_first", "looked", "records")

    def __init__(self, records: SampleRecords) -> None:
        super().__init__([UNDECODED] * (len(records.offsets) - 1))
        self.records: SampleRecords | None = records
        self.looked = False
        self._first: Any = None

    def decode(self) -> None:
        """Decode all samples; may be repeated. One that was handed out before is kept."""
        records, self.records = self.records, None
        if records is None:
            return
        try:
            samples = records.decode(len(self))
        except BaseException:
            self.records = records
            raise
        if self.looked:
            samples[0] = self._first
        super().__setitem__(slice(None), samples)

    def __getitem__(self, index: Any) -> Any:
        if self.records is not None and not self.looked and type(index) is int and index == 0:
            (first,) = self.records.decode(1)
            self._first, self.looked = FIRST_TYPES[type(first)](first), True
            return self._first
        self.decode()
        return super().__getitem__(index)

    def __radd__(self, other: list[Any]) -> list[Any]:
        return [*other, *self]

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(map(plain, self)),)


def _decoding(name: str) -> Callable[..., Any]:
    method = getattr(list, name)

    def call(self: LazySamples, *args: Any, **kwargs: Any) -> Any:
        self.decode()
        return method(self, *args, **kwargs)

    call.__name__, call.__doc__ = name, method.__doc__
    return call


for _name in (
    *("__iter__", "__reversed__", "__contains__", "__repr__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *("__add__", "__iadd__", "__mul__", "__rmul__", "__imul__", "__setitem__", "__delitem__"),
    *("append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"),
):
    setattr(LazySamples, _name, _decoding(_name))
