"""Directories of Parquet files whose names are values of columns: `year=2024/month=1/part-0.parquet`."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.reading.paths import check_type
from ffrecord.sources import files
from ffrecord.sources.suffixes import ends_as, partition_of
from ffrecord.system.optional import require

MISSING = "__HIVE_DEFAULT_PARTITION__"
NUMBER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as numbers are written: leading zeros would be lost


class PartitionFile(NamedTuple):
    """A file, and what the directories around it say.

    Attributes:
        path: of the file.
        values: column → value as text; None: missing.
    """

    path: str
    values: Mapping[str, str | None]


def expand(source: Sequence[Any], suffixes: Sequence[str]) -> list[PartitionFile]:
    """Return the files that `source` stands for, as `files.expand` finds them, also in partitioned directories.

    Raises:
        FormatError: files of one directory have other partitions.
        As `files.expand`.
    """
    found: list[PartitionFile] = []
    for each in source:
        parts = list(_below(check_type(each), {}, suffixes)) if os.path.isdir(each) else []
        if not any(part.values for part in parts):
            parts = [PartitionFile(path, {}) for path in files.expand(each, suffixes)]
        found += parts
    if not found:
        raise ArgumentError(f"nothing to open in {source!r}")
    for part in found:
        if part.values.keys() != found[0].values.keys():
            raise FormatError(
                f"{part.path}: partitions {list(part.values)}, {found[0].path}: {list(found[0].values)}; convert these "
                "files apart"
            )
    return found


def _below(directory: str, values: Mapping[str, str | None], suffixes: Sequence[str]) -> Iterator[PartitionFile]:
    """Yield the files in a directory and in its partitions, in string order."""
    for name in sorted(os.listdir(directory)):
        path, partition = os.path.join(directory, name), partition_of(name)
        if partition is not None and os.path.isdir(path):
            key, text = map(unquote, partition)
            yield from _below(path, {**values, key: None if text == MISSING else text}, suffixes)
        elif ends_as(name, suffixes) and not name.startswith((".", "_")) and os.path.isfile(path):
            yield PartitionFile(path, values)


def columns(parts: Sequence[PartitionFile], there: Sequence[str]) -> dict[str, Any]:
    """Return the columns that the names of directories are, one value for each file: numbers if all are, else text.

    Args:
        there: columns that the files have themselves; directories do not say these.
    """
    arrow = require("pyarrow", "parquet", "reading Parquet files")
    found = {}
    for name in parts[0].values:
        if name in there:
            continue
        values = [part.values[name] for part in parts]
        numbers = all(value is None or NUMBER.fullmatch(value) for value in values) and any(values)
        held = [value if value is None or not numbers else int(value) for value in values]
        found[name] = arrow.array(held, arrow.int64() if numbers else arrow.string())
    return found
