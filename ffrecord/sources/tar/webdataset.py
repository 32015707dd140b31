"""WebDataset archives read in place: consecutive members with one key are a sample."""

import os
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.engine._engine import Failure
from ffrecord.errors import FormatError
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import RecordReader, failure_error
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.fallback_reader import FallbackReader
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.names import Names, concatenate_names, name_as_text
from ffrecord.sources.registry import SUFFIXES
from ffrecord.sources.tar import _tar
from ffrecord.sources.tar._tar import split_names
from ffrecord.sources.tar.index import Members, Numbers, is_metadata, log_left_out, members_of, sparse_error
from ffrecord.sources.tar.reader import cut_handler, open_archives
from ffrecord.sources.tar.webdataset_fields import decode_field
from ffrecord.system.braces import expand_path
from ffrecord.system.closing import close_unless_done

LOOKED = 10_000  # names of members left out


class ArchiveSamples(NamedTuple):
    """The samples of an archive, or of several.

    A sample's record is its members, headers included. That is one piece of the archive, or, if something else lies
    between the members, several pieces back to back.

    Attributes:
        offsets, sizes: int64 [n], offset of the first header of each record, and its size, bytes.
        ends: int64 [n], number of members of all samples up to this one.
        names, dots: names of the members, and int64 [m], bytes of the key in each name.
        starts, lengths: int64 [m], offset of each member's data in the record, and their size, bytes.
        pieces: int64 [n], number of pieces of all samples up to this one; only samples in several pieces have any.
        piece_offsets, piece_sizes: offset in the archive and size of each piece, bytes.
        sparse: bool [n], samples with a member stored without its holes.
    """

    offsets: Numbers
    sizes: Numbers
    ends: Numbers
    names: Names
    dots: Numbers
    starts: Numbers
    lengths: Numbers
    pieces: Numbers
    piece_offsets: Numbers
    piece_sizes: Numbers
    sparse: npt.NDArray[np.bool_]


def group_members(archive: Members) -> ArchiveSamples:
    """Group the members of an archive into samples."""
    # WebDataset ignores hard links.
    files = np.flatnonzero(archive.linked == 0)
    names = archive.names if len(files) == len(archive.names) else archive.names.pick(files)
    dots, begins = split_names(names.blob, names.offsets)
    found = np.flatnonzero(dots >= 0)
    _log_left_out(archive.path, names, np.flatnonzero(dots < 0))
    headers, offsets, sizes = (each[files[found]] for each in (archive.headers, archive.offsets, archive.sizes))
    stops = _stops(offsets + sizes, archive.status.st_size)
    new = begins[found].astype(bool)
    firsts = np.flatnonzero(new)
    # Without samples, there is no last end either.
    ends = np.append(firsts[1:], np.int64(len(found)))[: len(firsts)]
    counts = np.diff(ends, prepend=0)
    # Bytes of other things between the members of a sample; then their sums from its first member up to each member.
    gaps = np.where(new, 0, headers - np.append(np.zeros(1, np.int64), stops)[:-1])
    left_out = np.cumsum(gaps)
    left_out -= np.repeat(left_out[firsts], counts)
    starts = headers[firsts]
    pieces, piece_offsets, piece_sizes = _pieces(headers, stops, new, gaps, ends)
    return ArchiveSamples(
        starts,
        stops[ends - 1] - starts - left_out[ends - 1],
        ends,
        names if len(found) == len(names) else names.pick(found),
        dots[found],
        offsets - np.repeat(starts, counts) - left_out,
        sizes,
        pieces,
        piece_offsets,
        piece_sizes,
        np.logical_or.reduceat(archive.sparse[files[found]], firsts) if len(firsts) else np.zeros(0, bool),
    )


def _log_left_out(path: str, names: Names, places: Numbers) -> None:
    # The names of metadata are meant to be left out. There may be millions, so not all are looked at.
    found = [name for name in map(names.__getitem__, places[:LOOKED].tolist()) if not is_metadata(name)]
    if found:
        log_left_out(path, len(found) + max(0, len(places) - LOOKED), found[0])


