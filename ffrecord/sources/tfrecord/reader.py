"""Readers of TFRecord files, in place.

A file is indexed in one pass and read through the batch engine, with every CRC-32C compared.
"""

import contextlib
from collections.abc import Collection, Iterator
from itertools import chain
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from ffrecord.errors import ArgumentError, ChecksumError, FFRecordError, name_memory_error, plural
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.indices import spread_indices
from ffrecord.reading.paths import Source
from ffrecord.reading.record_reader import check_io
from ffrecord.reading.span_file import SpanFile
from ffrecord.reading.stats import ReadStats
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.fallback_reader import FallbackReader
from ffrecord.sources.files import add_hint_to_errors, expand
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.inflated import Inflated, OpenStreams
from ffrecord.sources.registry import SUFFIXES
from ffrecord.sources.tfrecord import _tfrecord
from ffrecord.sources.tfrecord.examples import ExampleError, ExampleParser, decoder
from ffrecord.sources.tfrecord.examples_features import Features, FixedFeature
from ffrecord.sources.tfrecord.index import TFRecordIndex, TornRecord, read_indexes, refuse_or_log
from ffrecord.system.closing import close_unless_done, open_all

RUN_SIZE = 512 << 10  # bytes decompressed into one piece of memory, which its records share
GAP = 64 << 10  # most bytes between two records of a run
OPEN_MOST = 8  # most open streams, each with a descriptor, a state of zlib and a block


class Streams:
    """A reader of the records of compressed files.

    Args:
        indexes: indexes of all files.
        check: compare checksums.
    """

    def __init__(self, indexes: list[TFRecordIndex], check: bool) -> None:
        self._indexes, self._check = indexes, check
        self._starts = np.cumsum([0, *(len(each.sizes) for each in indexes)])
        self._packed = np.array([each.stream is not None for each in indexes])
        self._open = OpenStreams(OPEN_MOST)
        self.any = bool(self._packed.any())

    def close(self) -> None:
        """Close the files."""
        with contextlib.ExitStack() as stack:  # closes all of them, also if one fails
            for each in self._indexes:
                if each.stream is not None:
                    stack.callback(each.stream.release)

    def has(self, positions: Indices) -> npt.NDArray[np.bool_]:
        """Return which of the records at `positions`, in [0, n), are in compressed files."""
        return self._packed[self._files_of(positions)]

    def _files_of(self, positions: Indices) -> Indices:
        return np.searchsorted(self._starts, positions, "right") - 1

    def load(self, positions: Indices) -> list[Array | Exception]:
        """Load records of compressed files, with the result of `Store._load`."""
        # In ascending order, each once: a stream goes forwards only.
        wanted, places = np.unique(positions, return_inverse=True)
        files = self._files_of(wanted)
        groups = (self._of_file(int(file), wanted[files == file]) for file in np.unique(files))
        found = list(chain.from_iterable(groups))
        result, given = [], set()
        for place in places.tolist():
            record = found[place]
            # A record that is requested twice gets two arrays, which share no bytes.
            result.append(record.copy() if place in given and not isinstance(record, Exception) else record)
            given.add(place)
        return result

    def _of_file(self, file: int, positions: Indices) -> Iterator[Array | Exception]:
        """Yield records of one file, positions ascending."""
        index = self._indexes[file]
        local = positions - self._starts[file]
        offsets, sizes = index.offsets[local], index.sizes[local]
        stream = cast(Inflated, index.stream)  # not None: `has` selects compressed files only
        # Another thread must not move the stream between these runs.
        with stream.turn:
            for run in _runs(offsets, offsets + sizes):
                yield from self._of_run(index, stream, positions[run], local[run], offsets[run], sizes[run])

    def _of_run(
        self,
        index: TFRecordIndex,
        stream: Inflated,
        positions: Indices,
        local: Indices,
        offsets: Indices,
        sizes: Indices,
    ) -> list[Array | Exception]:
        start = int(offsets[0])
        starts = offsets - start

        try:
            data = np.empty(int(starts[-1] + sizes[-1]), np.uint8)
            self._open.use(stream).fill(data, start)
        except (FFRecordError, OSError, MemoryError) as error:
            # Records of other runs may still be good.
            return [_name_error(f"Sample {at}", index.path, error) for at in positions]
        records: list[Array | Exception] = [data[a:b] for a, b in zip(starts, starts + sizes, strict=True)]
        if self._check:
            stored, computed = index.checksums[local], _tfrecord.checksums(data.data, starts, sizes)
            for place in np.flatnonzero(stored != computed).tolist():
                crc, expected = int(computed[place]), int(stored[place])
                index_of_all = int(positions[place])
                where = f"{index.path}: record {local[place]}"
                records[place] = ChecksumError(
                    f"Sample {index_of_all}: checksum mismatch: {where}: CRC-32C {crc:#010x}, stored {expected:#010x} "
                    f"({plural(sizes[place], 'byte')} at offset {offsets[place]} of the decompressed data)",
                    path=index.path,
                    index=index_of_all,
                    stored=expected,
                    computed=crc,
                )
        return records


