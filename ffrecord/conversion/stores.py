"""Samples of record stores by index, as `DatasetWriter` takes them: many at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ffrecord.conversion.columns import JPEG_SUFFIXES, Columns, Facts, chosen, labels_fit
from ffrecord.errors import FFRecordError, MissingNamesError
from ffrecord.fields import BytesField, Schema, schema_of
from ffrecord.reader import FileReader
from ffrecord.sources.names import Names
from ffrecord.store import Store

PROBES = 64  # samples that show the columns
KEY, DATA, LABEL = "key", "data", "label"
RAW_FORMATS = ("webdataset", "image folder", "path list")  # whose arrays are bytes of files
BYTES_AT_ONCE = 8 << 20


class StoreDataset:
    """What a store's `samples` gives, with the columns that these have. Pickles as the store does.

    Args:
        store: of the samples.
        fields: that the user asks for, see `columns.chosen`.

    Attributes:
        columns: of the result.
    """

    def __init__(self, store: Store, fields: Any = None) -> None:
        self.store = store
        self._keys_are_text = _are_text(store)
        samples = [self._as_bytes_key(sample) for sample in self._read(spread(len(store)))]
        self.columns = chosen(samples, fields, self._facts(samples)) if samples else Columns(_of_nothing(fields))

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        prepared = self.columns.prepared
        return [prepared(self._as_bytes_key(sample)) for part in self._parts(indices) for sample in self._read(part)]

    def _read(self, indices: Sequence[int]) -> list[Any]:
        samples = self.store.samples(indices)
        if len(samples) != len(indices):
            raise FFRecordError(
                f"{self.store.fnames[0]} …: {len(samples)} of {len(indices)} samples could be had; a store to convert "
                'must not leave any out (on_error="skip")'
            )
        return samples

    def _parts(self, indices: Sequence[int]) -> list[Sequence[int]]:
        """In pieces of a few megabytes, so that large samples are not all in memory."""
        ends = np.cumsum(self.store._sizes(np.asarray(indices, np.int64)))
        cuts = (np.flatnonzero(np.diff(ends // BYTES_AT_ONCE)) + 1).tolist()
        return [indices[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(indices)], strict=True)]

    def _as_bytes_key(self, sample: Any) -> Any:
        if not self._keys_are_text and KEY in sample:
            sample[KEY] = sample[KEY].encode(errors="surrogateescape")
        return sample

    def _facts(self, samples: Sequence[Any]) -> Facts:
        store = self.store
        raw = {DATA}
        if store.format in RAW_FORMATS:
            raw |= {name for name, value in samples[0].items() if isinstance(value, np.ndarray) and value.ndim == 1}
        classes = getattr(store, "classes", None)
        labels = {LABEL: list(classes)} if classes and labels_fit(samples, LABEL) else {}
        return Facts(frozenset(raw), labels, {}, _suffixed(store))


class VerbatimDataset:
    """Records of `.ffr` files as they are, under the schema that they have."""

    def __init__(self, store: FileReader, schema: Schema | None) -> None:
        self.store = store
        self.columns = None if schema is None else Columns(_Verbatim(schema))

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> memoryview:
        return self.store.read_one(index).data

    def __getitems__(self, indices: Sequence[int]) -> list[memoryview]:
        return [record.data for record in self.store.read(indices)]


class _Verbatim(Schema):
    """A schema of samples that are records of it already."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema._tree)

    def encode(self, sample: Any) -> bytes:
        return bytes(sample)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Verbatim, (Schema(self._tree),)


def verbatim(store: FileReader) -> VerbatimDataset:
    """The records of a reader of `.ffr` files."""
    return VerbatimDataset(store, schema_of(store))


def spread(n: int, count: int = PROBES) -> list[int]:
    """Up to `count` of n indices, evenly from the first to the last."""
    wanted = min(n, count)
    return [k * (n - 1) // max(wanted - 1, 1) for k in range(wanted)]


def _of_nothing(fields: Any) -> Schema:
    return fields if isinstance(fields, Schema) else Schema.of(fields or {KEY: BytesField()})


def _names(store: Store) -> Sequence[str] | None:
    try:
        return store.keys()
    except MissingNamesError:
        return None


def _are_text(store: Store) -> bool:
    """Whether all names are UTF-8, so that a column of text can hold them."""
    names = _names(store)
    if names is None:
        return True
    if not isinstance(names, Names):
        return not any("\udc80" <= letter <= "\udcff" for name in names for letter in name)
    first = names.offsets[:-1][np.diff(names.offsets) > 0]
    if (names.blob[first] & 0xC0 == 0x80).any():  # a name that begins inside a letter
        return False
    try:
        names.blob.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True


def _suffixed(store: Store) -> dict[str, bool]:
    """Whether every record is called as JPEG files are; nothing where names have no suffixes."""
    names = _names(store)
    if names is None or not len(names) or "." not in names[0]:
        return {}
    found = all(name.lower().endswith(JPEG_SUFFIXES) for name in names)
    return {DATA: found, "image": found}
