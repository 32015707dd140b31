"""Rows of Hugging Face datasets by index: as they are stored, images not decoded."""

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.fields import (
    ImageField,
    ImageFileField,
    JPEGField,
    ListField,
    OptionalField,
    RGBImageField,
    Schema,
    ZstdField,
)
from ffrecord.fields.images.image_header import image_format
from ffrecord.fields.images.jpeg_codec import MAGIC
from ffrecord.inputs.arrow_memory import SharedColumn, shared_columns, shared_lists, shared_numbers, shared_texts
from ffrecord.inputs.arrow_types import depends_on_nulls, dtype_in_python, is_list
from ffrecord.inputs.arrow_values import RowError, count_missing
from ffrecord.inputs.classes import Classes, are_classes, classes_of_columns
from ffrecord.inputs.columns import ColumnFacts, SampleColumns, choose_columns, find_renamed_columns
from ffrecord.inputs.rows import TableRows
from ffrecord.inputs.stores import PROBES
from ffrecord.reading.indices import as_subset, spread_indices
from ffrecord.system.forks import Once
from ffrecord.system.values import class_of

_log = logging.getLogger("ffrecord")

STORED = (None, "arrow")  # formats that give what is stored
SEVERAL = ("DatasetDict", "IterableDatasetDict")
ASKED = ("__getitem__", "__getitems__", "__iter__", "__len__")  # what a subclass may do otherwise
AROUND = (ListField, OptionalField, ZstdField)
OF_IMAGES = (ImageField, ImageFileField, JPEGField, RGBImageField)
OF_JPEGS = (JPEGField, RGBImageField)  # take files, too
FORMATTED = ("torch", "numpy")  # formats whose columns are those of their rows
PLAIN, PLAIN_LISTS = ("Value", "ClassLabel"), ("List", "LargeList", "Sequence")  # features by name


class HuggingFaceDataset:
    """The rows of a `datasets.Dataset`, as they are stored. Pickles as that does.

    Args:
        dataset: the dataset; columns that its format leaves out are not read.
        fields: fields that the user asks for, see `columns.choose_columns`. A column with a field of images has images,
            decoded as the library does it, unless the field takes the file as it is.

    Attributes:
        columns: of the result.
    """

    def __init__(self, dataset: Any, fields: Any = None) -> None:
        # "arrow" gives columns as they are stored, without decoding.
        self._dataset = _of_its_columns(dataset).with_format("arrow")
        table = self._dataset.data
        kinds = self._dataset.features.arrow_schema
        # Only where the field depends on it, because counting reads the column.
        missing = {each.name: count_missing(table.column(each.name)) for each in kinds if depends_on_nulls(each.type)}
        classes = classes_of_columns(self._dataset.features.to_dict())
        # Counted here, since the library does not check the numbers.
        fits = [name for name, names in classes.items() if are_classes(table.column(name), names)]
        self._rows = TableRows(kinds, missing, classes, fields, fits=fits, beside=True)
        declared = fields.fields if isinstance(fields, Schema) else fields if isinstance(fields, Mapping) else {}
        # Fields of pixels need the decoded image; fields of files take the bytes.
        self._images = {name: declared[name] for name in kinds.names if _is_of_images(declared.get(name))}
        # The user's format may change values; this one does not.
        self._decoded = dataset.with_format(None)
        indices = spread_indices(len(dataset), PROBES)
        samples = self._read_stored(indices)
        facts = ColumnFacts(fields=self._rows.fields, classes=self._rows.classes)
        self.columns = choose_columns(samples, fields, facts, [f"row {i}" for i in indices]) if samples else None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the rows, as the library has it."""
        return str(self._dataset._fingerprint)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        if self.columns is None:
            raise IndexError("the dataset has no rows")
        return [self.columns.prepare(sample) for sample in self._read(indices)]

    def _read_stored(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        try:
            return self._rows.samples(self._dataset[list(indices)]) if len(indices) else []
        except RowError as error:
            raise FormatError(f"row {indices[error.place]}: {error}") from None

    def _read(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        samples = self._read_stored(indices)
        for name, field in self._images.items():
            # Only those that the field cannot take as a file.
            places = [i for i, sample in enumerate(samples) if not _takes(field, sample[name])]
            for place, image in zip(places, self._images_of(name, [indices[i] for i in places]), strict=True):
                samples[place][name] = image
        return samples

    def _images_of(self, name: str, indices: list[int]) -> list[Any]:
        if not indices:
            return []
        # This column only: decoding the others would cost as much again.
        found: list[Any] = self._decoded.select_columns(name)[indices][name]
        return found


class HuggingFaceInput:
    """A `datasets.Dataset` as `recognise.input_of` gives it.

    Args:
        dataset: the dataset; images and sound stay encoded.
    """

    serializer: str | None = None

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the rows, as the library has it."""
        return str(self._dataset._fingerprint)

    def __len__(self) -> int:
        return len(self._dataset)

    def dataset(self, fields: Any, *, skips: bool = False) -> HuggingFaceDataset:
        """Return the rows by index; see `recognise.Input`."""
        return HuggingFaceDataset(self._dataset, fields)


