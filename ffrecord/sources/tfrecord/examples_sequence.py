"""tf.train.SequenceExample: features of the whole sequence, and lists of features with one for each step."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples import ExampleParser
from ffrecord.sources.tfrecord.examples_batch import Column, check_arguments, column, pack, row
from ffrecord.sources.tfrecord.examples_errors import error_of
from ffrecord.sources.tfrecord.examples_features import (
    DTYPES,
    Feature,
    Features,
    FixedFeature,
    compile_features,
    counts_bytes,
)

__all__ = ["SequenceParser", "Steps"]


class Steps(NamedTuple):
    """The steps of all examples: the rows from offsets[i] to offsets[i + 1] are those of example i.

    Attributes:
        rows: column of a batch of s Examples for the feature: an array [s, *shape], `Ragged` or `RaggedStrings`.
        offsets: [k + 1] int64, from 0 to s.
    """

    rows: Column
    offsets: npt.NDArray[np.int64]


class SequenceParser:
    """A parser of serialized `tf.train.SequenceExample` messages. Threads can share it, and it can be pickled.

    Args:
        context: name → feature, of the whole sequence.
        lists: name → feature, of each step. A `VarFeature` may have another number of values in each step.
        optional: names of lists that an example may lack: then it has no steps.

    Raises:
        ArgumentError: they are not such mappings; a list has a default, which steps do not have; or an optional name is
            not that of a list.
    """

    def __init__(self, context: Features, lists: Features, optional: Iterable[str] = ()) -> None:
        self.context = ExampleParser(context)
        self.lists: Features = dict(lists)
        self.optional = frozenset(optional)
        self._wanted = compile_features(self.lists)
        for key, feature in self.lists.items():
            if isinstance(feature, FixedFeature) and feature.default is not None:
                raise ArgumentError(f"lists[{key!r}] has a default, expected none: name it in optional= instead")
        if unknown := self.optional - self.lists.keys():
            raise ArgumentError(f"optional has {sorted(unknown)}, expected names of lists: {', '.join(self.lists)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.context.features, self.lists, self.optional)

    def __repr__(self) -> str:
        return f"SequenceParser({self.context.features}, {self.lists})"

    def parse_batch(
        self, data: Any, offsets: Any, *, num_threads: int = 1
    ) -> tuple[dict[str, Column], dict[str, Steps]]:
        """Parse k examples into the columns of their contexts, and the steps of their lists.

        Arguments and errors are those of `ExampleParser.parse_batch`; errors of a list also name the step.
        """
        data, offsets = check_arguments(data, offsets)
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
        """Parse one example from any buffer.

        It returns the context as `ExampleParser.parse` does, and for each list the array [steps, *shape], or for a
        variable feature a list of 1-D arrays. Errors are those of `parse_batch`.
        """
        context, lists = self.parse_batch(*pack([record]))
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
    offsets = of[-1]  # the offsets of rows are last in both classes
    return [row(of, i) for i in range(len(offsets) - 1)]
