"""WebDataset's archives read in place: members of one key are a sample."""

import os
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ffrecord import _tar
from ffrecord._webdataset import split
from ffrecord.errors import FormatError
from ffrecord.paths import Source
from ffrecord.record_reader import RecordReader
from ffrecord.sources.braces import expand_braces
from ffrecord.sources.files import expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.names import Names, joined
from ffrecord.sources.suffixes import SUFFIXES
from ffrecord.sources.tar import on_cut, opened
from ffrecord.sources.tar_index import Members, Numbers, members_of, select
from ffrecord.sources.webdataset_fields import decode_field
from ffrecord.store import OnError

Array = npt.NDArray[np.uint8]


class Samples(NamedTuple):
    """The samples of an archive.

    Attributes:
        offsets, sizes: of each, bytes: from the first header of its first member to the end of its last one.
        ends: how many members all samples up to this one have; int64 [n], as the two before.
        names, dots: of the members: int64 [m] of the latter, bytes of the key.
        starts, lengths: of the members' data: offset in their sample, and size, bytes; int64 [m].
    """

    offsets: Numbers
    sizes: Numbers
    ends: Numbers
    names: Names
    dots: Numbers
    starts: Numbers
    lengths: Numbers


class WebDatasetReader(RecordReader):
    """Samples of WebDataset's archives: consecutive members whose names are the same up to the first dot.

    Of the name `train/0001.seg.PNG`, `train/0001` is the key and `seg.png` the field. As in WebDataset, members that
    are no regular files, names without a dot in their last part, and `__...__` at the top with all below are of no
    sample; and a key that comes again after another is another sample. A sample's record is the piece of its archive
    that its members are in, headers included: with zeros behind it, an archive of its own.

    Args:
        source: as for `TarReader`; and braces are expanded, as in `data-{000..009}.tar`.
        check_data, io, on_error, index_cache, ignore_zeros: as for `TarReader`.
        decode: have `samples` decode fields by the end of their names: txt, text and transcript to str; cls, cls2,
            index, inx, id and count to int; json and jsn; npy; jpg, jpeg and png to uint8 [H, W, 3], RGB. Pickles are
            never loaded: pkl, pyd, pth and all others stay bytes.

    Raises:
        As for `TarReader`.
    """

    __slots__ = ("_decodes", "_ignore_zeros", "_index_cache", "_keys", "_samples")

    format: ClassVar[str] = "webdataset"

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
        self._index_cache, self._ignore_zeros, self._decodes = index_cache, bool(ignore_zeros), bool(decode)
        archives = members_of(
            expand(_without_braces(source), SUFFIXES["tar"]),
            index_cache,
            ignore_zeros=self._ignore_zeros,
            cut=on_cut(on_error),
        )
        parts = [_grouped(archive) for archive in archives]
        files = opened(archives, io, [(part.offsets, part.sizes) for part in parts])
        super().__init__(files, check_data, io=io, on_error=on_error)
        self._samples = _all(parts)
        self._keys: Names | None = None

    def keys(self) -> Names:
        """The key of each sample, as stored. Keys may be repeated; `keys().find(key)` is the last one."""
        if self._keys is None:
            firsts = np.append(np.zeros(1, np.int64), self._samples.ends)[: self.n]
            self._keys = _heads(self._samples.names, firsts, self._samples.dots[firsts])
        return self._keys

    def _decode(self, positions: Numbers, records: list[Array]) -> list[dict[str, Any]]:
        """Dicts: "__key__", and for each field, its name in lower case, an array over the record, or its value.

        Raises:
            FormatError: a field that a sample has twice, or that cannot be decoded.
        """
        return [self._sample(position, record) for position, record in zip(positions.tolist(), records, strict=True)]

    def _sample(self, position: int, record: Array) -> dict[str, Any]:
        members, start, stop = self._samples, self._first(position), int(self._samples.ends[position])
        sample: dict[str, Any] = {"__key__": self.keys()[position]}
        seen: dict[str, int] = {"__key__": -1}
        starts, lengths = members.starts[start:stop].tolist(), members.lengths[start:stop].tolist()
        if starts[-1] + lengths[-1] > len(record):
            raise self._wrong(position, f"{len(record)} bytes, its members have {starts[-1] + lengths[-1]}")
        for member, offset, size in zip(range(start, stop), starts, lengths, strict=True):
            field = self._field(member)
            if field in seen:
                first = members.names[seen[field]] if seen[field] >= 0 else "its key"
                raise self._wrong(position, f"field {field!r} twice: {first!r} and {members.names[member]!r}")
            seen[field] = member
            sample[field] = record[offset : offset + size]
        return self._decoded(position, sample) if self._decodes else sample

    def _varies(self, column: str) -> bool:
        return not self._decodes

    def _decoded(self, position: int, sample: dict[str, Any]) -> dict[str, Any]:
        try:
            return {name: value if name == "__key__" else decode_field(name, value) for name, value in sample.items()}
        except FormatError as error:
            raise self._wrong(position, str(error)) from None

    def _field(self, member: int) -> str:
        names = self._samples.names
        start = names.offsets[member] + self._samples.dots[member] + 1
        return names.blob[start : names.offsets[member + 1]].tobytes().decode(errors="surrogateescape").lower()

    def _first(self, position: int) -> int:
        """The first member of a sample."""
        return int(self._samples.ends[position - 1]) if position else 0

    def _wrong(self, position: int, what: str) -> FormatError:
        path, _ = self.locate(position)
        return FormatError(
            f"{path}: sample {position}, {self.keys()[position]!r} at offset {self._samples.offsets[position]}: {what}"
        )

    def _record_name(self, file: int, local: int) -> str:
        first = sum(self._files[i].n for i in range(file))
        return f"sample {self.keys()[first + local]!r}"

    def _options(self) -> dict[str, Any]:
        return {
            **super()._options(),
            "index_cache": self._index_cache,
            "ignore_zeros": self._ignore_zeros,
            "decode": self._decodes,
        }