def _runs(starts: Indices, ends: Indices) -> list[Indices]:
    """Group spans, in ascending order, that are decompressed into one piece of memory each.

    Spans of a group lie close together.
    """
    pieces = ends // RUN_SIZE
    # A large record has memory of its own, which no small one keeps alive.
    large = ends - starts > RUN_SIZE // 2
    cut = (starts[1:] - ends[:-1] > GAP) | (pieces[1:] != pieces[:-1]) | large[1:] | large[:-1]
    return np.split(np.arange(len(starts)), np.flatnonzero(cut) + 1)


def _name_error(name: str, path: str, error: Exception) -> Exception:
    """Return the error with its record in the message. An OSError stays as it is, so that its errno is not lost."""
    if isinstance(error, OSError) and error.errno:
        return error
    if isinstance(error, MemoryError):
        return name_memory_error(error, f"{name}: {path}")
    return type(error)(f"{name}: {error}")


PROBED = 32  # records that features are inferred from


class TFRecordReader(FallbackReader):
    """The records of TFRecord files: uncompressed, or compressed as a whole by gzip (also of several members) or zlib.

    From a compressed file, reading in sequence takes linear time. Before a record elsewhere, a few megabytes are
    decompressed. Memory is bounded for any file: 20 bytes for each record, and 16 MB for all files.

    Args:
        source: a file; a directory (its files with a suffix of TFRecord, in string order); a glob pattern; or a list or
            tuple of these, in the given order.
        check_data: compare the CRC-32C of every length when opening, and that of every record when reading it. Use
            False for files that other programs wrote without checksums; memory is safe either way.
        io, on_error: see `RecordReader`; a compressed file is read in one way, whatever `io` is.
        index_cache: place to keep the index, see `ffrecord.open`; None for nowhere. Then
            opening scans the file: from record to record if these are large, and all of it if they are small, or
            compressed.
        compression: None to find it out from the first bytes of each file; or "none", "gzip" or "zlib".
        on_torn: what to do about a file whose last record is cut, or in which a length is damaged, since then it is
            unknown where the next record begins: "raise" when the file is opened; or "skip" that record and everything
            behind it, with a warning.
        features: how `samples` parses each record as a `tf.train.Example`: the argument of `ExampleParser`, a parser,
            or "infer" to find the features out from a few records. None: records are not parsed.

    Attributes:
        torn: path → the torn record that was skipped at its end.
        parser: the `ExampleParser` of `features`, or None; its `parse_batch` makes columns from the result of
            `read_packed`.

    Raises:
        FileNotFoundError, IsADirectoryError, ValueError (each also an AssertionError), TypeError: `source`.
        ValueError: another argument.
        TruncatedError (a FormatError): the last record of a file is cut, or its compressed data are.
        ChecksumError: a length does not match its checksum; .path, .stored, .computed.
        FormatError: not a TFRecord; damaged compressed data; an index that does not fit into memory; or records that
            are not examples, if features are to be inferred.
        OSError: a file cannot be read.
    """

    format = "tfrecord"
    checksum = "CRC-32C"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
        compression: Literal["none", "gzip", "zlib"] | None = None,
        on_torn: Literal["raise", "skip"] = "raise",
        features: Features | ExampleParser | Literal["infer"] | None = None,
    ) -> None:
        if on_torn not in ("raise", "skip"):
            raise ArgumentError(f"on_torn is {on_torn!r}, expected 'raise' or 'skip'")
        # Before the files are scanned, which may take long.
        check_io(io)
        indexes = read_indexes(expand(source, SUFFIXES["tfrecord"]), bool(check_data), index_cache, compression)
        self.torn = _check_torn(indexes, on_torn == "skip")
        settings = {"index_cache": index_cache, "compression": compression, "on_torn": on_torn}
        super().__init__(_open(indexes, io == "mmap"), check_data, io=io, on_error=on_error, settings=settings)
        streams = Streams(indexes, bool(check_data))
        self._streams = streams if streams.any else None
        self.parser: ExampleParser | None = None
        probes = np.array(spread_indices(self.n, PROBED), np.int64)  # from all over the files
        # The files are open already.
        with close_unless_done([self]):
            try:
                self.parser = None if features is None else decoder(features, lambda: self.read(probes))
            except ExampleError as error:
                raise self._name_error(error, probes) from None
        self._part = ExampleParser({})  # the parser of some of the features
        # The parser, not "infer": a pickled reader keeps these features.
        self._settings["features"] = self.parser

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        if self.parser is None:
            return super()._decode(positions, records)
        return self._parse(self.parser, positions, records)

    def _decode_columns(self, positions: Indices, records: list[Array], wanted: Collection[str]) -> list[Any]:
        if type(self.parser) is not ExampleParser:  # none, or one of the user
            return self._decode(positions, records)
        features = {name: feature for name, feature in self.parser.features.items() if name in wanted}
        part = self._part
        # A loader asks for the same columns again and again.
        if list(features) != list(part.features):
            self._part = part = ExampleParser(features)
        empty = dict.fromkeys(self.parser.features)
        return [{**empty, **sample} for sample in self._parse(part, positions, records)]

    def _parse(self, parser: ExampleParser, positions: Indices, records: list[Array]) -> list[Any]:
        try:
            return parser.decode(records)
        except ExampleError as error:
            raise self._name_error(error, positions) from None

    def _name_error(self, error: ExampleError, positions: Indices) -> ExampleError:
        """Return the error for one of the records at `positions`, with its file and number in the message."""
        at = int(positions[error.index or 0])
        path, local = self.locate(at)
        return error.of_record(at, f"{path}: record {local}")

    def _varies(self, column: str) -> bool:
        if self.parser is None:
            return super()._varies(column)
        return not isinstance(self.parser.features.get(column), FixedFeature)

    def _record_name(self, file: int, local: int) -> str:
        return f"record {local}"

    def stats(self) -> ReadStats:
        """Return the numbers of all reads so far, also of records of compressed files."""
        stats = super().stats()
        if self._streams is None:
            return stats
        # Records of compressed files are read by it.
        done = self._python_engine
        records, size = stats.records + done.records, stats.bytes + done.bytes
        return stats._replace(batches=stats.batches + done.batches, records=records, bytes=size)

    def _release(self) -> None:
        if self._streams is not None:
            self._streams.close()

    # Records of compressed files

    def _find_special(self, positions: Indices) -> npt.NDArray[np.bool_] | None:
        return None if self._streams is None else self._streams.has(positions)

    def _load_special(self, positions: Indices) -> list[Array | Exception]:
        return [] if self._streams is None else self._streams.load(positions)


def _check_torn(indexes: list[TFRecordIndex], skip: bool) -> dict[str, TornRecord]:
    """Return the torn records of files. Raise an error for them, or log it, as `skip` says."""
    found = {index.path: index.torn for index in indexes if index.torn is not None}
    for path, torn in found.items():
        error = refuse_or_log(path, torn, skip)
        if error is not None:
            with add_hint_to_errors(path):
                raise error
    return found


def _open(indexes: list[TFRecordIndex], whole: bool) -> list[SpanFile]:
    return open_all(
        SpanFile(each.path, each.offsets, each.sizes, each.checksums, "crc32c", whole=whole, status=each.status)
        for each in indexes
    )