def _stops(data_ends: Numbers, size: int) -> Numbers:
    """Return the ends of members with their padding, from the ends of their data, in an archive of `size` bytes."""
    padded = -(-data_ends // _tar.BLOCK) * _tar.BLOCK
    # An archive may end with its data, without zeros up to a whole block.
    # A member that was cut keeps its end behind the file: reading it must fail.
    return np.where(data_ends <= size, np.minimum(padded, size), data_ends)


def _pieces(
    headers: Numbers, stops: Numbers, new: npt.NDArray[np.bool_], gaps: Numbers, ends: Numbers
) -> tuple[Numbers, Numbers, Numbers]:
    """Return the pieces of the samples that have gaps; for the arguments see `group_members`."""
    firsts = np.append(np.zeros(1, np.int64), ends)[: len(ends)]
    parted = np.add.reduceat(gaps, firsts) > 0 if len(firsts) else np.zeros(0, bool)
    members = np.repeat(parted, ends - firsts)
    begins = members & (new | (gaps > 0))
    last = members & np.append(new[1:] | (gaps[1:] > 0), True)[: len(new)]
    pieces = np.append(np.zeros(1, np.int64), np.cumsum(begins, dtype=np.int64))[ends]
    return pieces, headers[begins], stops[last] - headers[begins]


def concatenate_samples(parts: Sequence[ArchiveSamples]) -> ArchiveSamples:
    """Join the samples of all archives in one numbering. Offsets stay relative to each archive."""
    if len(parts) == 1:
        return parts[0]
    members = np.cumsum([0, *(len(part.dots) for part in parts[:-1])])
    pieces = np.cumsum([0, *(len(part.piece_sizes) for part in parts[:-1])])
    return ArchiveSamples(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.ends + count for part, count in zip(parts, members, strict=True)]),
        concatenate_names([part.names for part in parts]),
        np.concatenate([part.dots for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.lengths for part in parts]),
        np.concatenate([part.pieces + count for part, count in zip(parts, pieces, strict=True)]),
        np.concatenate([part.piece_offsets for part in parts]),
        np.concatenate([part.piece_sizes for part in parts]),
        np.concatenate([part.sparse for part in parts]),
    )


class SamplePieces(RecordReader):
    """The pieces of samples that are not in one piece, as records of their own.

    Args:
        files: the archives, with the pieces as their tables.
        samples: the samples of all archives.
        name: returns the name of a sample for messages, by its number.
    """

    format = "webdataset"

    def __init__(self, files: list[SpanFile], samples: ArchiveSamples, name: Callable[[int], str], io: str) -> None:
        self._ends, self._name = samples.pieces, name
        super().__init__(files, False, io=io)

    def load(self, positions: Indices) -> list[Array | Exception]:
        """Load samples, with the result of `Store._load`."""
        ends = self._ends[positions]
        # `where` evaluates both sides: -1 is a valid index, and its value is not used.
        starts = np.where(positions > 0, self._ends[positions - 1], 0)
        found = self._load(np.concatenate([np.arange(a, b) for a, b in zip(starts, ends, strict=True)]))
        cuts = np.cumsum([0, *(ends - starts)]).tolist()
        return [_join_pieces(found[a:b]) for a, b in pairwise(cuts)]

    def _error(self, failure: Failure, positions: Indices) -> Exception:
        piece = int(positions[failure.order])
        # The engine's failure names a piece, and users know only samples.
        number, _ = self._engine.locate(piece)
        sample = int(np.searchsorted(self._ends, piece, "right"))
        return failure_error(failure, self._files[number], sample, self._name(sample))


def _join_pieces(pieces: list[Array | Exception]) -> Array | Exception:
    """Concatenate the pieces of a sample; return the error if one failed."""
    arrays = []
    for piece in pieces:
        if isinstance(piece, Exception):
            return piece
        arrays.append(piece)
    return np.concatenate(arrays)


