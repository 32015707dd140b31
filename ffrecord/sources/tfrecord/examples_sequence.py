"""tf.train.SequenceExample: features of the whole, and lists of features, one for each step."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples import ExampleParser
from ffrecord.sources.tfrecord.examples_batch import Column, checked, column, packed, row
from ffrecord.sources.tfrecord.examples_errors import error_of
from ffrecord.sources.tfrecord.examples_features import DTYPES, Feature, Features, FixedFeature, counts_bytes, wanted

__all__ = ["SequenceParser", "Steps"]


class Steps(NamedTuple):
    """The steps of all examples: those of example i are the rows from offsets[i] to offsets[i + 1].

    Attributes:
        rows: what a batch of s Examples has for such a feature: an array [s, *shape], `Ragged` or `RaggedStrings`.
        offsets: [k + 1] int64, from 0 to s.
    """

    rows: Column
    offsets: npt.NDArray[np.int64]


class SequenceParser:
    """Parses serialized `tf.train.SequenceExample` messages; usable by threads, pickles.

    Args:
        context: name → feature, of the whole sequence.
        lists: name → feature, of each step. A `VarFeature` may have another number of values in each.
        optional: names of lists that an example may lack: it has no steps then.

    Raises:
        ArgumentError: no such mappings; a list with a default, which steps do not have; an optional list that is none.
    """

    def __init__(self, context: Features, lists: Features, optional: Iterable[str] = ()) -> None:
        self.context = ExampleParser(context)
        self.lists: Features = dict(lists)
        self.optional = frozenset(optional)
        self._wanted = wanted(self.lists)
        for key, feature in self.lists.items():
            if isinstance(feature, FixedFeature) and feature.default is not None:
                raise ArgumentError(f"lists[{key!r}] has a default, expected none: see optional=")
        if unknown := self.optional - self.lists.keys():
            raise ArgumentError(f"optional has {sorted(unknown)}, expected names of lists: {', '.join(self.lists)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.context.features, self.lists, self.optional)

    def __repr__(self) -> str:
        return f"SequenceParser({self.context.features}, {self.lists})"

    def parse_batch(
        self, data: Any, offsets: Any, *, num_threads: int = 1
    ) -> tuple[dict[str, Column], dict[str, Steps]]:
        """Columns of the contexts, and the steps of the lists, of k examples: arguments and errors of
        `ExampleParser.parse_batch`; errors of a list name the step, too."""
        data, offsets = checked(data, offsets)
        context = self.context.parse_batch(data, offsets, num_threads=num_threads)
        try:
            found = _examples.parse_lists(
                self._wanted, data, offsets, num_threads, [key.encode() for key in self.optional]
            )
        except _examples.Fault as fault:
            raise error_of(fault, self._wanted.keys.names, counts_bytes(self.lists)) from None
        parts = zip(self.lists.items(), found, strict=True)
        return context, {key: _steps(feature, *each) for (key, feature), each in parts}

    def parse(self, record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """One example, of any buffer: its context as `ExampleParser.parse` gives it, and for each list the array
        [steps, *shape], or of a variable feature a list of 1-D arrays. Raises as `parse_batch` does."""
        context, lists = self.parse_batch(*packed([record]))
        values = {key: row(each, 0) for key, each in context.items()}
        return values, {key: _all_rows(each.rows) for key, each in lists.items()}


def _steps(feature: Feature, result: Any, offsets: npt.NDArray[np.int64]) -> Steps:
    count = int(offsets[-1])
    memory = None
    if isinstance(feature, FixedFeature) and feature.dtype != "string":
        memory = result.view(DTYPES[feature.dtype]).reshape(count, *feature.shape)
    return Steps(column(feature, count, memory, result), offsets)


def _all_rows(of: Column) -> Any:
    if isinstance(of, np.ndarray):
        return of
    offsets = of[-1]  # of rows, last in both
    return [row(of, i) for i in range(len(offsets) - 1)]
