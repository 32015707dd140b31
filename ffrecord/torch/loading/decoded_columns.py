"""Decoding of the records of any store to the columns of a batch, or to its samples."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError, plural
from ffrecord.inputs.stores import describe_sample
from ffrecord.reading.store import Store
from ffrecord.system.values import describe_wrong
from ffrecord.torch.images.column_decoders import ColumnDecoders, Decoder
from ffrecord.torch.images.nvimgcodec import NVImageCodec
from ffrecord.torch.loading.columns import BatchColumns, Indices, Seeds, check_decoder, names_of, tensor_of
from ffrecord.torch.loading.nested import replace_value, value_at
from ffrecord.torch.loading.ragged import Form, as_list
from ffrecord.torch.loading.records import Bytes, Offsets
from ffrecord.torch.loading.stacking import UnevenError, stack_samples

__all__ = ["AnyColumns", "DecodedColumns", "StoreRecords"]


class StoreRecords(NamedTuple):
    """k records of a store, back to back or apart.

    Attributes:
        indices: int64 [k].
        data, offsets: the bytes of all; record i is `data[offsets[i]:offsets[i + 1]]`. None if `apart` has them.
        apart: the bytes of each.
    """

    indices: Indices
    data: Bytes | None = None
    offsets: Offsets | None = None
    apart: list[Bytes] | None = None

    @property
    def records(self) -> list[Bytes]:
        """The bytes of each record."""
        if self.data is None or self.offsets is None:
            return self.apart or []
        return [self.data[low:high] for low, high in pairwise(self.offsets.tolist())]


class DecodedColumns:
    """The columns of samples that a store decodes itself; `BatchColumns` is for files with a schema.

    Args:
        store: store of the records.
        fields: names of the columns to return, of samples that are dicts; None for all.
        decode: column → decoder.
        form: form of values of varying shape.
        pin: put decoded images into pinned memory.
        library: library that decodes images in place of the CPU's decoder, or None.

    Attributes:
        decodes: True if there are decoders, which may need seeds.
        effortless: False: batches need Python work for each sample.

    Raises:
        ArgumentError, ArgumentTypeError: an argument is not valid.
    """

    effortless = False

    def __init__(
        self,
        store: Store,
        fields: Any = None,
        decode: Mapping[str, Decoder] | None = None,
        form: Form = as_list,
        pin: bool = False,
        library: NVImageCodec | None = None,
    ) -> None:
        self._recipe = (store, fields, decode, form, pin, library)
        if isinstance(fields, Mapping):
            raise ArgumentTypeError(
                "fields is a dict, expected names of columns: only files with a schema take a field for a column"
            )
        if decode is not None and not isinstance(decode, Mapping):
            raise ArgumentTypeError(describe_wrong("decode", decode, "a dict of column → decoder"))
        self._store, self._form, self._pin = store, form, pin
        self._wanted = None if fields is None else names_of(fields)
        self._decoded = tuple(decode or {})
        decoders = {name: check_decoder(name, decoder) for name, decoder in (decode or {}).items()}
        # Without `fields`, any column of the samples may be one of images.
        self._decoders = ColumnDecoders(decoders, form, pin, fields is None, library)
        wanted = self._wanted
        for name in self._decoded:
            if wanted is not None and name not in wanted and not self._is_inside(name, wanted):
                raise ArgumentError(f"decode has {name!r}, expected some of the columns {', '.join(sorted(wanted))}")
        self.decodes = bool(self._decoders)
        self._plain = fields is None and not self._decoders  # the samples are the store's

    def __reduce__(self) -> tuple[Any, ...]:
        return DecodedColumns, self._recipe

    @staticmethod
    def build(values: list[Any]) -> Any:
        """Return the batch, or the sample: the only value in `values`."""
        return values[0]

    def records_from_packed(self, data: Bytes, offsets: Offsets, indices: Indices) -> StoreRecords:
        """Return the records at `indices`, which lie back to back in `data`."""
        return StoreRecords(indices, data, offsets)

    def values(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        """Return the batch, as a list of one value.

        Raises:
            FormatError: a sample cannot be decoded or lacks a column, or the samples differ in structure.
        """
        try:
            return self._batch(records, seeds)
        except UnevenError as error:
            differing = describe_sample(self._store, int(records.indices[error.place]))
            raise FormatError(
                f"samples of {self._store.format} do not make a batch: {differing}: {error}; a transform can give them "
                "one structure"
            ) from error

    def _batch(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        """Return the batch, as a list of one value; raise UnevenError for a sample of another structure."""
        columns = self._whole_columns(records)
        if columns is not None:
            return [columns]
        if self._plain:
            return [self._stack(self._samples_of(records, seeds))]
        samples = self._decode_records(records, seeds)
        images = self._images(samples, seeds)
        if not images:
            return [self._stack(samples)]
        if any(len(self._path(name, samples[0])) > 1 or not isinstance(samples[0], dict) for name in images):
            return [self._stack_nested(samples, images)]
        rest = [{name: value for name, value in sample.items() if name not in images} for sample in samples]
        columns = self._stack(rest)
        return [{name: images[name] if name in images else columns[name] for name in samples[0]}]

    def _whole_columns(self, records: StoreRecords) -> dict[str, Any] | None:
        """Return the batch without a sample in between, if one column is the records as they are; else None."""
        if self._decoders or records.data is None or not self._store._has_columns:
            return None
        tensors = [torch.from_numpy(record) for record in records.records]  # each has a storage of its own
        columns = self._store._columns(records.indices, tensors)
        if any(column is tensors and not self._store._varies(name) for name, column in columns.items()):
            return None  # all have one shape, and are stacked
        if self._wanted is not None:
            if not set(self._wanted) <= columns.keys():
                return None  # the samples name what is missing
            columns = {name: column for name, column in columns.items() if name in self._wanted}
        return {
            name: self._form(name, tensors) if column is tensors else stack_samples(column, self._form, name)
            for name, column in columns.items()
        }

    def samples(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        """Return the k samples.

        Raises:
            FormatError: a sample cannot be decoded, or lacks a column.
        """
        samples = self._decode_records(records, seeds)
        images = self._images(samples, seeds, apart=True)
        if not images:
            return samples
        found = []
        for i, sample in enumerate(samples):
            made = sample
            for name in images:
                made = replace_value(made, self._path(name, sample), images[name][i])
            found.append(made)
        return found

    def check(self, record: Bytes, index: int, seeds: Seeds | None) -> None:
        """Check that a record can be decoded.

        Raises:
            FormatError: it cannot, or it lacks a column.
        """
        self.samples(StoreRecords(np.array([index]), apart=[record]), seeds)

    def _stack(self, samples: list[Any]) -> Any:
        """Return a batch. The store decides which columns are lists, not the samples of this batch."""
        try:
            if not all(isinstance(sample, dict) for sample in samples):
                return stack_samples(samples, self._form)
            _check_columns(samples)
            return {name: self._column(name, [sample[name] for sample in samples]) for name in samples[0]}
        except UnevenError:
            raise
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise FormatError(
                f"samples of {self._store.format} do not make a batch: {type(error).__name__}: {error}; "
                "a transform can give them one structure"
            ) from error

    def _stack_nested(self, samples: list[Any], images: dict[str, Any]) -> Any:
        """Return a batch with decoded columns somewhere inside of it."""
        paths = {name: self._path(name, samples[0]) for name in images}
        for path in paths.values():
            _check_places(samples, path)
        rest = samples
        for name in images:  # a number in each place makes a tensor there, which the images then replace
            rest = [replace_value(sample, self._path(name, sample), 0) for sample in rest]
        batch = self._stack(rest)
        for name, path in paths.items():
            batch = replace_value(batch, path, images[name])
        return batch

    def _path(self, name: str, sample: Any) -> tuple[str | int, ...]:
        """Return the path of a column in a sample: its name, unless the store has nested ones."""
        return (name,)

    @staticmethod
    def _is_inside(name: str, wanted: Iterable[str]) -> bool:
        """Tell whether a column is inside of one of those wanted."""
        return False

    def _pick(self, sample: Any, wanted: Iterable[str]) -> Any:
        """Return a sample with the wanted columns only."""
        return {name: value for name, value in sample.items() if name in wanted}

    def _column(self, name: str, values: list[Any]) -> Any:
        if any(isinstance(value, (dict, list, tuple)) for value in values):
            return values
        if self._store._varies(name) and all(isinstance(value, np.ndarray) for value in values):
            tensors = [tensor_of(value) for value in values]
            return self._form(name, tensors) if isinstance(tensors[0], Tensor) else tensors
        return stack_samples(values, self._form, name)

    def _samples_of(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        """Return the samples as the store decodes them, with at least the columns that are wanted."""
        if self._wanted is None:
            return self._store._decode(records.indices, records.records)
        return self._store._decode_wanted(records.indices, records.records, self._wanted)

    def _decode_records(self, records: StoreRecords, seeds: Seeds | None) -> list[Any]:
        samples = self._samples_of(records, seeds)
        wanted = self._wanted
        if self._plain:
            return samples
        for name in [*self._decoded, *(wanted or ())]:
            for sample in samples:
                self._check_column(name, sample)
        if wanted is None:
            return samples
        return [self._pick(sample, wanted) for sample in samples]

    def _check_column(self, name: str, sample: Any) -> None:
        if not isinstance(sample, dict) or name not in sample:
            there = f", only {', '.join(sample)}" if isinstance(sample, dict) else ""
            raise FormatError(f"no column {name!r} in a sample of {self._store.format}{there}")

    def _images(self, samples: list[Any], seeds: Seeds | None, apart: bool = False) -> dict[str, Any]:
        """Return each column with a decoder; `apart` gives a list of k values where shapes may vary."""
        if not self._decoders:
            return {}
        return self._decoders.decode(
            lambda name: [value_at(sample, self._path(name, sample)) for sample in samples],
            len(samples),
            seeds,
            self._store._varies,
            lambda name: name,
            apart,
        )


AnyColumns = BatchColumns | DecodedColumns


def _check_columns(samples: list[dict[Any, Any]]) -> None:
    """Check that all samples of a batch have the same columns.

    Raises:
        UnevenError: a sample has other columns than the first; the message names one.
    """
    first = samples[0].keys()
    for place, sample in enumerate(samples):
        if sample.keys() != first:
            name = min(sample.keys() ^ first, key=str)
            here, there = ("lacks", "has") if name in first else ("has", "lacks")
            raise UnevenError(
                f"it {here} column {name!r}, which the first of the batch {there}; "
                "name in fields= the columns that all have",
                place,
            )


def _check_places(samples: list[Any], path: tuple[str | int, ...]) -> None:
    """Check that the lists that a path leads through have one length, so that they make a batch.

    Raises:
        UnevenError: a sample has another number of items than the first.
    """
    for end, part in enumerate(path):
        if isinstance(part, int):
            counts = [len(value_at(sample, path[:end])) for sample in samples]
            place = next((i for i, count in enumerate(counts) if count != counts[0]), None)
            if place is not None:
                raise UnevenError(
                    f"it has {plural(counts[place], 'item')} where a decoded column is, the first of the batch "
                    f"{counts[0]}",
                    place,
                )
