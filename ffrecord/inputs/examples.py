"""Examples of TFRecord files, with a column for each feature."""

import logging
from collections.abc import Sequence
from typing import Any

from ffrecord.errors import FFRecordError, FormatError, name_files
from ffrecord.inputs.columns import ColumnFacts, SampleColumns, choose_columns
from ffrecord.inputs.stores import StoreSamples, as_python, probe_indices, read_probes
from ffrecord.reading.store import Store
from ffrecord.sources.tfrecord.examples import ExampleError, ExampleParser, FeatureKindError, infer
from ffrecord.sources.tfrecord.examples_infer import describe, first_list

_log = logging.getLogger("ffrecord")


class ExampleDataset(StoreSamples):
    """The examples of a store, parsed into the features that some of them show.

    Args:
        store: store whose records are Examples.
        parser: parser of the records.
        columns: columns of the result.
    """

    def __init__(self, store: Store, parser: ExampleParser, columns: SampleColumns) -> None:
        super().__init__(store)
        self.columns, self._parser = columns, parser

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        records = self.store.read(indices)
        try:
            for place, record in enumerate(records):
                self._check_features(indices[place], place, record)
            samples = self._parser.decode(records)
        except ExampleError as error:
            index = indices[error.index or 0]
            raise error.of_record(index, self._name(index)) from None
        return [self.columns.prepare(_as_python_sample(sample)) for sample in samples]

    def _check_features(self, index: int, place: int, record: Any) -> None:
        """Raise if a record has a feature that no probed example had: parsers skip unknown features, so it would be
        lost.
        """
        facts = describe(record, place)
        # A feature that has no value of any kind is missing: TFX writes it so.
        unknown = {name for name, held in facts.items() if any(kind for kind, _ in held)} - self._parser.features.keys()
        found = f"the feature {min(unknown)!r}" if unknown else ""
        steps = first_list(record)
        if steps is not None:
            found = f"the list {steps!r} of a SequenceExample"
        if found:
            raise FormatError(
                f"{self._name(index)}: it has {found}, but no example that was looked at has it; "
                'pass fields={"data": BytesField()} to keep examples as bytes'
            )

    def _name(self, index: int) -> str:
        path, local = self.store.locate(index)
        return f"{path}: record {local}"


def open_examples(store: Store, skips: bool = False) -> ExampleDataset | None:
    """Return the records of a store as examples; None if they are none, or no fields store them, as for
    SequenceExamples.

    Args:
        skips: as for `StoreDataset`.

    Raises:
        FeatureKindError: a feature is of two kinds in two records.
    """
    found = read_probes(probe_indices(store), lambda indices: zip(indices, store.read(indices), strict=True), skips)
    if not found:
        return None
    indices, records = zip(*found, strict=True)
    try:
        parser = ExampleParser(infer(records))
    except FeatureKindError as error:
        index = indices[error.index or 0]
        path, local = store.locate(index)
        raise FeatureKindError(
            f"{path}: record {local}: feature {error.key!r} holds {error.found} values, but {error.expected} values in "
            "other records, and a column has one kind: pass features= to the reader, or "
            'fields={"data": BytesField()} to keep examples as bytes',
            key=error.key,
            index=index,
            found=error.found,
            expected=error.expected,
        ) from None
    except ExampleError as error:
        if error.index and error.key is None:
            _log.warning("%s: %s, so all records are stored as bytes", name_files(store.fnames), error)
        return None
    try:
        samples = [_as_python_sample(sample) for sample in parser.decode(records)]
        return ExampleDataset(store, parser, choose_columns(samples, None, ColumnFacts()))
    except (FFRecordError, TypeError, ValueError) as error:
        _log.warning(
            "%s: no columns can hold these examples, so they are stored as bytes: %s", name_files(store.fnames), error
        )
        return None


def _as_python_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: as_python(value) for name, value in sample.items()}
