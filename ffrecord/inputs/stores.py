"""Samples of record stores by index, in the form that `DatasetWriter` takes: many at once.

Examples of TFRecord files have a column for each feature.
"""

import contextlib
import hashlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, MissingNamesError, name_files
from ffrecord.fields import BytesField, Field, Schema
from ffrecord.format import ffr_layout
from ffrecord.inputs.columns import (
    IMAGE_FILE,
    IMAGE_SUFFIXES,
    JPEG,
    JPEG_SUFFIXES,
    ColumnFacts,
    SampleColumns,
    choose_columns,
    labels_fit,
)
from ffrecord.reading.indices import spread_indices
from ffrecord.reading.store import Store
from ffrecord.sources.names import Names
from ffrecord.sources.tar.index import log_repeated_keys
from ffrecord.sources.tar.webdataset import WebDatasetReader
from ffrecord.sources.tar.webdataset_fields import DECODERS
from ffrecord.sources.tfrecord.examples import (
    ExampleError,
    ExampleParser,
    FeatureKindError,
    describe,
    describe_example,
    first_list,
    infer,
)

PROBES = 64  # number of samples that show the columns
PROBED_BYTES = 64 << 20  # limit of their size
PROBED_BESIDE = 16 << 20  # limit of the bytes read besides their own, as from compressed chunks
KEY, WEB_KEY, DATA, IMAGE, LABEL = "key", "__key__", "data", "image", "label"
RAW_FORMATS = ("webdataset", "image folder", "path list")  # their arrays are bytes of files
FOLDERS = ("image folder", "path list")
TFRECORD = "tfrecord"
# Names of files that are no pages, and no text. In the place of such a file, a page shows a failed download.
BINARY_SUFFIXES = (
    *(".npy", ".npz", ".pt", ".pth", ".pkl", ".pickle", ".bin", ".h5", ".hdf5", ".mat", ".parquet", ".safetensors"),
    *(".mp3", ".wav", ".flac", ".ogg", ".m4a", ".mp4", ".avi", ".mov", ".mkv", ".webm", ".gz", ".zip", ".zst", ".tar"),
)
TYPED = ("mds", "beton", "torchrecord")  # their arrays are arrays
BYTES_AT_ONCE = 8 << 20
UNREADABLE = (ChecksumError, FormatError, OSError)  # errors of readers for a damaged sample
IGNORED_OPTIONS = ("io", "on_error", "index_cache")  # reader options that change no sample

_log = logging.getLogger("ffrecord")

Found = TypeVar("Found")


