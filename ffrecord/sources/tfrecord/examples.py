"""tf.train.Example without TensorFlow: records → columns of a batch, in one call without the GIL.

    parser = ExampleParser({"image": FixedFeature("uint8", (4, 4, 3)), "label": FixedFeature("int64")})
    columns = parser.parse_batch(*reader.read_packed(indices))

The semantics are those of protocol buffers. If a key repeats, the last entry counts; if a feature has several kinds,
the last one counts. Lists may be packed or not. Unknown fields are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples_batch import Column, bytes_of, check_arguments, column, pack, row, rows_memory
from ffrecord.sources.tfrecord.examples_encode import encode_batch, encode_example
from ffrecord.sources.tfrecord.examples_errors import (
    ExampleError,
    FeatureCountError,
    FeatureKindError,
    MissingFeatureError,
    error_of,
)
from ffrecord.sources.tfrecord.examples_features import (
    Features,
    FixedFeature,
    Ragged,
    RaggedStrings,
    VarFeature,
    compile_features,
    counts_bytes,
)
from ffrecord.sources.tfrecord.examples_infer import infer
from ffrecord.writing.file_writer import whole_number

__all__ = [
    "ExampleError",
    "ExampleParser",
    "FeatureCountError",
    "FeatureKindError",
    "FixedFeature",
    "MissingFeatureError",
    "Ragged",
    "RaggedStrings",
    "VarFeature",
    "decoder",
    "encode_batch",
    "encode_example",
    "infer",
]


class ExampleParser:
    """A parser of serialized `tf.train.Example` messages. Threads can share it, and it can be pickled.

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
