"""Readers of FFCV's .beton files, in place."""

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from errno import EIO
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ffrecord._crc import crc32
from ffrecord.engine._engine import PACKED, Failure, filesystem_type
from ffrecord.errors import ArgumentError, FormatError, file_error, plural
from ffrecord.kernels._memory import Mapping as FileMapping
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.ffr_file import add_path_to_errors
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import RecordReader
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.beton.layout import ALLOCATION, HEADER, BetonField, descriptors_size, parse
from ffrecord.sources.beton.values import Allocations, Rows, ValuePieces, all_spans, column, pieces, values, why_wrong
from ffrecord.sources.files import add_hint_to_errors, expand
from ffrecord.sources.index_file import IndexCache, cached_index, check_columns
from ffrecord.sources.registry import SUFFIXES
from ffrecord.system import filesystems
from ffrecord.system.atomic_file import read_all, read_up_to
from ffrecord.system.closing import close_unless_done, open_all


class BetonFile(SpanFile):
    """An open .beton file: its header is parsed, its metadata are mapped, and the values of all samples are found.

    Args:
        path: path of the file.
        custom: dtype of the metadata of fields with a class of the user's own, by name.
        check: compare all metadata with the table of allocations.
        whole: map the whole file.
        index_cache: see `cached_index`.

    Attributes:
        layout: layout from the header.
        rows: [n], the metadata, a read-only view of the file.
        allocations: allocations of the file; empty if no field needs them any more.
    """

    def __init__(
        self, path: str, custom: Mapping[str, npt.DTypeLike], check: bool, whole: bool, index_cache: IndexCache
    ) -> None:
        with add_hint_to_errors(path), add_path_to_errors(path):
            # O_NONBLOCK: opening a FIFO must not wait for a writer.
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(fd)
                head = read_up_to(fd, HEADER.size, 0)
                described = read_all(fd, descriptors_size(head, status.st_size), HEADER.size)
                self.layout = layout = parse(head, described, status.st_size, custom)
                network = filesystems.from_type(filesystem_type(fd)).network
                self._metadata = FileMapping(fd, layout.rows_start + layout.n * layout.row.itemsize, network)
                self.rows = np.frombuffer(memoryview(self._metadata), layout.row, layout.n, layout.rows_start)
                name = self._index_name(check)
                found: Any = cached_index(path, name, lambda: self._find(fd, check), index_cache, self._check_kept)
                self.check_all_there(path)
            finally:
                os.close(fd)
        self.allocations = Allocations(found["allocated_at"], found["allocated"])
        super().__init__(path, found["offsets"], found["sizes"], whole=whole, status=status)

    def _index_name(self, check: bool) -> str:
        # The rows also depend on `custom`, which is not in the file.
        row = crc32(repr((self.layout.fields, self.layout.row)).encode())
        return f"beton-1-{row:08x}{'-checked' if check else ''}"

    def _check_kept(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raise unless these are arrays of `_find`.

        The positions of values are compared with the pages when they are read.
        """
        n = check_columns(arrays, offsets=np.int64, sizes=np.int64)
        check_columns(arrays, allocated_at=np.uint64, allocated=np.int64)
        if n != self.layout.n:
            raise FormatError(f"it has {plural(n, 'sample')}, the file has {self.layout.n}")

    def _find(self, fd: int, check: bool) -> dict[str, npt.NDArray[Any]]:
        """Find the values of all samples."""
        layout, kinds = self.layout, {field.kind for field in self.layout.fields if field.has_data}
        if not kinds:
            none = np.zeros(layout.n, np.int64)
            return {"offsets": none, "sizes": none, "allocated_at": np.empty(0, np.uint64), "allocated": none[:0]}
        allocations = Allocations(np.empty(0, np.uint64), np.empty(0, np.int64))
        # Without checks, only JPEG images need the table.
        if check or "image" in kinds:
            data = read_all(fd, layout.allocations * ALLOCATION.itemsize, layout.table_start)
            allocations = Allocations.of(np.frombuffer(data, ALLOCATION), layout)
        offsets, sizes = all_spans(self.rows, layout, allocations, check)
        # The sizes of JPEG images stand nowhere else: keep the allocations.
        kept = slice(None) if "image" in kinds else slice(0)
        where = {"allocated_at": allocations.offsets[kept], "allocated": allocations.sizes[kept]}
        return {"offsets": offsets, "sizes": sizes, **where}

    def check_all_there(self, path: str) -> None:
        """Raise if pages of the metadata were lost. Call it after each access: lost pages are read as zeros.

        Raises:
            OSError: pages were lost.
        """
        if self._metadata.lost:
            raise file_error(EIO, f"{path}: a part of its metadata could not be read", path)


class BetonReader(RecordReader):
    """Samples of FFCV's .beton files, version 2.

    The record of a sample, as `read` gives it, is its part of the pages: the bytes of its images, arrays, bytes and
    JSON, in their order. Numbers are not in the pages: `samples`, `columns` and `metadata` give them.

    Args:
        source: a file, a directory (its *.beton and *.ffcv), a glob pattern, or a list of these; all with the same
            fields.
        check_data: when opening, compare all metadata with the table of allocations: nothing else in such a file can
            contradict the metadata. There are no checksums: damaged values cannot be noticed.
        io, on_error: see `FileReader`.
        index_cache: place to keep the index of metadata and allocations: True for beside the file, or a directory.
        decode: decode JPEG images to arrays in `samples` and `columns`; otherwise they stay bytes, and nothing is lost.
        columns: names of the wanted fields, in this order; all by default.
        custom: numpy dtype of the metadata of each field with a class of the user's own, by name; the file does not
            contain it. `samples` gives that metadata for such a field.

    Attributes:
        fields: name → `BetonField`, for all fields.

    Raises:
        FormatError: not such a file, unfinished, cut short, or inconsistent.
        ValueError: `columns` or `custom` has an unknown name; or the fields of the files differ.
    """

    format = "beton"
    checksum = None

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        decode: bool = False,
        columns: Sequence[str] | None = None,
        custom: Mapping[str, npt.DTypeLike] | None = None,
    ) -> None:
        self._decodes = bool(decode)
        settings: dict[str, Any] = {"index_cache": index_cache, "decode": self._decodes, "custom": dict(custom or {})}
        settings["columns"] = None if columns is None else list(columns)
        given = settings["custom"], bool(check_data), io == "mmap", index_cache
        files = open_all(BetonFile(name, *given) for name in expand(source, SUFFIXES["beton"]))
        with close_unless_done(files):
            for file in files:
                _check_same(files[0], file)
            self._wanted = _choose_fields(files[0].layout.fields, columns)
        self.fields = {field.name: field for field in files[0].layout.fields}
        self._beton = files
        self._firsts = np.cumsum([0, *(file.n for file in files)])
        super().__init__(files, check_data, io=io, on_error=on_error, settings=settings)

    def metadata(self, indices: Iterable[SupportsIndex]) -> Rows:
        """Return the metadata of the samples at `indices` as in the file.

        It is a structured array [k] with a column for each field.
        """
        rows = self._rows(self._normalize_indices(indices))
        named = [(field.name, rows.dtype[field.column]) for field in self.fields.values()]
        # A view: only the names of the columns differ.
        return rows.view(np.dtype(named, align=True))

    def columns(self, indices: Iterable[SupportsIndex]) -> dict[str, Any]:
        """Read the samples at `indices` by columns.

        There is no Python object for each value that is a number or an array.

        Args:
            indices: see `read`.

        Returns:
            Name → array [k, ...] for ints, floats and arrays, and uint8 [k, height, width, 3] if all images are raw and
            of one size; a list of k values, as in `samples`, for others.

        Raises:
            The exceptions of `samples`.
        """
        (data, offsets), positions = self._read_with_positions(PACKED, indices)
        rows, found = self._find_values(positions, np.diff(offsets))
        columns: dict[str, Any] = {}
        for field, starts, sizes in self._wanted_pieces(found):
            starts = starts + offsets[:-1]
            whole = column(field, rows, data, starts)
            if whole is None:
                cuts = [data[low : low + size] for low, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
                columns[field.name] = self._values(field, rows, cuts, positions)
            else:
                columns[field.name] = whole
        return columns

    def fingerprint(self) -> str:
        """Return a hash that identifies these samples, wherever the files are.

        It covers every byte of the metadata. Of the values it covers only the sizes, since it does not read the values.
        """
        digest = hashlib.sha256(super().fingerprint().encode())
        for file in self._beton:
            digest.update(b"%d" % crc32(file.rows.view(np.uint8).data) if file.n else b"")
            file.check_all_there(file.path)
        return digest.hexdigest()

    # Methods for RecordReader

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        return self._decode_columns(positions, records, None)

    def _decode_columns(self, positions: Indices, records: list[Array], wanted: Collection[str] | None) -> list[Any]:
        rows, found = self._find_values(positions, np.array([len(record) for record in records], np.int64))
        columns = []
        for field, starts, sizes in self._wanted_pieces(found):
            if wanted is not None and field.name not in wanted:
                columns.append([None] * len(records))
                continue
            places = zip(records, starts.tolist(), sizes.tolist(), strict=True)
            cuts = [record[low : low + size] for record, low, size in places] if field.has_data else []
            columns.append(self._values(field, rows, cuts, positions))
        names = [field.name for field in self._wanted]
        return [dict(zip(names, each, strict=True)) for each in zip(*columns, strict=True)]

    def _varies(self, column: str) -> bool:
        field = self.fields[column]
        if field.kind != "image":
            return field.dtype is None
        rows = [file.rows[field.column] for file in self._beton if file.n]
        return any((each[side] != rows[0][side][0]).any() for each in rows for side in ("width", "height"))

    def _error(self, failure: Failure, positions: Indices) -> Exception:
        # `all_spans` gives a wrong sample the size -1, which the engine refuses.
        if failure.status != "span":
            return super()._error(failure, positions)
        index = int(positions[failure.order]) % self.n
        number, local = self._engine.locate(index)
        file = self._beton[number]
        wrong = why_wrong(file.rows[local : local + 1], file.layout, file.allocations)
        return FormatError(f"Sample {index}: {file.path}: sample {local}: {wrong}")

    # Samples

    def _rows(self, positions: Indices) -> Rows:
        rows = np.empty(len(positions), self._beton[0].layout.row)
        for file, first, after in zip(self._beton, self._firsts[:-1], self._firsts[1:], strict=True):
            here = (positions >= first) & (positions < after)
            rows[here] = file.rows[positions[here] - first]
            file.check_all_there(file.path)
        return rows

    def _find_values(self, positions: Indices, sizes: Indices) -> tuple[Rows, ValuePieces]:
        """Return the metadata of samples, and the places of their values in their records, which have these sizes.

        Raises:
            FormatError: a record has another size than its metadata say, because `on_error` gave another record.
        """
        rows, parts = self._rows(positions), len([field for field in self.fields.values() if field.has_data])
        found = ValuePieces.empty(parts, len(positions))
        for file, first, after in zip(self._beton, self._firsts[:-1], self._firsts[1:], strict=True):
            here = (positions >= first) & (positions < after)
            for whole, part in zip(found, pieces(rows[here], file.layout, file.allocations, False), strict=True):
                whole[..., here] = part
        other = np.flatnonzero(found.totals != sizes)
        if len(other):
            index = positions[other[0]]
            raise FormatError(
                f"Sample {index}: {self.locate(index)[0]}: it has {plural(int(sizes[other[0]]), 'byte')}, "
                f"its metadata says {found.totals[other[0]]}"
            )
        return rows, found

    def _wanted_pieces(self, found: ValuePieces) -> Iterator[tuple[BetonField, Indices, Indices]]:
        """Yield the wanted fields, each with the starts and the sizes of its values in their records, int64 [k]."""
        with_data = [field.name for field in self.fields.values() if field.has_data]
        places = dict(zip(with_data, range(len(with_data)), strict=True))
        for field in self._wanted:
            if not field.has_data:
                yield field, np.zeros_like(found.starts), np.zeros_like(found.starts)
                continue
            place = places[field.name]
            sizes = found.sizes[place]
            yield field, np.where(sizes > 0, found.offsets[place] - found.starts, 0), sizes

    def _values(self, field: BetonField, rows: Rows, cuts: list[Array], positions: Indices) -> list[Any]:
        try:
            return values(field, rows, cuts, self._decodes)
        except FormatError as error:
            place, _, wrong = str(error).partition(": ")
            index = int(positions[int(place)])
            raise FormatError(f"Sample {index}: {self.locate(index)[0]}: {wrong}") from None


def _choose_fields(fields: Sequence[BetonField], columns: Sequence[str] | None) -> list[BetonField]:
    by_name = {field.name: field for field in fields}
    wanted = list(by_name) if columns is None else list(columns)
    unknown = [name for name in wanted if name not in by_name]
    if unknown or len(set(wanted)) != len(wanted):
        raise ArgumentError(f"columns are {wanted}, expected some of {', '.join(by_name)}, each once")
    return [by_name[name] for name in wanted]


def _check_same(first: BetonFile, other: BetonFile) -> None:
    if other.layout.fields != first.layout.fields:
        raise ArgumentError(f"{other.path}: its fields differ from those of {first.path}; open these files separately")