class HuggingFaceColumns:
    """The columns of a `datasets.Dataset`, with the values of its rows. Pickles as that does.

    Args:
        dataset: a dataset with the format None, whose columns are those of `_is_plain`.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._format = dataset, dataset.format
        self._divided = Once(self._divide)

    def __reduce__(self) -> tuple[Any, ...]:
        return HuggingFaceColumns, (self._dataset,)

    def take(self, indices: Sequence[int]) -> dict[str, Any] | None:
        """Return the columns of the rows at `indices`: an array of numbers [k], or a list of k Python values.

        None if the dataset was given another format meanwhile, which may make other values.
        """
        if self._dataset.format != self._format:
            return None
        shared, dtypes, others, order = self._divided.get()
        places = np.asarray(indices, np.int64)
        rows = places if order is None else order.take(places).astype(np.int64)
        found = {name: column.take(rows) for name, column in shared.items()}
        if others is not None:
            found |= others[list(indices)].to_pydict()  # as the library makes them for its rows
        return {
            name: found[name].astype(dtype, copy=False) if name in shared and dtype is not None else found[name]
            for name, dtype in dtypes.items()
        }

    def _divide(self) -> tuple[dict[str, SharedColumn], dict[str, Any], Any, SharedColumn | None]:
        """Divide the columns into those that are read in the table's memory, and others.

        Returns:
            the first; the dtype of Python's numbers in every column, or None; a dataset of the others, or None; the
            number of each row in the table, or None if they are in order.
        """
        dataset = _of_its_columns(self._dataset)
        names, table = dataset.column_names, dataset.data.table
        shared = shared_columns({name: table.column(name) for name in names}, self._share)
        # `select` and `shuffle` keep the table, and where each row is in it.
        order = getattr(dataset, "_indices", None)
        if order is not None and (order := shared_numbers(order.table.column(0))) is None:
            shared = {}
        left = [name for name in names if name not in shared]
        dtypes = {name: dtype_in_python(self._kind(name)) for name in names}
        return shared, dtypes, dataset.select_columns(left).with_format("arrow") if left else None, order

    def _share(self, name: str, column: Any) -> SharedColumn | None:
        kind = self._kind(name)
        if dtype_in_python(kind) is not None:
            return shared_numbers(column)
        if is_list(kind):
            return None if dtype_in_python(kind.value_type) is None else shared_lists(column, np.ndarray.tolist)
        return shared_texts(column)

    def _kind(self, name: str) -> Any:
        return self._dataset.data.schema.field(name).type


class FormattedColumns:
    """The columns of a `datasets.Dataset` in its format, "torch" or "numpy", which converts a column by one call."""

    def __init__(self, dataset: Any) -> None:
        self._dataset, self._format = dataset, dataset.format

    def take(self, indices: Sequence[int]) -> dict[str, Any] | None:
        """Return the columns of the rows at `indices`; None if the dataset was given another format meanwhile."""
        return dict(self._dataset[list(indices)]) if self._dataset.format == self._format else None


def take_columns(source: Any) -> Callable[[Sequence[int]], dict[str, Any] | None] | None:
    """Return a function from indices [k] to the columns of a `datasets.Dataset`, whose rows it does not make.

    None for anything else, also for one with images or sound, or whose rows another format, a transform or a subclass
    makes.
    """
    if not _is_dataset(source) or not _is_untouched(source, class_of("datasets", "Dataset")):
        return None
    said = source.format
    # `flatten` leaves names in a format that the dataset no longer has.
    if not set(said["columns"]) & set(source.column_names) or not _is_plain(source.features):
        return None
    if said["type"] is None:
        return HuggingFaceColumns(source).take
    return FormattedColumns(source).take if said["type"] in FORMATTED and not said["output_all_columns"] else None


def _is_plain(feature: Any) -> bool:
    """Tell whether values are stored as the library gives them: numbers, text and bytes, lists and dicts of these."""
    if isinstance(feature, Mapping):
        return all(map(_is_plain, feature.values()))
    if isinstance(feature, list):
        return all(map(_is_plain, feature))
    inner = getattr(feature, "feature", None)
    name = type(feature).__name__
    return name in PLAIN or (name in PLAIN_LISTS and _is_plain(inner))


class NamedStream:
    """The samples of an `IterableDataset`, with names of classes where fields number them otherwise.

    Args:
        stream: the samples.
        columns: columns of the result.
    """

    def __init__(self, stream: Any, columns: SampleColumns) -> None:
        self._stream, self._columns = stream, columns

    def __iter__(self) -> Iterator[Any]:
        for index, sample in enumerate(self._stream):
            try:
                yield self._columns.prepare(dict(sample))
            except FormatError as error:
                raise FormatError(f"sample {index}: {error}") from None


def name_stream(source: Any, schema: Schema | None) -> Any:
    """Return an `IterableDataset` whose classes are matched by name with those of a schema; other sources as they are.

    Args:
        source: source of samples.
        schema: fields that the user declares, of some columns or of all; None for none.
    """
    if schema is None or not _is_stream(source):
        return source
    renamed = find_renamed_columns(schema, _classes_of_stream(source))
    return NamedStream(source, SampleColumns(schema, renamed=renamed)) if renamed else source


def input_of(source: Any) -> HuggingFaceInput | None:
    """Return the rows of a `datasets.Dataset`, of torch's Subset of one, or of its ConcatDataset of several alike.

    None for anything else, also for one with a transform, with a format that changes values, or of a class with
    methods of its own: its samples are what that gives. So for an `IterableDataset`; the log says what it decodes.

    Raises:
        ArgumentError: it is several, by name.
    """
    _warn_of_stream(source)
    found = _dataset_of(source)
    return None if found is None else HuggingFaceInput(found)


def keep_columns(source: Any, names: Collection[str]) -> Any:
    """Return a `datasets.Dataset` with only some of its columns, which alone are then decoded.

    Anything else, one whose samples a transform or a subclass makes, or one without a column of each name, is returned
    as it is.
    """
    if not _is_dataset(source) or not _is_untouched(source, class_of("datasets", "Dataset")):
        return source
    if source.format["type"] == "custom" or not names or not set(names) <= set(source.format["columns"]):
        return source
    return source.select_columns([name for name in source.column_names if name in names])


def classes_of_dataset(source: Any) -> dict[str, Classes]:
    """Return the class names in columns of a `datasets.Dataset`; {} for anything else."""
    return classes_of_columns(source.features.to_dict()) if _is_dataset(source) else {}


def check_format(source: Any) -> None:
    """Refuse a `datasets.Dataset` whose format changes values.

    Raises:
        FormatError: the format is such as "numpy" or "torch".
    """
    if not _is_dataset(source):
        return
    kind = source.format["type"]
    if kind not in (*STORED, "custom"):
        raise FormatError(
            f"the dataset has the format {kind!r}, which changes values, such as float64 to float32: pass "
            "dataset.with_format(None) to write the stored values, or [*dataset] to write the changed ones"
        )


def check_classes(source: Any, schema: Schema | None) -> None:
    """Refuse a `datasets.Dataset` with a format, whose numbers of classes would get other names.

    With a transform, which may have numbered the classes anew, it is a line of the log.

    Args:
        source: a source whose samples are taken as they come.
        schema: fields that the user declares; None for none.

    Raises:
        FormatError: the fields have other class names, or another order of them.
    """
    renamed = {} if schema is None else find_renamed_columns(schema, classes_of_dataset(source))
    for name, names in renamed.items():
        if source.format["type"] != "custom":
            raise FormatError(
                f"column {name!r}: the classes of the dataset are {names}, and fields has other names, or another "
                "order: pass dataset.with_format(None), whose classes are matched by name"
            )
        _log.warning(
            "column %r: the classes of the dataset are %s, and fields has other names, or another order: the numbers "
            "that its transform gives are written as they are",
            name,
            names,
        )


def _dataset_of(source: Any) -> Any:
    # Others call a module of theirs `datasets`, too: it need not have these classes.
    if any(isinstance(source, class_of("datasets", name)) for name in SEVERAL):
        kinds = ", ".join(repr(name) for name in source)
        raise ArgumentError(f"{type(source).__name__} has several datasets: pass one of {kinds}")
    if _is_dataset(source):
        # With a transform, or methods of a subclass, its samples are not its rows.
        known = class_of("datasets", "Dataset")
        return source if source.format["type"] in STORED and _is_untouched(source, known) else None
    if type(source) is class_of("torch.utils.data", "Subset"):
        inner = _dataset_of(source.dataset)
        if inner is None:
            # An inner dataset with changes of its own.
            return None
        places = np.arange(len(inner))[as_subset(source.indices)]  # as those below 0 count from the end
        # In memory: the library would else write the indices to its cache directory.
        return _of_its_columns(inner).select(places, keep_in_memory=True)
    if type(source) is class_of("torch.utils.data", "ConcatDataset"):
        members = [_dataset_of(each) for each in source.datasets]
        if any(each is None for each in members):
            return None
        members = [_of_its_columns(each).with_format(None) for each in members]
        # Before joining, which would silently keep the numbers.
        _check_classes(members)
        alike = all(each.features == members[0].features for each in members)
        # Different columns: the samples are read one by one, as torch does.
        return sys.modules["datasets"].concatenate_datasets(members) if alike else None
    return None


def _check_classes(members: Sequence[Any]) -> None:
    """Refuse datasets whose class names differ in a column: the same number would mean two classes.

    Raises:
        FormatError: two differ.
    """
    first = classes_of_columns(members[0].features.to_dict())
    for place, member in enumerate(members):
        for name, classes in classes_of_columns(member.features.to_dict()).items():
            if first.setdefault(name, classes) != classes:
                raise FormatError(
                    f"dataset {place} of a ConcatDataset: the classes of column {name!r} are {classes}, and in one "
                    f"before {first[name]}; give both one ClassLabel with cast_column, after its numbers are changed"
                )


def _is_stream(source: Any) -> bool:
    return isinstance(source, class_of("datasets", "IterableDataset"))


def _classes_of_stream(source: Any) -> dict[str, Classes]:
    return classes_of_columns(source.features.to_dict() if source.features else {})


def _warn_of_stream(source: Any) -> None:
    if not _is_stream(source):
        return
    classes = _classes_of_stream(source)
    if classes:
        names = ", ".join(map(repr, classes))
        _log.warning(
            "columns %s: class names are kept only where fields have them, such as LabelField(names), and matched by "
            "name; load the dataset without streaming to keep all",
            names,
        )
    decoded = [name for name, feature in (source.features or {}).items() if getattr(feature, "decode", False)]
    if decoded:
        names = ", ".join(map(repr, decoded))
        _log.warning(
            "columns %s: files are decoded and encoded again; load the dataset without streaming to keep their bytes",
            names,
        )


def _is_dataset(source: Any) -> bool:
    return isinstance(source, class_of("datasets", "Dataset"))


def _is_untouched(source: Any, known: type) -> bool:
    # On the class and on the object.
    same = (getattr(type(source), name, None) is getattr(known, name, None) for name in ASKED)
    return all(same) and not any(name in vars(source) for name in ASKED)


def _of_its_columns(dataset: Any) -> Any:
    """Return a dataset without the columns that its format leaves out."""
    said = dataset.format
    # `columns` names all of them if none are left out, in any order.
    kept = [name for name in dataset.column_names if said["output_all_columns"] or name in said["columns"]]
    return dataset if kept == dataset.column_names else dataset.select_columns(kept)


def _is_of_images(field: Any) -> bool:
    while isinstance(field, AROUND):
        field = field.inner
    return isinstance(field, OF_IMAGES)


def _takes(field: Any, value: Any) -> bool:
    """Tell whether a field of images takes a value as it is stored: None, or a file."""
    while isinstance(field, OptionalField | ZstdField):
        field = field.inner
    if isinstance(field, ImageFileField) and isinstance(value, bytes):
        return image_format(value) is not None
    # A JPEG is kept; other files are decoded, since these fields take nothing else.
    return value is None or (isinstance(field, OF_JPEGS) and isinstance(value, bytes) and value[: len(MAGIC)] == MAGIC)
