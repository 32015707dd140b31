"""WebDataset's samples in a tar archive: their members, and the pieces of the archive that they lie in."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord.sources.names import Names, concatenate_names
from ffrecord.sources.tar import _tar
from ffrecord.sources.tar._tar import split_names
from ffrecord.sources.tar.index import Members, Numbers


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
    headers, offsets, sizes = (each[files[found]] for each in (archive.headers, archive.offsets, archive.sizes))
    stops = _stops(offsets + sizes, archive.status.st_size)
    new = begins[found].astype(bool)
    firsts = np.flatnonzero(new)
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


def _stops(data_ends: Numbers, size: int) -> Numbers:
    """Return the ends of members with their padding, from the ends of their data, in an archive of `size` bytes."""
    padded = -(-data_ends // _tar.BLOCK) * _tar.BLOCK
    # An archive may end with its data, without zeros up to a whole block.
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
