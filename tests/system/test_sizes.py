"""Sizes as people write them, alike for every argument and on the command line."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ffrecord import DatasetWriter, convert
from ffrecord.cli.writing_options import size_of
from ffrecord.errors import ArgumentError, ArgumentTypeError
from ffrecord.folders.safe_unpack import unpack_files
from ffrecord.remote.cache.cache import Cache
from ffrecord.sources import MDSReader, RecordIOReader, RecordIOWriter, iter_members
from ffrecord.system.sizes import parse_limit, parse_size

SIZES: dict[Any, int] = {
    "7": 7,
    "12b": 12,
    "500M": 500 * 10**6,
    "500G": 500 * 10**9,
    "1GB": 10**9,
    "500gb": 500 * 10**9,
    "1TB": 10**12,
    "1.5 TB": 1_500_000_000_000,
    "1.5k": 1500,
    "2Ki": 2048,
    "64Gi": 64 << 30,
    " 64 GiB ": 64 << 30,
    "3mib": 3 << 20,
    "0.5kib": 512,
    "1P": 10**15,
    "1PiB": 1 << 50,
    "1.0000000000000000000001PB": 10**15,
    12345: 12345,
    np.int64(9): 9,
}
NONE = ("", "GB", "1e9", "-1GB", "1 G B", "5 XB", "1.GB", ".5G", "1_000", "inf", "nan", "\u0661GB", "9" * 200)


@pytest.mark.parametrize("text", SIZES)
def test_what_is_written(text):
    assert parse_size("size", text) == SIZES[text]
    if isinstance(text, str):
        assert size_of(text) == SIZES[text]


@pytest.mark.parametrize("text", [*NONE, "0", "0.1B", 0, -5, 2**63, "9999999PB"])
def test_what_is_no_size(text):
    with pytest.raises(ArgumentError, match=r"^size is "):
        parse_size("size", text)
    if text in NONE:
        with pytest.raises(argparse.ArgumentTypeError, match="expected bytes, such as 500M"):
            size_of(text)


@pytest.mark.parametrize("value", [1.5, True, b"1GB", ["1GB"], None])
def test_other_types(value):
    with pytest.raises(ArgumentTypeError, match=r"^size is .*, expected an int or a str"):
        parse_size("size", value)


@given(st.integers(1, 2**62))
def test_numbers_stay_as_they_are(size):
    assert parse_size("size", size) == parse_size("size", str(size)) == size


def test_no_limit():
    assert parse_limit("size", None) is None and parse_limit("size", 0, least=0) == 0


def mds(path: Path, size: Any) -> Any:
    (path / "index.json").write_text(json.dumps({"version": 2, "shards": []}))
    return MDSReader(path, cache_bytes=size)


def recordio(path: Path, size: Any) -> Any:
    RecordIOWriter(path / "a.recordio").close()
    return RecordIOReader(path / "a.recordio", expanded_most=size)


def tar(path: Path, size: Any) -> Any:
    (path / "a.tar").write_bytes(bytes(1024))
    return list(iter_members(path / "a.tar", size_most=size))


ARGUMENTS: dict[str, Callable[[Path, Any], Any]] = {
    "shard_size": lambda path, size: DatasetWriter(path / "a", shard_size=size),
    "shard_size of convert": lambda path, size: convert([b"a"], path / "b", shard_size=size, num_workers=0),
    "cache_limit": lambda path, size: Cache(path / "cache", size).close(),
    "max_size": lambda path, size: unpack_files([], [], list, None, path / "c", label="", max_size=size),
    "max_chunk_size": lambda path, size: RecordIOWriter(path / "b.recordio", max_chunk_size=size).close(),
    "cache_bytes": mds,
    "expanded_most": recordio,
    "size_most": tar,
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_takes_them(tmp_path, name):
    """And refuses the same."""
    give = ARGUMENTS[name]
    give(tmp_path, "1.5 mb")
    with pytest.raises(ArgumentError, match=rf"^{name.split()[0]} is '5 XB', expected bytes or text such as '500M'"):
        give(tmp_path, "5 XB")
    with pytest.raises(ArgumentTypeError, match=rf"^{name.split()[0]} is float .*, expected an int or a str"):
        give(tmp_path, 1.5)
