"""Samples of record stores by index, as `DatasetWriter` takes them: many at once."""

import contextlib
import hashlib
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ChecksumError, FFRecordError, FormatError, MissingNamesError, name_files
from ffrecord.fields import BytesField, Schema
from ffrecord.inputs.columns import JPEG_SUFFIXES, ColumnFacts, SampleColumns, chosen, labels_fit
from ffrecord.reading.store import Store
from ffrecord.sources.names import Names
from ffrecord.sources.tar.webdataset_fields import DECODERS

PROBES = 64  # samples that show the columns
PROBED_BYTES = 64 << 20  # of those samples
PROBED_BESIDE = 16 << 20  # bytes that are read for them beside their own, as of compressed chunks
KEY, WEB_KEY, DATA, IMAGE, LABEL = "key", "__key__", "data", "image", "label"
RAW_FORMATS = ("webdataset", "image folder", "path list")  # whose arrays are bytes of files
FOLDERS = ("image folder", "path list")
TFRECORD = "tfrecord"
TYPED = ("mds", "beton", "torchrecord")  # whose arrays are arrays
BYTES_AT_ONCE = 8 << 20
UNREADABLE = (ChecksumError, FormatError, OSError)  # what readers say of a damaged sample
UNTOLD = ("io", "on_error", "index_cache")  # options of readers that change no sample

_log = logging.getLogger("ffrecord")

Found = TypeVar("Found")


class OfStore(ABC):
    """Samples by index, several at once, out of a store. Pickles as that does.

    Attributes:
        store: of the samples.
        columns: of the result; None for records without a schema.
        may_be_asked_ahead: by a thread of whoever asks.
    """

    may_be_asked_ahead = True

    columns: Any  # Columns, or None

    def __init__(self, store: Store) -> None:
        self.store = store

    @property
    def fingerprint(self) -> str:
        """What tells these samples from others: 64 hexadecimal digits, of the files and the reader's options."""
        digest = hashlib.sha256(self.store._identity_text().encode())
        for name, value in sorted(self.store._options().items()):
            if name not in UNTOLD and isinstance(value, str | bytes | int | float | list | tuple | None):
                digest.update(f"{name} {value!r}".encode(errors="surrogateescape"))
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    @abstractmethod
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at `indices`."""

    def sample_name_for_errors(self, index: int) -> str:
        """What a sample is called in messages: with its file, where each has one of its own."""
        if self.store.format in FOLDERS and 0 <= index < len(self):
            return f"sample {index} ({self.store.locate(index)[0]})"
        return f"sample {index}"

    @contextlib.contextmanager
    def read_once(self) -> Iterator[None]:
        """While every sample is asked for once, here and in processes forked meanwhile."""
        self.store._read_once(True)
        try:
            yield
        finally:
            self.store._read_once(False)

    def samples_of_task(self, indices: npt.NDArray[np.int64]) -> int:
        """How many of the first of these samples one worker is to have, so that no two of them read the same."""
        return self.store._count_undivided(indices)

    def samples_at_once(self, indices: Sequence[int]) -> int:
        """How many of the first of these samples to ask for together, so that large ones are not all in memory."""
        ends = np.cumsum(self.store._sizes(np.asarray(indices, np.int64)))
        return max(1, int(np.searchsorted(ends, BYTES_AT_ONCE, side="right")))


class StoreDataset(OfStore):
    """What a store's `samples` gives, and names, with the columns that these have.

    Args:
        store: of the samples.
        fields: that the user asks for, see `columns.chosen`.
        skips: whether samples that cannot be read show no columns, instead of raising.

    Attributes:
        columns: of the result.
    """

    def __init__(self, store: Store, fields: Any = None, *, skips: bool = False) -> None:
        super().__init__(store)
        self._keys_are_text = _are_text(store)
        samples = [self._named(*pair) for pair in readable(probed(store), self._pairs, skips)]
        self.columns = chosen(samples, fields, self._facts(samples)) if samples else SampleColumns(of_nothing(fields))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self.columns.prepared(self._named(*pair), here=True) for pair in self._pairs(indices)]

    def _pairs(self, indices: Sequence[int]) -> Iterator[tuple[int, Any]]:
        if len(indices) == 1:
            return iter([(indices[0], self.store.sample(indices[0]))])  # which says what is wrong
        return zip(indices, all_of(self.store, indices, self.store.samples(indices)), strict=True)

    def _named(self, index: int, sample: Any) -> Any:
        """A sample with its name, as text if all names are."""
        if self.store.format == TFRECORD and isinstance(sample, dict):
            sample = {name: listed(value) for name, value in sample.items()}
        if self.store.format in FOLDERS:
            sample = {KEY: self.store.keys()[index], **sample}
        return sample if self._keys_are_text else with_bytes_key(sample)

    def _facts(self, samples: Sequence[Any]) -> ColumnFacts:
        store = self.store
        raw = set() if store.format in TYPED else {DATA, IMAGE} if store.format in FOLDERS else {DATA}
        if store.format == "webdataset":
            # What is decoded is none of them, but for what has no decoder.
            decodes = store._options()["decode"]
            raw = {
                name for sample in samples for name in sample if not (decodes and name.rpartition(".")[2] in DECODERS)
            }
        classes = getattr(store, "classes", None)
        labels = {LABEL: class_names(classes, store)} if classes and labels_fit(samples, LABEL) else {}
        return ColumnFacts(frozenset(raw), labels, {}, _suffixed(store))


def listed(value: Any) -> Any:
    """What an Example has, in types of Python: strings of numpy arrays as lists, its numbers as numbers."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def with_bytes_key(sample: Any) -> Any:
    """A sample with its name as bytes; changed in place."""
    for key in (KEY, WEB_KEY):
        if isinstance(sample.get(key), str):
            sample[key] = sample[key].encode(errors="surrogateescape")
    return sample


