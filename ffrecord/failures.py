"""What became of a record that could not be had → an error for people."""

from errno import ESTALE

from ffrecord._engine import Failure
from ffrecord.errors import ChecksumError, FormatError, TruncatedError, file_error
from ffrecord.opened import OpenedFile


def failure_error(failure: Failure, opened: OpenedFile, index: int, local: int) -> Exception:
    """The error of one failed record, naming file, index and numbers.

    Args:
        failure: as the engine reported it.
        opened: the file.
        index: of the sample among all of the reader.
        local: of the sample in the file.
    """
    path, size, offset, detail = opened.path, failure.size, failure.offset, failure.detail
    where = f"{path}: sample {local}"
    if failure.status == "mismatch":
        return ChecksumError(
            f"Sample {index}: checksum mismached! {where}: CRC-32 {detail:#010x}, stored {failure.stored:#010x} "
            f"({size} bytes at offset {offset})",
            path=path,
            index=index,
            stored=failure.stored,
            computed=detail,
        )
    if failure.status == "failed":
        return file_error(detail, f"Sample {index}: {where}: reading {size} bytes at offset {offset}", path)
    if failure.status == "span":
        return FormatError(
            f"Sample {index}: {where}: offsets {offset} .. {detail}, expected ascending from {opened.data_start} "
            f"to at most {opened.size}"
        )
    if failure.status == "changed":
        return TruncatedError(
            f"Sample {index}: {where}: the file was cut to {detail} bytes; it had {opened.size} when it was opened, "
            f"{opened.data_start} of them tables"
        )
    if failure.status == "replaced":
        return file_error(
            ESTALE,
            f"Sample {index}: {where}: the file was replaced or removed after it was opened, and closed meanwhile",
            path,
        )
    return TruncatedError(f"Sample {index}: length {size} but read {detail} bytes. {where} at offset {offset}")
