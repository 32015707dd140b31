"""Batches of samples that know their columns.

torch's loader asks a dataset for a list of samples and gives it to a collate function, which by default makes a tensor
of each column. This needs no samples: the records hold the columns. So `LazySamples` holds records, and
`ffrecord.torch.collate` takes the columns, unless something has looked at the samples before. Images that were decoded
are already rows of one tensor, which `collate` finds in `RowSamples`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord.fields import Schema
from ffrecord.torch.loading.columns import BatchColumns
from ffrecord.torch.tensors import as_tensor

__all__ = ["FIRST_TYPES", "LazySamples", "RowSamples", "SampleRecords", "as_plain"]


class SampleRecords(NamedTuple):
    """k records of one schema.

    Attributes:
        schema: schema of the records.
        data: uint8, the records back to back.
        offsets: int64 [k + 1]; record i is `data[offsets[i]:offsets[i + 1]]`.
        columns: the columns of the samples; None for all.
    """

    schema: Schema
    data: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]
    columns: BatchColumns | None = None

    def decode(self, stop: int) -> list[Any]:
        """Return the first `stop` samples."""
        if self.columns is not None:
            found = self.columns.records_from_packed(self.data, self.offsets[: stop + 1], np.arange(stop))
            return self.columns.samples(found, None)
        samples: list[Any] = self.schema.decode_batch(self.data, self.offsets[: stop + 1], tensor=as_tensor)
        return samples


# torch's default_collate chooses a function by the type of the first sample. These types lead to our function.


class FirstDict(dict[Any, Any]):
    """A dict that is the first sample of `LazySamples`. Copied or pickled, it is a plain one."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)


class FirstTuple(tuple[Any, ...]):
    """A tuple that is the first sample of `LazySamples`. Copied or pickled, it is a plain one."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return tuple, (list(self),)


class FirstList(list[Any]):
    """A list that is the first sample of `LazySamples`. Copied or pickled, it is a plain one."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)


FIRST_TYPES: dict[type, type] = {dict: FirstDict, tuple: FirstTuple, list: FirstList}
PLAIN_TYPES = {first: kind for kind, first in FIRST_TYPES.items()}


def as_plain(sample: Any) -> Any:
    """Return `sample` as a plain dict, tuple or list, if it is one of FIRST_TYPES."""
    kind = PLAIN_TYPES.get(type(sample))
    return sample if kind is None else kind(sample)


class _UndecodedItem:
    """The item that code finds if it does not ask `LazySamples` for its items, as some C code does."""

    def __repr__(self) -> str:
        return "<sample not yet decoded>"


UNDECODED = _UndecodedItem()


class LazySamples(list[Any]):
    """The list of the samples of some records. It is decoded when something looks at it, and is then like any list.

    Asking once for item 0 decodes only that one, because default_collate asks for it.

    Args:
        records: one or more records, of a schema whose samples are dicts, tuples or lists.

    Attributes:
        records: the records, or None after they were decoded.
        looked: True if item 0 was asked for.
    """

    __slots__ = ("_first", "looked", "records")

    def __init__(self, records: SampleRecords) -> None:
        super().__init__([UNDECODED] * (len(records.offsets) - 1))
        self.records: SampleRecords | None = records
        self.looked = False
        self._first: Any = None

    def decode(self) -> None:
        """Decode all samples; may be repeated. A sample that was handed out before is kept."""
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
        return list, (list(map(as_plain, self)),)


def _make_decoding(name: str) -> Callable[..., Any]:
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
    setattr(LazySamples, _name, _make_decoding(_name))


class RowSamples(list[Any]):
    """The list of samples whose images are rows of one tensor for each column.

    Its item 0 leads default_collate to our function, if it is a dict, tuple or list.
    """

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        kind = FIRST_TYPES.get(type(found)) if type(index) is int and index == 0 else None
        return found if kind is None else kind(found)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)
