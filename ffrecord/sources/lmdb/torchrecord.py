"""TorchRecord's databases: LMDB environments of `TensorProtos` messages."""

import os
import re
from typing import Any

import numpy as np

from ffrecord.errors import FormatError
from ffrecord.reading.batch_forms import Array
from ffrecord.reading.paths import PathLike, Source, check_type
from ffrecord.reading.store import Indices, OnError
from ffrecord.sources.index_file import IndexCache
from ffrecord.sources.lmdb.index import DATA, LMDBIndex, concatenate, index, names_of_databases
from ffrecord.sources.lmdb.pages import Pages
from ffrecord.sources.lmdb.reader import EnvironmentReader
from ffrecord.sources.lmdb.tensor_protos import sample
from ffrecord.system import filesystems

NAME = re.compile(r"db(0|[1-9][0-9]*)")


class TorchRecordReader(EnvironmentReader):
    """The samples of TorchRecord, in the order of the list that they were written from, unless that was shuffled.

    A key is the database and the number in it, as stored: "db0/07". In each database, keys are padded to a width of its
    own, or not at all; their order is that of the numbers.

    `samples` decodes. It gives {"image": uint8 [height, width, 3], "label": int} for samples of TorchRecord's own
    function, otherwise {"0": …, "1": …}, the tensors, see `sources.lmdb.tensor_protos.sample`.

    Args:
        source: an environment with the databases db0, db1 …, as TorchRecord 0.1 writes it; or a directory of such
            environments without names inside, as 0.0 does. Or a list of either, in the given order.
        check_data, io, on_error, index_cache: see `LMDBReader`.

    Raises:
        FileNotFoundError, ValueError, TypeError, FormatError: see `LMDBReader`; also for databases with other names, a
            missing database, or keys that are not numbers.
    """

    format = "torchrecord"

    def __init__(
        self,
        source: Source,
        check_data: object = True,
        *,
        io: str = "auto",
        on_error: OnError = "raise",
        index_cache: IndexCache = None,
    ) -> None:
        options: dict[str, Any] = {"io": io, "on_error": on_error, "index_cache": index_cache}
        super().__init__(_environments(source), _index, check_data, **options)

    def _decode(self, positions: Indices, records: list[Array]) -> list[Any]:
        return [
            self._decode_one(position, record) for position, record in zip(positions.tolist(), records, strict=True)
        ]

    def _decode_one(self, position: int, record: Array) -> dict[str, Any]:
        try:
            return sample(record)
        except FormatError as error:
            name, _ = self.locate(position)
            raise FormatError(f"Sample {position}: {name}: key {self.keys()[position]!r}: {error}") from None


def _environments(source: Source) -> list[PathLike]:
    """Return the environments of `source`."""
    given = list(source) if isinstance(source, list | tuple) else [source]
    return [environment for each in given for environment in _of_one(check_type(each))]


def _of_one(path: str) -> list[PathLike]:
    """Return the directories db0, db1 … of TorchRecord 0.0; for others, the path itself."""
    if not os.path.isdir(path) or os.path.exists(os.path.join(path, DATA)):
        return [path]
    found = [name for name in os.listdir(path) if os.path.exists(os.path.join(path, name, DATA))]
    return [os.path.join(path, name) for name in _in_order(path, found)] or [path]


def _in_order(path: str, names: list[str]) -> list[str]:
    """Return db0, db1 … by number."""
    expected = [f"db{i}" for i in range(len(names))]
    if sorted(names) != sorted(expected):
        strange = sorted(set(names) - set(expected))
        wanted = f"expected db0 to db{len(names) - 1}, found {strange[:3]}"
        raise FormatError(f"{path}: it has {len(names)} databases, {wanted}")
    return expected


def _index(pages: Pages, index_cache: IndexCache) -> LMDBIndex:
    """Return the records of an environment, database by database, in the order of their numbers."""
    names = [name.decode(errors="surrogateescape") for name in names_of_databases(pages)]
    if names:
        ordered = _in_order(pages.path, names)
        return concatenate([_database(pages, name.encode(), index_cache) for name in ordered])
    return _database(pages, None, index_cache)


def _database(pages: Pages, name: bytes | None, index_cache: IndexCache) -> LMDBIndex:
    found = index(pages, name, index_cache)
    blob, sizes = found.names.blob, np.diff(found.names.offsets)
    if ((blob < ord("0")) | (blob > ord("9"))).any():
        raise FormatError(f"{pages.path}: its keys are {found.names!r}, expected numbers, as TorchRecord writes them")
    if len(sizes) and sizes.min() != sizes.max():
        # LMDB keeps keys of one width in order. A longer key has a larger number than all shorter ones.
        found = found.reordered(np.argsort(sizes, kind="stable"))
    prefix = (
        name if name is not None else os.path.basename(os.path.dirname(filesystems.absolute_path(pages.path))).encode()
    )
    return found.prefixed(prefix + b"/")