class WebDatasetReader(FallbackReader):
    """Samples of WebDataset's archives: consecutive members whose names are the same up to the first dot.

    In the name `train/0001.seg.PNG`, `train/0001` is the key and `seg.png` the field. As in WebDataset, some members
    belong to no sample: those that are not regular files, names without a dot in their last part, and `__...__` at the
    top level with everything below. A key that comes again after another is another sample.

    The record of a sample is the piece of its archive with its members, headers included. If something else lies
    between them, it is the pieces, back to back. With zeros behind it, a record is an archive of its own.

    Args:
        source: see `TarReader`; also, braces are expanded, as in `data-{000..009}.tar`.
        check_data, io, on_error, index_cache, ignore_zeros: see `TarReader`.
        decode: `samples` decodes fields by the end of their names: txt, text and transcript to str; cls, cls2, index,
            inx, id and count to int; json and jsn; npy; jpg, jpeg, png, webp, bmp and gif (the first frame) to uint8
            [H, W, 3], RGB. Pickles are never loaded: pkl, pyd, pth and all others stay bytes.

    Raises:
        The exceptions of `TarReader`.
    """

    __slots__ = ("_any_special", "_decodes", "_keys", "_samples")

    format: ClassVar[str] = "webdataset"
    _inner: SamplePieces | None = None

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        ignore_zeros: bool = False,
        decode: bool = False,
    ) -> None:
        self._decodes = bool(decode)
        settings: dict[str, Any] = {"index_cache": index_cache, "ignore_zeros": bool(ignore_zeros)}
        paths = expand(_without_braces(source), SUFFIXES["tar"])
        archives = members_of(paths, cut=cut_handler(on_error), **settings)
        parts = [group_members(archive) for archive in archives]
        files = open_archives(archives, io, [(part.offsets, part.sizes) for part in parts])
        settings["decode"] = self._decodes
        super().__init__(files, check_data, io=io, on_error=on_error, settings=settings)
        self._samples = concatenate_samples(parts)
        self._keys: Names | None = None
        self._any_special = bool(len(self._samples.piece_sizes) or self._samples.sparse.any())
        if len(self._samples.piece_sizes):
            # The files are open already if this fails.
            with close_unless_done([self]):
                self._inner = self._open_pieces(archives, parts)  # pyright: ignore[reportIncompatibleVariableOverride]

    def _open_pieces(self, archives: Sequence[Members], parts: Sequence[ArchiveSamples]) -> SamplePieces:
        way = "auto" if self._io == "mmap" else self._io
        spans = [(part.piece_offsets, part.piece_sizes) for part in parts]
        return SamplePieces(open_archives(archives, way, spans), self._samples, self._sample_name, way)

    def keys(self) -> Names:
        """Return the key of each sample, as stored. Keys may repeat; `keys().find(key)` is the last one."""
        if self._keys is None:
            firsts = np.append(np.zeros(1, np.int64), self._samples.ends)[: self.n]
            self._keys = self._samples.names.pick(firsts, self._samples.dots[firsts])
        return self._keys

    def _decode(self, positions: Numbers, records: list[Array]) -> list[dict[str, Any]]:
        """Return dicts of samples: "__key__", and the fields by their lower-case names.

        A field is an array over the record, or its decoded value.

        Raises:
            FormatError: a sample has a field twice, or a field cannot be decoded.
        """
        return self._decode_columns(positions, records, None)

    def _decode_columns(
        self, positions: Numbers, records: list[Array], wanted: Collection[str] | None
    ) -> list[dict[str, Any]]:
        samples = [self._fields(each, record) for each, record in zip(positions.tolist(), records, strict=True)]
        if not self._decodes:
            return samples
        pairs = zip(positions.tolist(), samples, strict=True)
        return [self._decode_fields(position, sample, wanted) for position, sample in pairs]

    def _fields(self, position: int, record: Array) -> dict[str, Any]:
        """Return a sample as it is without decode=True."""
        members, start, stop = self._samples, self._first(position), int(self._samples.ends[position])
        sample: dict[str, Any] = {"__key__": self.keys()[position]}
        # A field of this name would replace the key.
        seen: dict[str, int] = {"__key__": -1}
        starts, lengths = members.starts[start:stop].tolist(), members.lengths[start:stop].tolist()
        # `on_error` may have given another record in its place.
        if starts[-1] + lengths[-1] > len(record):
            raise self._sample_error(
                position,
                f"the record has {len(record)} bytes, expected at least {starts[-1] + lengths[-1]} for its members",
            )
        for member, offset, size in zip(range(start, stop), starts, lengths, strict=True):
            field = self._field(member)
            if field in seen:
                first = repr(members.names[seen[field]]) if seen[field] >= 0 else "the key"
                raise self._sample_error(
                    position, f"field {field!r} occurs twice: as {first} and as {members.names[member]!r}"
                )
            seen[field] = member
            sample[field] = record[offset : offset + size]
        return sample

    def _varies(self, column: str) -> bool:
        return not self._decodes

    def _decode_fields(self, position: int, sample: dict[str, Any], wanted: Collection[str] | None) -> dict[str, Any]:
        names = (name for name in sample if name != "__key__" and (wanted is None or name in wanted))
        try:
            return sample | {name: decode_field(name, sample[name]) for name in names}
        except FormatError as error:
            raise self._sample_error(position, str(error)) from None

    def _field(self, member: int) -> str:
        names = self._samples.names
        start = names.offsets[member] + self._samples.dots[member] + 1
        # In lower case, as WebDataset does by default.
        return name_as_text(names.blob[start : names.offsets[member + 1]].tobytes()).lower()

    def _first(self, position: int) -> int:
        """Return the first member of a sample."""
        return int(self._samples.ends[position - 1]) if position else 0

    def _sample_error(self, position: int, what: str) -> FormatError:
        path, _ = self.locate(position)
        return FormatError(
            f"{path}: sample {position}, {self.keys()[position]!r} at offset {self._samples.offsets[position]}: {what}"
        )

    def _record_name(self, file: int, local: int) -> str:
        return self._sample_name(sum(self._files[i].n for i in range(file)) + local)

    def _sample_name(self, position: int) -> str:
        return f"sample {self.keys()[position]!r}"

    def _find_special(self, positions: Numbers) -> npt.NDArray[np.bool_] | None:
        if not self._any_special:
            return None
        pieces = self._samples.pieces
        parted: npt.NDArray[np.bool_] = pieces[positions] > np.where(positions > 0, pieces[positions - 1], 0)
        return parted | self._samples.sparse[positions]

    def _load_special(self, positions: Numbers) -> list[Array | Exception]:
        result: list[Any] = [
            self._sparse_error(position) if sparse else None
            for position, sparse in zip(positions.tolist(), self._samples.sparse[positions].tolist(), strict=True)
        ]
        whole = [place for place, error in enumerate(result) if error is None]
        if whole and self._inner is not None:
            for place, record in zip(whole, self._inner.load(positions[whole]), strict=True):
                result[place] = record
        return result

    def _sparse_error(self, position: int) -> FormatError:
        path, _ = self.locate(position)
        return sparse_error(f"Sample {position}: {path}: {self._sample_name(position)}: a member")


def _without_braces(source: Source) -> Source:
    """Return `source` with braces expanded, except in names of existing files."""
    if isinstance(source, list | tuple):
        return [path for each in source for path in _expand_path(each)]
    return _expand_path(source) if isinstance(source, str | os.PathLike) else source


def _expand_path(path: Any) -> list[Any]:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    return expand_path(name) if isinstance(name, str) and "{" in name else [path]
