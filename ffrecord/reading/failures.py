"""Errors of records that could not be read, with messages for people."""

from errno import ESTALE
from typing import Any

from ffrecord.engine._engine import Failure
from ffrecord.errors import REOPEN, REPLACED, ChecksumError, FormatError, TruncatedError, file_error, plural
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.span_file import SpanFile, mapping_of


def failure_error(failure: Failure, file: Any, index: int, name: str) -> Exception:
    """Return the error of one failed record; it names file, index and numbers.

    Args:
        failure: the failure that the engine reported.
        file: the file of the record: an `OpenedFile`, a `SpanFile`, or an object with their attributes.
        index: index of the sample among all samples of the reader.
        name: name of the sample in the file, such as "sample 3".
    """
    path, size, offset, detail = file.path, failure.size, failure.offset, failure.detail
    where = f"{path}: {name}"
    if failure.status == "mismatch":
        return ChecksumError(
            f"Sample {index}: checksum mismatch: {where}: {file.checksum} {detail:#010x}, "
            f"stored {failure.stored:#010x} ({plural(size, 'byte')} at offset {offset})",
            path=path,
            index=index,
            stored=failure.stored,
            computed=detail,
        )
    if failure.status == "failed":
        table = mapping_of(file.offsets) if isinstance(file, SpanFile) else None
        if table is not None and table.lost:
            index_path = getattr(table, "path", path)
            return file_error(detail, f"Sample {index}: {where}: a part of the index could not be read", index_path)
        return file_error(
            detail, f"Sample {index}: {where}: reading {plural(size, 'byte')} at offset {offset} failed", path
        )
    if failure.status == "size":
        return FormatError(
            f"Sample {index}: {where}: {plural(size, 'byte')} at offset {offset}, expected {detail}, the size of every "
            "sample"
        )
    if failure.status == "span":
        return FormatError(f"Sample {index}: {where}: {_describe_span(failure, file)}")
    if failure.status == "changed":
        return TruncatedError(f"Sample {index}: {where}: {_describe_truncation(failure, file)}")
    if failure.status == "replaced":
        return file_error(ESTALE, f"Sample {index}: {where}: {REPLACED}", path, REOPEN)
    return TruncatedError(f"Sample {index}: length {size} but read {detail} bytes. {where} at offset {offset}")


def _describe_span(failure: Failure, file: OpenedFile | SpanFile) -> str:
    if isinstance(file, SpanFile):
        found = f"{plural(failure.detail, 'byte')} at offset {failure.offset}"
        return f"{found}, expected a span within the file's {plural(file.size, 'byte')}"
    found = f"offsets {failure.offset} .. {failure.detail}"
    return f"{found}, expected ascending from {file.data_start} to at most {file.size}"


def _describe_truncation(failure: Failure, file: OpenedFile | SpanFile) -> str:
    tables = "" if isinstance(file, SpanFile) else f", {file.data_start} of them tables"
    return f"the file was cut to {plural(failure.detail, 'byte')}; it had {file.size} when it was opened{tables}"
