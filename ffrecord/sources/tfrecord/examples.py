"""tf.train.Example without TensorFlow: records → columns of a batch, in one call without the GIL.

    parser = ExampleParser({"image": FixedFeature("uint8", (4, 4, 3)), "label": FixedFeature("int64")})
    columns = parser.parse_batch(*reader.read_packed(indices))

Semantics of protocol buffers: of a key that comes again the last entry counts, of several kinds in one feature the last
one; lists may be packed or not; unknown fields are skipped.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError
from ffrecord.sources.tfrecord import _examples
from ffrecord.sources.tfrecord.examples_batch import Column, bytes_of, checked, column, packed, row, rows_memory
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
    counts_bytes,
    wanted,
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
    """Parses serialized `tf.train.Example` messages; usable by threads, pickles.

    Args:
        features: name → `FixedFeature` or `VarFeature`. What an example has besides is skipped unseen.

    Raises:
        ArgumentError: no such mapping.
    """

    def __init__(self, features: Features) -> None:
        self.features: Features = dict(features)
        self._wanted = wanted(self.features)

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
        """Columns of k examples, without a Python object for each, but for fixed strings.

        Args:
            data: uint8, or any buffer: the records.
            offsets: int64 [k + 1], record i is data[offsets[i]:offsets[i + 1]]; as `read_packed` gives both.
            into: arrays for the rows of fixed features of numbers, C-ordered [>= k, *shape]; those not named are made.
                After an error what they hold is undefined.
            num_threads: that share the work, at most, > 0; one for each 64 KiB of records is used.

        Returns:
            By name, in the order of `features`: fixed int64, float32 or uint8 [k, *shape]; fixed strings as an object
            array [k, *shape] of `bytes`; `Ragged` or `RaggedStrings` for variable ones.

        Raises:
            MissingFeatureError, FeatureKindError, FeatureCountError: an example is not as asked; names the key, the
                example and both numbers. Of the first bad example, whatever the number of threads.
            ExampleError: a record that is no Example; names it and the byte.
            ArgumentError: offsets that descend or leave `data`, an array of `into` that does not fit; `num_threads`.
        """
        if whole_number("num_threads", num_threads) < 1:
            raise ArgumentError(f"num_threads is {num_threads}, expected > 0")
        data, offsets = checked(data, offsets)
        k = len(offsets) - 1
        memory = rows_memory(self.features, k, into or {})
        try:
            results = _examples.parse(self._wanted, data, offsets, [bytes_of(each) for each in memory], num_threads)
        except _examples.Fault as fault:
            raise error_of(fault, self._wanted.keys.names, counts_bytes(self.features)) from None
        parts = zip(self.features.items(), memory, results, strict=True)
        return {key: column(feature, k, each, result) for (key, feature), each, result in parts}

    def parse(self, record: Any, *, into: Mapping[str, npt.NDArray[Any]] | None = None) -> dict[str, Any]:
        """One example, of any buffer: row 0 of a batch of it, see `samples`. Raises as `parse_batch` does."""
        columns = self.parse_batch(*packed([record]), into=into)
        return {key: row(each, 0) for key, each in columns.items()}

    def samples(self, data: Any, offsets: Any, *, num_threads: int = 1) -> list[dict[str, Any]]:
        """k examples, each a dict of its own: the arguments, and the errors, of `parse_batch`.

        Returns:
            Rows of the columns: arrays of the feature's shape (views of the batch), numbers of numpy or `bytes` where
            it is (); 1-D arrays for variable features, of strings an object array of `bytes`.
        """
        columns = self.parse_batch(data, offsets, num_threads=num_threads)
        count = len(np.asarray(offsets)) - 1
        return [{key: row(each, i) for key, each in columns.items()} for i in range(count)]

    def decode(self, records: Sequence[Any]) -> list[dict[str, Any]]:
        """The same of records that lie anywhere: a sequence of buffers."""
        return self.samples(*packed(records))


def decoder(features: Features | str | ExampleParser, probe: Callable[[], Sequence[Any]]) -> ExampleParser:
    """The parser that a reader's `features=` asks for.

    Args:
        features: what `ExampleParser` takes, or a parser, or "infer".
        probe: some records of the file, for "infer".

    Raises:
        ArgumentError: another word, or nothing to infer from.
        ExampleError: "infer", and the records are no Examples.
    """
    if isinstance(features, ExampleParser):
        return features
    if not isinstance(features, str):
        return ExampleParser(features)
    if features != "infer":
        raise ArgumentError(f"features is {features!r}, expected 'infer' or a mapping of names to features")
    return ExampleParser(infer(probe()))