class StoreSamples(ABC):
    """Samples of a store by index, several at once. It pickles like the store.

    Attributes:
        store: store of the samples.
        columns: columns of the result; None for records without a schema.
        may_be_asked_ahead: whether a thread may ask for samples ahead.
    """

    may_be_asked_ahead = True

    columns: Any  # Columns, or None

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def fingerprint(self) -> str:
        """Fingerprint of these samples: 64 hexadecimal digits, from the files and the reader's options."""
        # Files alone do not tell the samples: options such as decode= change them.
        digest = hashlib.sha256(self.store._identity_text().encode())
        for name, value in sorted(self.store._options().items()):
            # Options of other types, functions for instance, have no text that stays the same.
            if name not in IGNORED_OPTIONS and isinstance(value, str | bytes | int | float | list | tuple | None):
                digest.update(f"{name} {value!r}".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    @abstractmethod
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at `indices`."""

    def sample_name_for_errors(self, index: int) -> str:
        """Return the name of a sample for messages: with its file, member or key, if it has one."""
        # Of records without names, the reader's errors name the place.
        if 0 <= index < len(self) and names_of(self.store) is not None:
            return describe_sample(self.store, index)
        return f"sample {index}"

    @contextlib.contextmanager
    def read_once(self) -> Iterator[None]:
        """Return a context in which every sample is read once, here and in processes forked meanwhile."""
        self.store._read_once(True)
        try:
            yield
        finally:
            self.store._read_once(False)

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """Return how many of the first samples one worker should get, so that no two workers read the same bytes."""
        return self.store._count_undivided(indices)

    def samples_at_once(self, indices: Sequence[int]) -> int:
        """Return how many of the first samples to request together, so that large ones are not all in memory."""
        ends = np.cumsum(self.store._sizes(np.asarray(indices, np.int64)))
        # At least one, however large.
        return max(1, int(np.searchsorted(ends, BYTES_AT_ONCE, side="right")))


class StoreDataset(StoreSamples):
    """The results of a store's `samples`, with their names and columns.

    Args:
        store: store of the samples.
        fields: fields from the user, see `columns.choose_columns`.
        skips: whether samples that cannot be read show no columns, instead of raising.

    Attributes:
        columns: columns of the result.
    """

    def __init__(self, store: Store, fields: Any = None, *, skips: bool = False) -> None:
        super().__init__(store)
        # Once for all names: a column has one type.
        self._keys_are_text = _are_text(store)
        self._kept = columns_of_bytes(fields)
        if isinstance(store, WebDatasetReader):
            _log_repeated_keys(store)
        pairs = read_probes(probe_indices(store), self._checked_pairs, skips)
        samples = [self._add_name(*pair) for pair in pairs]
        names = [describe_sample(store, index) for index, _ in pairs]
        self.columns = (
            choose_columns(samples, fields, self._facts(samples), names)
            if samples
            else SampleColumns(empty_schema(fields))
        )

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self.columns.prepare(self._add_name(*pair), here=True) for pair in self._checked_pairs(indices)]

    def _pairs(self, indices: Sequence[int]) -> Iterator[tuple[int, Any]]:
        if len(indices) == 1:
            return iter([(indices[0], self.store.sample(indices[0]))])  # unlike `samples`, it raises the error
        return zip(indices, check_complete(self.store, indices, self.store.samples(indices)), strict=True)

    def _checked_pairs(self, indices: Sequence[int]) -> Iterator[tuple[int, Any]]:
        """Yield each index with its sample, as `check_files` accepts it."""
        for index, sample in self._pairs(indices):
            check_files(self.store.format, sample, partial(describe_sample, self.store, index), self._kept)
            yield index, sample

    def _add_name(self, index: int, sample: Any) -> Any:
        """Return a sample with its name, as text if all names are UTF-8."""
        if self.store.format == TFRECORD and isinstance(sample, dict):
            sample = {name: as_python(value) for name, value in sample.items()}
        if self.store.format in FOLDERS:
            sample = {KEY: self.store.keys()[index], **sample}
        return sample if self._keys_are_text else with_bytes_key(sample)

    def _facts(self, samples: Sequence[Any]) -> ColumnFacts:
        store = self.store
        # TYPED stores have real arrays, others bytes of files.
        raw = set() if store.format in TYPED else {DATA, IMAGE} if store.format in FOLDERS else {DATA}
        if store.format == "webdataset":
            # A decoded column is not raw, unless its type has no decoder.
            decodes = store._options()["decode"]
            raw = {
                name for sample in samples for name in sample if not (decodes and name.rpartition(".")[2] in DECODERS)
            }
        classes = getattr(store, "classes", None)
        # Labels that are no numbers, or missing, are columns like others.
        labels = {LABEL: class_names(classes, store)} if classes and labels_fit(samples, LABEL) else {}
        return ColumnFacts(frozenset(raw), labels, suffixed=_fields_of_names(store))


def check_files(format: str, sample: Any, name: Callable[[], str], kept: Collection[str] = ()) -> None:
    """Raise FormatError for a file in whose place something else came.

    Otherwise a source of nothing but Git LFS pointers would become a column of bytes, with no error.

    Args:
        format: format of the source.
        sample: sample of it.
        name: returns the name of the sample for messages.
        kept: columns with any bytes, as the user declares.
    """
    for column, file in _files_of(format, sample):
        head = _head_of(sample[column])
        hint = ffr_layout.hint_of(head)
        if not hint:
            continue
        what = "it" if column in (IMAGE, DATA) else f"field {column!r}"
        if format in FOLDERS or file.endswith(IMAGE_SUFFIXES):
            raise FormatError(f"{name()}: {what} is not an image{hint}")
        # A page is a file like others, but a pointer is none.
        expected = file.endswith(BINARY_SUFFIXES) or ffr_layout.hint_of(head, [ffr_layout.LFS_POINTER])
        if expected and column not in kept:
            what = f"{name()}: {what} is not a file of data{hint}"
            raise FormatError(f"{what}; to keep it all the same, pass fields={{{column!r}: BytesField()}}")


def _files_of(format: str, sample: Any) -> list[tuple[str, str]]:
    """Return the columns of a sample that are files, with the end of their names in lower case."""
    if format in FOLDERS:
        return [(IMAGE, "")]
    if format == "webdataset":
        return [(name, f".{name}".lower()) for name in sample if name != WEB_KEY]
    key = sample.get(KEY) if isinstance(sample, dict) and DATA in sample else None
    name = os.fsdecode(key) if isinstance(key, str | bytes) else None
    return [] if name is None else [(DATA, name.lower())]


def _head_of(value: Any) -> bytes:
    """Return the first bytes of the bytes or the text of a file; none of other values."""
    if isinstance(value, str):
        return value[: ffr_layout.HINT_SIZE].encode(errors="replace")
    flat = isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1
    return bytes(value[: ffr_layout.HINT_SIZE]) if flat or isinstance(value, bytes | memoryview) else b""


def columns_of_bytes(fields: Any) -> frozenset[str]:
    """Return the columns that the user declares as bytes of any kind."""
    declared = fields.fields if isinstance(fields, Schema) else fields if isinstance(fields, Mapping) else {}
    return frozenset(name for name, field in declared.items() if isinstance(field, BytesField))


def describe_sample(store: Store, index: int) -> str:
    """Return the name of a sample for messages, with its file."""
    place = store._describe_place(index)
    # Not the same number twice; members of archives have names.
    return f"sample {index} ({place.removesuffix(f': sample {index}')})"


def as_python(value: Any) -> Any:
    """Return a value of an Example as a Python type: NumPy arrays of strings as lists, NumPy numbers as numbers."""
    # Records of strings come as arrays of objects.
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def with_bytes_key(sample: Any) -> Any:
    """Return a sample with its name as bytes; changed in place."""
    for key in (KEY, WEB_KEY):
        # Surrogates stand for bytes that are no UTF-8.
        if isinstance(sample.get(key), str):
            sample[key] = sample[key].encode(errors="surrogateescape")
    return sample


def check_complete(store: Store, indices: Sequence[int], found: list[Any]) -> list[Any]:
    """Return the samples found at `indices`.

    Raises:
        FFRecordError: some are missing.
    """
    # A skipped sample would shift the names of all later ones.
    if len(found) != len(indices):
        raise FFRecordError(
            f"{name_files(store.fnames)}: only {len(found)} of {len(indices)} samples could be read, and none may be "
            'left out: open the store without on_error="skip"'
        )
    return found


def probe_indices(store: Store) -> list[int]:
    """Return indices of samples that show the columns: PROBES of them, or fewer, but two, if too much would be read."""
    indices = spread_indices(len(store), PROBES)
    positions = np.asarray(indices, np.int64)
    size = int(store._sizes(positions).sum())
    # Chunks of compressed files are read as a whole.
    beside = store._bytes_read(positions) - size
    count = PROBES * min(PROBED_BYTES / max(size, 1), PROBED_BESIDE / max(beside, 1))
    # At least two samples, or nothing would show what varies.
    return indices if count >= PROBES else spread_indices(len(store), max(2, int(count)))


def read_probes(indices: Sequence[int], get: Callable[[Sequence[int]], Iterable[Found]], skips: bool) -> list[Found]:
    """Return the results of `get` for these indices; with `skips`, of those that can be read, unless none can."""
    try:
        # Together first: blocks are read once.
        return list(get(indices))
    except UNREADABLE:
        if not skips:
            raise
    found: list[Found] = []
    failure = None
    # One by one, to find those that can be read.
    for index in indices:
        try:
            found += get([index])
        except UNREADABLE as error:
            failure = failure or error
    # If none can be read, something else is wrong than a few samples.
    if failure and not found:
        raise failure
    return found


def empty_schema(fields: Any) -> Schema:
    """Return the columns of a dataset without samples: those that the user declares, or names."""
    # A schema needs a column; it is the one that names would have.
    return fields if isinstance(fields, Schema) else Schema.of(fields or {KEY: BytesField()})


def names_of(store: Store) -> Sequence[str] | None:
    """Return the `keys` of a store; None: its records have no names."""
    try:
        return store.keys()
    except MissingNamesError:
        return None


def _log_repeated_keys(store: WebDatasetReader) -> None:
    """Log the keys of an archive that come again after other samples: their files may belong together."""
    start = 0
    for path, opened in zip(store.fnames, store._files, strict=True):
        # Of each archive alone: many programs number the samples of each one from 0.
        keys = store.keys()[start : start + opened.n]
        start += opened.n
        repeated = len(keys) - len(set(keys))
        if repeated:
            seen: set[str] = set()
            first = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            log_repeated_keys(path, repeated, first)


def _are_text(store: Store) -> bool:
    """Return whether all names are UTF-8, so that a column of text can store them."""
    names = names_of(store)
    if names is None:
        return True
    if not isinstance(names, Names):
        return all(map(is_text, names))
    # All names lie in one array, so the whole is decoded at once.
    first = names.offsets[:-1][np.diff(names.offsets) > 0]
    # UTF-8: the bytes inside a letter are 10xxxxxx.
    if (names.blob[first] & 0xC0 == 0x80).any():  # a name begins inside a UTF-8 letter
        return False
    try:
        names.blob.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def is_text(name: str) -> bool:
    """Return whether a name is UTF-8."""
    # surrogateescape: one such code for each byte that is no UTF-8.
    return not any("\udc80" <= letter <= "\udcff" for letter in name)


def class_names(names: Sequence[str], store: Store) -> list[str]:
    r"""Return class names as text: bytes of a directory name that are no UTF-8 become `\xe9` and the like, and are
    logged.

    Raises:
        FormatError: two classes would have one name then.
    """
    # A column of labels is text, so bytes that are no UTF-8 have to be written out.
    found = [os.fsencode(name).decode(errors="backslashreplace") for name in names]
    for name, text in zip(names, found, strict=True):
        if is_text(name):
            continue
        if found.count(text) > 1:
            raise FormatError(f"{name_files(store.fnames)}: two classes would be called {text!r}: rename a directory")
        _log.warning(
            "%s: the name of the class %r is not UTF-8, so it is called %r",
            name_files(store.fnames),
            os.fsencode(name),
            text,
        )
    return found


def _fields_of_names(store: Store) -> dict[str, Field | None]:
    """Return the field that fits the names of all records, by column; nothing if names have no suffixes."""
    names = names_of(store)
    # Without suffixes, names tell nothing.
    if names is None or not len(names) or "." not in names[0]:
        return {}
    # All names, not only those looked at: a single text file among pictures must show.
    found = JPEG if _end_in(names, JPEG_SUFFIXES) else IMAGE_FILE if _end_in(names, IMAGE_SUFFIXES) else None
    return {DATA: found, IMAGE: found}


def _end_in(names: Sequence[str], suffixes: tuple[str, ...]) -> bool:
    if isinstance(names, Names):
        return names.end_in(suffixes)
    return all(name.lower().endswith(suffixes) for name in names)


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
        # Read together, then checked one by one: errors name the record.
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
        # A SequenceExample has lists beside its features, which a parser of Examples would lose.
        steps = first_list(record)
        if steps is not None:
            found = f"the list {steps!r} of a SequenceExample"
        if found:
            raise FormatError(
                f"{self._name(index)}: it has {found}, which no example looked at has; "
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
        ExampleError: a record is damaged or of another kind, and others are Examples.
    """
    # Samples that cannot be read may be skipped, as in the write.
    found = read_probes(probe_indices(store), lambda indices: zip(indices, store.read(indices), strict=True), skips)
    found = _without_damaged(store, found, skips)
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
    try:
        samples = [_as_python_sample(sample) for sample in parser.decode(records)]
        names = [describe_sample(store, index) for index in indices]
        return ExampleDataset(store, parser, choose_columns(samples, None, ColumnFacts(), names))
    # Not an error: bytes hold everything.
    except (FFRecordError, TypeError, ValueError) as error:
        _log.warning(
            "%s: no columns can hold these examples, so they are stored as bytes: %s", name_files(store.fnames), error
        )
        return None


def _without_damaged(store: Store, found: list[tuple[int, Any]], skips: bool) -> list[tuple[int, Any]]:
    """Return the (index, record) of examples: all of them, or none if the source has no examples at all.

    Raises:
        ExampleError: some are no examples, and may not be skipped. To take the source for one of other bytes would hide
            the damage.
    """
    good: list[tuple[int, Any]] = []
    bad: list[tuple[int, ExampleError]] = []
    are_examples = False
    for index, record in found:
        try:
            are_examples |= bool(describe_example(record))
            good.append((index, record))
        except ExampleError as error:
            bad.append((index, error))
    if not are_examples:  # an empty record is an Example, too, but shows nothing
        return [] if bad else good
    if bad and not skips:
        index, first = bad[0]
        path, local = store.locate(index)
        told = first.of_record(index, f"{path}: record {local}")
        raise ExampleError(
            f"{told}; {len(good)} of {len(found)} records that were looked at are Examples: leave others out with "
            'max_skipped, or keep all of them as bytes with fields={"data": BytesField()}',
            key=first.key,
            index=index,
        )
    return good


def _as_python_sample(sample: dict[str, Any]) -> dict[str, Any]:
    return {name: as_python(value) for name, value in sample.items()}
