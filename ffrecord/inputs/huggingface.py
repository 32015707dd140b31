"""Rows of Hugging Face datasets by index, as they are stored: images are not decoded."""

import sys
from collections.abc import Sequence
from typing import Any

from ffrecord.errors import ArgumentError, FormatError, counted
from ffrecord.inputs.arrow_types import depends_on_nulls
from ffrecord.inputs.arrow_values import RowError, count_missing
from ffrecord.inputs.columns import ColumnFacts, choose_columns
from ffrecord.inputs.rows import TableRows
from ffrecord.inputs.stores import spread_indices

STORED = (None, "arrow")  # formats that return the stored values


class HuggingFaceDataset:
    """The rows of a `datasets.Dataset`, as they are stored. It pickles like that dataset.

    Args:
        dataset: dataset of the user, with the columns that its format selects.
        fields: fields from the user, see `columns.choose_columns`.

    Attributes:
        columns: columns of the result.
    """

    def __init__(self, dataset: Any, fields: Any = None) -> None:
        said = dataset.format
        if not said["output_all_columns"] and said["columns"] != dataset.column_names:
            dataset = dataset.select_columns(said["columns"])
        self._dataset = dataset.with_format("arrow")
        table = self._dataset.data
        kinds = self._dataset.features.arrow_schema
        missing = {each.name: count_missing(table.column(each.name)) for each in kinds if depends_on_nulls(each.type)}
        classes = {
            name: feature.names
            for name, feature in dataset.features.items()
            if type(feature).__name__ == "ClassLabel" and _are_classes(table.column(name), len(feature.names))
        }
        self._rows = TableRows(kinds, missing, classes, fields, beside=True)
        samples = self._read(spread_indices(len(dataset)))
        self.columns = choose_columns(samples, fields, ColumnFacts(fields=self._rows.fields)) if samples else None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of these rows, from the library."""
        return str(self._dataset._fingerprint)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError(f"{counted(len(self), 'row')}")
        return [self.columns.prepare(sample) for sample in self._read(indices)]

    def _read(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        try:
            return self._rows.samples(self._dataset[list(indices)]) if len(indices) else []
        except RowError as error:
            raise FormatError(f"row {indices[error.place]}: {error}") from None


def open_huggingface(source: Any, fields: Any) -> HuggingFaceDataset | None:
    """Return the rows of a dataset; None for any other object, and for a dataset with a transform, which makes the
    samples.

    Raises:
        ArgumentError: it is a dict of several datasets.
        FormatError: its format changes values.
    """
    # Without the import no object is of its classes. Other packages have a module of this name too.
    library = sys.modules.get("datasets")
    one, several = (getattr(library, name, ()) for name in ("Dataset", "DatasetDict"))
    if isinstance(source, several):
        kinds = ", ".join(map(repr, source))
        raise ArgumentError(f"{type(source).__name__} has several datasets: convert one of {kinds}")
    if not isinstance(source, one):
        return None
    kind = source.format["type"]
    if kind == "custom":
        return None
    if kind not in STORED:
        raise FormatError(
            f"the dataset has the format {kind!r}, which changes values, such as float64 to float32: convert "
            "dataset.with_format(None) for what is stored, or [*dataset] for what it gives"
        )
    return HuggingFaceDataset(source, fields)


def _are_classes(column: Any, count: int) -> bool:
    """Return whether all numbers are classes; -1 for an unknown class is not."""
    values = column.to_numpy() if not column.null_count else None
    return values is not None and (not len(values) or bool(values.min() >= 0 and values.max() < count))
