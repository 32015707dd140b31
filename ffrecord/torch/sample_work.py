"""The work of a dataset that makes samples of records: its arguments `fields`, `decode` and `transform`."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from ffrecord.errors import FormatError, UserFunctionError, describe_error
from ffrecord.fields import Field, Schema
from ffrecord.order import sample_seeds
from ffrecord.reading.store import Store
from ffrecord.torch.images import CenterCrop, Resize
from ffrecord.torch.images.column_decoders import Decoder
from ffrecord.torch.loading.columns import BatchColumns, Seeds
from ffrecord.torch.loading.decoded_columns import AnyColumns, StoreRecords
from ffrecord.torch.loading.functions import UserFunction
from ffrecord.torch.loading.python_store import columns_of
from ffrecord.torch.loading.records import Bytes, Offsets
from ffrecord.torch.samples import RowSamples

__all__ = ["DecodedSamples", "SampleWork"]

Fields = Sequence[str] | Mapping[str, Field | None]

UNSEEDED = (CenterCrop, Resize)  # decoders that make no random choice


class DecodedSamples(NamedTuple):
    """Samples that were decoded.

    Attributes:
        samples: samples of the records that can be decoded.
        kept: places of these records, ascending.
        failures: place and error of each other record.
    """

    samples: list[Any]
    kept: list[int]
    failures: list[tuple[int, FormatError]]


class KnownColumns(NamedTuple):
    """The schema to read records with, and the columns to decode of each."""

    schema: Schema
    columns: BatchColumns


class SampleWork:
    """The columns to decode, the decoders of images, and a function of the user.

    Args:
        fields, decode, transform: arguments of `Dataset`.

    Raises:
        ArgumentTypeError: `transform` is not callable.
    """

    def __init__(
        self, fields: Fields | None, decode: Mapping[str, Decoder] | None, transform: Callable[..., Any] | None
    ) -> None:
        self._fields, self._decode = fields, decode
        self._transform = None if transform is None else UserFunction("transform", transform, "seed")
        self._found: tuple[Store, AnyColumns] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_found": None}

    @property
    def decodes(self) -> bool:
        """True if the work decodes records itself, so that no `process` can do it."""
        return self._fields is not None or self._decode is not None

    @property
    def fields(self) -> Fields | None:
        """The columns to decode; None for all."""
        return self._fields

    @property
    def transforms(self) -> bool:
        """True if there is a function of the user."""
        return self._transform is not None

    @property
    def seeded(self) -> bool:
        """True if the samples depend on random seeds."""
        decoders = self._decode.values() if isinstance(self._decode, Mapping) else ()
        # Decoders of masks and boxes make the choices of their image's decoder, their attribute `image`.
        random = any(not isinstance(getattr(decoder, "image", decoder), UNSEEDED) for decoder in decoders)
        return random or (self._transform is not None and self._transform.seeded)

    def column_types(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return the types of the samples' columns, as text for people, from those of the records."""
        if self.transforms:
            return {}
        wanted = types if self._fields is None else set(self._fields)
        decoders = {name: repr(decoder) for name, decoder in (self._decode or {}).items()}
        return {name: kind for name, kind in {**types, **decoders}.items() if name in wanted or name in decoders}

    def columns(self, reader: Store) -> AnyColumns:
        """Return the columns to decode of the records of `reader`.

        Raises:
            ArgumentError, ArgumentTypeError: there are no such columns, or a decoder's column holds no images.
        """
        # A dataset's reader may be replaced, so the columns belong to one reader.
        if self._found is not None and self._found[0] is reader:
            return self._found[1]
        columns = columns_of(reader, self._fields, self._decode)
        self._found = reader, columns
        return columns

    def lazy_columns(self, reader: Store) -> KnownColumns | None:
        """Return the schema and columns if samples need not be made before they are collated, else None."""
        columns = self.columns(reader)
        if self._decode or self.transforms or not isinstance(columns, BatchColumns) or columns.schema is None:
            return None
        return KnownColumns(columns.schema, columns)

    def draw_seeds(self, positions: Sequence[int], seeds: Sequence[int] | None) -> Seeds | None:
        """Return a random seed for each sample, or None if none is needed.

        Args:
            positions: [k] indices of the samples.
            seeds: [k] seeds that a sampler gave; None to draw one number from torch's default generator. In a worker
                of a loader, torch has seeded it by the loader's generator, the epoch and the worker.
        """
        if not self.seeded:
            return None
        if seeds is not None:
            return np.array(seeds, np.uint64)
        drawn = int(torch.empty((), dtype=torch.int64, device="cpu").random_())
        # Processes that were forked with the same generator have other samples, and a batch may repeat a sample.
        return sample_seeds(drawn, 0, positions) ^ sample_seeds(drawn, 1, np.arange(len(positions)))

    def decode(
        self, reader: Store, indices: list[int], data: Bytes, offsets: Offsets, seeds: Seeds | None, *, together: bool
    ) -> DecodedSamples:
        """Decode records to samples.

        Args:
            reader: reader of the records.
            indices: [k] indices of the records, each in [0, reader.n).
            data, offsets: the records back to back; record i is `data[offsets[i]:offsets[i + 1]]`.
            seeds: uint64 [k], or None.
            together: decode all images of a column into one tensor, which their samples share. Otherwise each sample
                has its own memory.
        """
        columns = self.columns(reader)
        if isinstance(columns, BatchColumns) and columns.schema is None:
            samples = [data[low:high].copy() for low, high in pairwise(offsets.tolist())]
            return DecodedSamples(samples, list(range(len(samples))), [])
        if together or not self._decode:
            try:
                samples = _samples(columns, indices, data, offsets, seeds)
            except FormatError:
                pass  # decoding one by one finds the record
            else:
                shared = bool(self._decode) and not self.transforms
                kept = list(range(len(samples)))
                return DecodedSamples(RowSamples(samples) if shared else samples, kept, [])
        found = DecodedSamples([], [], [])
        for place, (index, (low, high)) in enumerate(zip(indices, pairwise(offsets.tolist()), strict=True)):
            record, seed = data[low:high], None if seeds is None else seeds[place : place + 1]
            try:
                found.samples.extend(_samples(columns, [index], record, np.array([0, high - low]), seed))
            except FormatError as error:
                found.failures.append((place, _name_record(reader, columns, record, index, seed, error)))
            else:
                found.kept.append(place)
        return found

    def transform(self, reader: Store, indices: Sequence[int], samples: list[Any], seeds: Seeds | None) -> list[Any]:
        """Call the user's function for each sample, if there is one.

        Args:
            reader: reader of the samples, for messages.
            indices: [k] indices of the samples in `reader`.
            samples: k samples.
            seeds: uint64 [k], or None.

        Raises:
            UserFunctionError: the function raised; the message names the sample.
        """
        if self._transform is None:
            return samples
        numbers = [0] * len(samples) if seeds is None else seeds.tolist()
        transform, found = self._transform, []
        for sample, index, seed in zip(samples, indices, numbers, strict=True):
            try:
                found.append(transform(sample, seed))
            except Exception as error:  # also StopIteration, which would end a loop
                raise UserFunctionError(
                    f"transform failed on sample {index} ({reader._describe_place(index)}): {describe_error(error)}"
                ) from error
        return found


def _samples(columns: AnyColumns, indices: list[int], data: Bytes, offsets: Offsets, seeds: Seeds | None) -> list[Any]:
    """Return the samples of records.

    Raises:
        FormatError: a record cannot be decoded.
    """
    if not indices:
        return []
    if isinstance(columns, BatchColumns):
        return columns.samples(columns.records_from_packed(data, offsets, np.array(indices)), seeds)
    # A store may return its records as values, which would keep all of `data`: copy them.
    records = [data[low:high].copy() for low, high in pairwise(offsets.tolist())]
    return columns.samples(StoreRecords(np.array(indices), apart=records), seeds)


def _name_record(
    reader: Store,
    columns: AnyColumns,
    record: Bytes,
    index: int,
    seed: Seeds | None,
    error: FormatError,
) -> FormatError:
    """Return the error of a record, with its index, file and column."""
    try:
        columns.check(record, index, seed)
    except FormatError as named:
        error = named
    return reader._name_sample_error(index, error)
