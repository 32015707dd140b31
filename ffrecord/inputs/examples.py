"""Examples of TFRecord files, a column for each feature."""

import logging
from collections.abc import Sequence
from typing import Any

from ffrecord.errors import FFRecordError, FormatError, name_files
from ffrecord.inputs.columns import ColumnFacts, SampleColumns, chosen
from ffrecord.inputs.stores import OfStore, listed, probed, readable
from ffrecord.reading.store import Store
from ffrecord.sources.tfrecord.examples import ExampleError, ExampleParser, FeatureKindError, infer
from ffrecord.sources.tfrecord.examples_infer import describe, first_list

_log = logging.getLogger("ffrecord")


class ExampleDataset(OfStore):
    """Examples of a store, parsed into the features that some of them show.

    Args:
        store: its records are Examples.
        parser: of those.
        columns: of the result.
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
        return [self.columns.prepared(_listed(sample)) for sample in samples]

    def _check_features(self, index: int, place: int, record: Any) -> None:
        """A feature that no example showed before would be lost, as parsers skip what they were not told of."""
        facts = describe(record, place)
        # One that is there, but holds nothing of any kind, is missing: so TFX says it.
        unknown = {name for name, held in facts.items() if any(kind for kind, _ in held)} - self._parser.features.keys()
        found = f"feature {min(unknown)!r}" if unknown else ""
        steps = first_list(record)
        if steps is not None:
            found = f"list {steps!r} of a SequenceExample"
        if found:
            raise FormatError(
                f"{self._name(index)}: {found}, which the examples looked at do not have; "
                'fields={"data": BytesField()} keeps examples as they are'
            )

    def _name(self, index: int) -> str:
        path, local = self.store.locate(index)
        return f"{path}: record {local}"


def of_store(store: Store, skips: bool = False) -> ExampleDataset | None:
    """The records of a store as examples; None if they are none, or none that fields hold: SequenceExamples, too.

    Args:
        skips: as for `StoreDataset`.

    Raises:
        FeatureKindError: a feature is of two kinds in two records.
    """
    found = readable(probed(store), lambda indices: zip(indices, store.read(indices), strict=True), skips)
    if not found:
        return None
    indices, records = zip(*found, strict=True)
    try:
        parser = ExampleParser(infer(records))
    except FeatureKindError as error:
        index = indices[error.index or 0]
        path, local = store.locate(index)
        raise FeatureKindError(
            f"{path}: record {local}: feature {error.key!r} holds {error.found} values, and {error.expected} values in "
            "other records, but a column has one kind: give features= of the reader, or "
            'fields={"data": BytesField()}, which keeps examples as they are',
            key=error.key,
            index=index,
            found=error.found,
            expected=error.expected,
        ) from None
    except ExampleError as error:
        if error.index and error.key is None:
            _log.warning("%s: %s, so all records are kept as bytes", name_files(store.fnames), error)
        return None
    try:
        samples = [_listed(sample) for sample in parser.decode(records)]
        return ExampleDataset(store, parser, chosen(samples, None, ColumnFacts()))
    except (FFRecordError, TypeError, ValueError) as error:
        _log.warning("%s: no columns hold these examples, which are kept as bytes: %s", name_files(store.fnames), error)
        return None


def _listed(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: listed(value) for name, value in sample.items()}
