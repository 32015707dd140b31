"""tf.train.Example without TensorFlow: records → columns of a batch, in one call without the GIL.

    parser = ExampleParser({"image": FixedFeature("uint8", (4, 4, 3)), "label": FixedFeature("int64")})
    columns = parser.parse_batch(*reader.read_packed(indices))

The semantics are those of protocol buffers. If a key repeats, the last entry counts; if a feature has several kinds,
the last one counts. Lists may be packed or not. Unknown fields are skipped.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples_batch import Column, bytes_of, check_arguments, column, pack, row, rows_memory
from ffrecord.sources.tfrecord.examples_encode import encode_batch, encode_example
from ffrecord.sources.tfrecord.examples_features import (
    DTYPES,
    KINDS,
    ExampleError,
    Feature,
    FeatureCountError,
    FeatureKindError,
    Features,
    FixedFeature,
    MissingFeatureError,
    Ragged,
    RaggedStrings,
    VarFeature,
    compile_features,
    counts_bytes,
    error_of,
)
from ffrecord.system.values import as_bytes, whole_number

DTYPES_OF_KINDS = {1: "string", 2: "float32", 3: "int64"}
Facts = dict[str, list[tuple[int, int]]]  # name → (kind, count of values) for each occurrence


def describe(record: Any, index: int = 0, lists: bool = False) -> Facts:
    """Describe one record: its features, or its lists of features with one pair for each step.

    Raises:
        ExampleError: it is not an Example.
    """
    try:
        return _examples.describe(np.frombuffer(as_bytes(record), np.uint8), 2 if lists else 1)
    except _examples.Fault as fault:
        # It looked at one record, and does not know its number.
        fault.row = index
        raise error_of(fault, ()) from None


def infer(records: Any) -> dict[str, Feature]:
    """Infer features from records, for an `ExampleParser` of a file without a description.

    A feature that each record has, with the same number of values, becomes a `FixedFeature`: of shape () for one value,
    and of (count,) for more. Every other feature becomes a `VarFeature`. Bytes become "string": the file does not
    contain shapes.

    Args:
        records: one record, as any buffer, or several. A fixed feature is a guess from these: more records, from all
            over the file, make the guess better.

    Returns:
        Name → feature, in the order of the first record; further names of later records follow.

    Raises:
        FeatureKindError: a feature has different kinds in two records.
        ExampleError: a record is not an Example; or it is a SequenceExample, whose lists would be lost.
        ArgumentError: there are no records.
    """
    facts = [describe_example(record, index) for index, record in enumerate(_several(records))]
    if not facts:
        raise ArgumentError("features cannot be inferred: there are no records")
    names = dict.fromkeys(name for each in facts for name in each)
    return {name: feature for name in names if (feature := _feature(name, facts)) is not None}


def first_list(record: Any) -> str | None:
    """Return the name of one of the record's lists; None for an Example, which has none.

    Parsers of Examples accept both.
    """
    try:
        return next(iter(describe(record, lists=True)), None)
    except ExampleError:
        return None  # the field with that number is something else, which every parser skips


def describe_example(record: Any, index: int = 0) -> Facts:
    """Describe one record by its features.

    Raises:
        ExampleError: it is not an Example; or it is a SequenceExample.
    """
    facts = describe(record, index)
    key = first_list(record)
    if key is not None:
        raise ExampleError(
            f"example {index} is a SequenceExample: it has the list {key!r}; read it with "
            "ffrecord.sources.SequenceParser",
            key=key,
            index=index,
        )
    return facts


def _several(records: Any) -> Sequence[Any]:
    # An array of objects has records in it; any other array is one record.
    single = isinstance(records, bytes | bytearray | memoryview) or (
        isinstance(records, np.ndarray) and records.dtype != object
    )
    return [records] if single else list(records)


def _feature(name: str, facts: list[Facts]) -> Feature | None:
    """Return the feature with a name; None if it has no values anywhere."""
    # (0, 0) is a feature without a kind and without values.
    found = [each.get(name, [(0, 0)]) for each in facts]
    kind = _kind(name, ([pair[0] for pair in pairs] for pairs in found))
    if kind == 0:
        return None
    counts = {pairs[0][1] for pairs in found}
    if len(counts) > 1 or 0 in counts:
        return VarFeature(DTYPES_OF_KINDS[kind])
    count = found[0][0][1]
    return FixedFeature(DTYPES_OF_KINDS[kind], () if count == 1 else (count,))


def _kind(name: str, kinds: Iterable[list[int]]) -> int:
    """Return the one kind that a feature has; 0 if it never has one."""
    known, since = 0, 0
    for index, each in enumerate(kinds):
        for kind in each:
            if kind and known and kind != known:
                has, before = KINDS[kind], KINDS[known]
                message = (
                    f"example {index}, feature {name!r}: it holds {has} values, but {before} values in example {since}"
                )
                raise FeatureKindError(message, key=name, index=index, found=has, expected=before)
            if kind and not known:
                known, since = kind, index
    return known


__all__ = [
    "ExampleError",
    "ExampleParser",
    "FeatureCountError",
    "FeatureKindError",
    "FixedFeature",
    "MissingFeatureError",
    "Ragged",
    "RaggedStrings",
    "SequenceParser",
    "Steps",
    "VarFeature",
    "decoder",
    "encode_batch",
    "encode_example",
    "infer",
]


class ExampleParser:
    """A parser of serialized `tf.train.Example` messages. Threads can share it, and it can be pickled.

    An entry of the map of features that also has an unknown field is read without that field; google.protobuf leaves
    the entry out.

    Args:
        features: name → `FixedFeature` or `VarFeature`. Other features of an example are skipped.

    Raises:
        ArgumentError: it is not such a mapping.
    """

    def __init__(self, features: Features) -> None:
        self.features: Features = dict(features)
        self._wanted = compile_features(self.features)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.features,)

    def __repr__(self) -> str:
        return f"ExampleParser({self.features})"

    def parse_batch(
        self,
        data: Any,
        offsets: Any,
        *,
        into: Mapping[str, npt.NDArray[Any]] | None = None,
        num_threads: int = 1,
    ) -> dict[str, Column]:
        """Parse k examples into columns, without a Python object for each example, except for fixed strings.

        Args:
            data: uint8, or any buffer: the records.
            offsets: int64 [k + 1], record i is data[offsets[i]:offsets[i + 1]]; `read_packed` returns both.
            into: arrays for the rows of fixed features of numbers, C-ordered [>= k, *shape]; missing ones are made.
                After an error their content is undefined.
            num_threads: most threads that share the work, > 0; there is at most one for each 64 KiB of records.

        Returns:
            Columns by name, in the order of `features`: fixed int64, float32 or uint8 [k, *shape]; fixed strings as an
            object array [k, *shape] of `bytes`; `Ragged` or `RaggedStrings` for variable features.

        Raises:
            MissingFeatureError, FeatureKindError, FeatureCountError: an example does not fit its feature; names the
                key, the example and both numbers. It is the first such example, for any number of threads.
            ExampleError: a record is not an Example; names it and the byte.
            ArgumentError: offsets descend or leave `data`, an array of `into` does not fit, or `num_threads` is
                invalid.
            ArgumentTypeError: offsets are not ints [k + 1].
        """
        if whole_number("num_threads", num_threads) < 1:
            raise ArgumentError(f"num_threads is {num_threads}, expected > 0")
        data, offsets = check_arguments(data, offsets)
        k = len(offsets) - 1
        memory = rows_memory(self.features, k, into or {})
        try:
            results = _examples.parse(self._wanted, data, offsets, [bytes_of(each) for each in memory], num_threads)
        except _examples.Fault as fault:
            raise error_of(fault, self._wanted.keys.names, counts_bytes(self.features)) from None
        parts = zip(self.features.items(), memory, results, strict=True)
        return {key: column(feature, k, each, result) for (key, feature), each, result in parts}

    def parse(self, record: Any, *, into: Mapping[str, npt.NDArray[Any]] | None = None) -> dict[str, Any]:
        """Parse one example from any buffer. The result is a row of `samples`; errors are those of `parse_batch`."""
        columns = self.parse_batch(*pack([record]), into=into)
        return {key: row(each, 0) for key, each in columns.items()}

    def samples(self, data: Any, offsets: Any, *, num_threads: int = 1) -> list[dict[str, Any]]:
        """Parse k examples, each into a dict. Arguments and errors are those of `parse_batch`.

        Returns:
            Rows of the columns: arrays of the feature's shape (views of the batch), numpy numbers or `bytes` if the
            shape is (); 1-D arrays for variable features, for strings an object array of `bytes`.
        """
        columns = self.parse_batch(data, offsets, num_threads=num_threads)
        count = len(np.asarray(offsets)) - 1
        return [{key: row(each, i) for key, each in columns.items()} for i in range(count)]

    def decode(self, records: Sequence[Any]) -> list[dict[str, Any]]:
        """Parse records from a sequence of buffers, each into a dict, as `samples` does."""
        return self.samples(*pack(records))


def decoder(features: Features | str | ExampleParser, probe: Callable[[], Sequence[Any]]) -> ExampleParser:
    """Return the parser for the `features` argument of a reader.

    Args:
        features: the argument of `ExampleParser`, or a parser, or "infer".
        probe: returns some records of the file, for "infer".

    Raises:
        ArgumentError: another word, or there are no records to infer from.
        ExampleError: "infer", and the records are not Examples.
    """
    if isinstance(features, ExampleParser):
        return features
    if not isinstance(features, str):
        return ExampleParser(features)
    if features != "infer":
        raise ArgumentError(f"features is {features!r}, expected 'infer' or a mapping of names to features")
    return ExampleParser(infer(probe()))


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