def all_of(store: Store, indices: Sequence[int], found: list[Any]) -> list[Any]:
    """What was found at `indices`.

    Raises:
        FFRecordError: it is not as many.
    """
    if len(found) != len(indices):
        raise FFRecordError(
            f"{name_files(store.fnames)}: {len(found)} of {len(indices)} samples could be had; a store to write from "
            'must not leave any out (on_error="skip")'
        )
    return found


def probed(store: Store) -> list[int]:
    """Indices of samples that show the columns: PROBES of them, or fewer, but two, where too much would be read."""
    indices = spread(len(store))
    positions = np.asarray(indices, np.int64)
    size = int(store._sizes(positions).sum())
    beside = store._bytes_read(positions) - size
    count = PROBES * min(PROBED_BYTES / max(size, 1), PROBED_BESIDE / max(beside, 1))
    return indices if count >= PROBES else spread(len(store), max(2, int(count)))


def readable(indices: Sequence[int], get: Callable[[Sequence[int]], Iterable[Found]], skips: bool) -> list[Found]:
    """What `get` gives of these; if it `skips`, of those that can be read, unless none can."""
    try:
        return list(get(indices))
    except UNREADABLE:
        if not skips:
            raise
    found: list[Found] = []
    failure = None
    for index in indices:
        try:
            found += get([index])
        except UNREADABLE as error:
            failure = failure or error
    if failure and not found:
        raise failure
    return found


def spread(n: int, count: int = PROBES) -> list[int]:
    """Up to `count` of n indices, evenly from the first to the last."""
    wanted = min(n, count)
    return [k * (n - 1) // max(wanted - 1, 1) for k in range(wanted)]


def of_nothing(fields: Any) -> Schema:
    """Return the columns of no samples: those that the user declares, or names."""
    return fields if isinstance(fields, Schema) else Schema.of(fields or {KEY: BytesField()})


def names_of(store: Store) -> Sequence[str] | None:
    """Its `keys`; None: its records have no names."""
    try:
        return store.keys()
    except MissingNamesError:
        return None


def _are_text(store: Store) -> bool:
    """Whether all names are UTF-8, so that a column of text can hold them."""
    names = names_of(store)
    if names is None:
        return True
    if not isinstance(names, Names):
        return all(map(is_text, names))
    first = names.offsets[:-1][np.diff(names.offsets) > 0]
    if (names.blob[first] & 0xC0 == 0x80).any():  # a name that begins inside a letter
        return False
    try:
        names.blob.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def is_text(name: str) -> bool:
    """Whether a name is UTF-8."""
    return not any("\udc80" <= letter <= "\udcff" for letter in name)


def class_names(names: Sequence[str], store: Store) -> list[str]:
    """Return names of classes as text: what is no UTF-8 in that of a directory is written as `\\xe9`, and logged.

    Raises:
        FormatError: two classes would have one name then.
    """
    found = [os.fsencode(name).decode(errors="backslashreplace") for name in names]
    for name, text in zip(names, found, strict=True):
        if is_text(name):
            continue
        if found.count(text) > 1:
            raise FormatError(f"{name_files(store.fnames)}: two classes would be called {text!r}: rename a directory")
        _log.warning("%s: the class %r is no UTF-8, and called %r", name_files(store.fnames), os.fsencode(name), text)
    return found


def _suffixed(store: Store) -> dict[str, bool]:
    """Whether every record is called as JPEG files are; nothing where names have no suffixes."""
    names = names_of(store)
    if names is None or not len(names) or "." not in names[0]:
        return {}
    if isinstance(names, Names):
        found = names.end_in(JPEG_SUFFIXES)
    else:
        found = all(name.lower().endswith(JPEG_SUFFIXES) for name in names)
    return {DATA: found, IMAGE: found}