def _without_braces(source: Source) -> Source:
    """`source` with braces expanded, but for names of files that are there."""
    if isinstance(source, list | tuple):
        return [path for each in source for path in _expanded(each)]
    return _expanded(source) if isinstance(source, str | os.PathLike) else source


def _expanded(path: Any) -> list[Any]:
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "{" not in name or os.path.exists(name):
        return [path]
    return expand_braces(name)


def _grouped(archive: Members) -> Samples:
    """Part the members of an archive into samples."""
    # WebDataset takes hard links for no files.
    names = Names(*select(archive.names.blob, archive.names.offsets, np.flatnonzero(archive.linked == 0)))
    dots, begins = split(names.blob, names.offsets)
    found = np.flatnonzero(dots >= 0)
    headers, offsets, sizes = (
        column[archive.linked == 0][found] for column in (archive.headers, archive.offsets, archive.sizes)
    )
    firsts = np.flatnonzero(begins[found])
    ends = np.append(firsts[1:], np.int64(len(found)))[: len(firsts)]
    data_ends = offsets[ends - 1] + sizes[ends - 1]
    padded = -(-data_ends // _tar.BLOCK) * _tar.BLOCK
    # An archive may end with its data, without zeros up to a whole block.
    stops = np.where(data_ends <= archive.status.st_size, np.minimum(padded, archive.status.st_size), data_ends)
    starts = headers[firsts]
    return Samples(
        starts,
        stops - starts,
        ends,
        Names(*select(names.blob, names.offsets, found)),
        dots[found],
        offsets - np.repeat(starts, np.diff(ends, prepend=0)),
        sizes,
    )


def _all(parts: Sequence[Samples]) -> Samples:
    """The samples of all archives, numbered through; offsets stay those in their archives."""
    if len(parts) == 1:
        return parts[0]
    counts = np.cumsum([0, *(len(part.dots) for part in parts[:-1])])
    return Samples(
        np.concatenate([part.offsets for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        np.concatenate([part.ends + count for part, count in zip(parts, counts, strict=True)]),
        joined([part.names for part in parts]),
        np.concatenate([part.dots for part in parts]),
        np.concatenate([part.starts for part in parts]),
        np.concatenate([part.lengths for part in parts]),
    )


def _heads(names: Names, chosen: Numbers, sizes: Numbers) -> Names:
    """The first `sizes` bytes of the names at `chosen`."""
    offsets = np.zeros(len(chosen) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    places = np.repeat(names.offsets[chosen] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return Names(names.blob[places], offsets)
