"""Manifest of a dataset directory, `dataset.json`: it lists the shards, so that readers notice a missing one."""

import errno
import hashlib
import itertools
import os
import stat
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ffrecord.errors import FormatError, describe_version, file_error, plural
from ffrecord.format import ffr_layout
from ffrecord.system import untrusted
from ffrecord.system.atomic_file import PartFile, write_all

NAME = "dataset.json"
VERSION = 1
SIZE_MAX = 256 << 20  # bytes; about two million shards. A reader loads no more, whatever the size of the file

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Crc = Annotated[int, Meta(ge=0, le=2**32 - 1)]


class Shard(msgspec.Struct, frozen=True):
    """Entry of one `.ffr` file of a dataset.

    Attributes:
        name: name of the file in the directory.
        samples: number of its samples.
        size: size of the file, bytes.
        crc: CRC-32 of its header, which covers the checksum and offset of every sample.
    """

    name: str
    samples: Count
    size: Count
    crc: Crc

    def __post_init__(self) -> None:
        check_shard_name(self.name)


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of a dataset directory. Unknown keys of later writers are ignored.

    Attributes:
        version: version of the manifest format, 1.
        samples: number of samples in all shards.
        shards: the shards, in the order of their samples.
        schema: columns of the samples, as written by `fields.Schema`; None for plain bytes.
        fingerprint: SHA-256 in hex over the attributes above except names; equal only for equal samples in equal
            shards.
        seed: seed of the shuffle that chose the order, None without one.
    """

    version: int
    samples: Count
    shards: list[Shard]
    schema: dict[str, Any] | None = None
    fingerprint: str = ""
    seed: Count | None = None


class _Kind(msgspec.Struct):
    """Keys that distinguish a manifest from another program's file of that name."""

    version: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    shards: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    fingerprint: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET

    @property
    def foreign(self) -> bool:
        """True if the file has none of the keys that every manifest has; "version" alone is one if it is an int."""
        if not self.shards is self.fingerprint is msgspec.UNSET:
            return False
        return self.version is msgspec.UNSET or not bytes(self.version).strip().isdigit()


class _Version(msgspec.Struct):
    version: int


def build(shards: list[Shard], schema: dict[str, Any] | None = None, seed: int | None = None) -> Manifest:
    """Build the manifest of `shards`, with its total and fingerprint."""
    samples = sum(shard.samples for shard in shards)
    return Manifest(VERSION, samples, shards, schema, fingerprint(shards, schema), seed)


def fingerprint(shards: list[Shard], schema: dict[str, Any] | None) -> str:
    """Return the SHA-256, in hex, over count, size and header CRC-32 of every shard, and over the schema."""
    facts = ([(shard.samples, shard.size, shard.crc) for shard in shards], schema)
    return hashlib.sha256(msgspec.json.encode(facts, order="sorted")).hexdigest()


def load(directory: str) -> Manifest | None:
    """Load the manifest of a directory and check its consistency; None if there is none, or another program's file.

    Raises:
        FormatError: it is damaged, of a later version, or its numbers contradict each other.
        OSError: it cannot be read.
    """
    path = str(Path(directory) / NAME)
    try:
        data = read(path, SIZE_MAX)
    except FileNotFoundError:
        return None
    return parse(data, path)


def parse(data: bytes, path: str) -> Manifest | None:
    """Parse the bytes of a manifest and check its consistency; None for another program's file.

    Args:
        data: content of the file.
        path: path of the file, for messages.

    Raises:
        FormatError: it is damaged, of a later version, or its numbers contradict each other.
    """
    try:
        # Decoded as a whole: a manifest whose first byte was damaged is not a list of another program.
        if data.lstrip().startswith(b"[") and isinstance(msgspec.json.decode(data), list):
            return None
        if msgspec.json.decode(data, type=_Kind).foreign:
            return None
        version = msgspec.json.decode(data, type=_Version).version
        if version != VERSION:
            raise FormatError(describe_version("the manifest", version, VERSION))
        manifest = msgspec.json.decode(data, type=Manifest)
        _check(manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, FormatError) as error:
        raise FormatError(f"{path}: {error}{ffr_layout.hint_of(data)}") from None
    return manifest


def save(directory: str, manifest: Manifest, label: str | None = None, beside: str | None = None) -> None:
    """Write the manifest of a directory durably; an older one is replaced atomically.

    Args:
        directory: path of the directory.
        manifest: the manifest.
        label: final path of the directory, for messages, if it differs from `directory`.
        beside: path of an existing file of the dataset: everybody who may read it may read the manifest.

    Raises:
        FormatError: its numbers contradict each other, or it is too large; nothing was written.
        OSError (also a RuntimeError): writing failed.
    """
    path = str(Path(directory) / NAME)
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"
    try:
        _check(manifest)
        _check_size(len(data), SIZE_MAX)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    part = PartFile(path, follow=False, beside=beside)
    try:
        write_all(part.fd, memoryview(data), 0)
        part.publish()
    except OSError as error:
        if label is None and isinstance(error, RuntimeError):
            raise  # this error names the file already
        final = str(Path(label or directory) / NAME)
        raise file_error(error.errno or errno.EIO, f"{final} could not be written", final) from None
    finally:
        part.discard()


def read(path: str, most: int) -> bytes:
    """Read all bytes of a regular file of bounded size.

    Raises:
        FormatError: it is another kind of file, or larger than `most` bytes.
        FileNotFoundError: it does not exist.
        OSError (also a RuntimeError): it cannot be read.
    """
    try:
        # O_NONBLOCK: otherwise opening a FIFO would wait for a writer.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise FormatError(f"{path} is not a regular file")
            # read() allocates as many bytes as requested. One byte more than the size shows that the file is growing.
            data = file.read(status.st_size + 1) if status.st_size <= most else b""
            if len(data) > status.st_size:
                data += file.read(most + 1 - len(data))
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            raise FormatError(f"{path} is not a regular file") from None
        raise file_error(error.errno or errno.EIO, f"{path} could not be read", path) from None
    try:
        _check_size(max(status.st_size, len(data)), most)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    return data


def _check_size(size: int, most: int) -> None:
    if size > most:
        raise FormatError(f"it has {plural(size, 'byte')}, expected at most {most}")


def _check(manifest: Manifest) -> None:
    """Raise FormatError, without the path, if the manifest contradicts itself."""
    for shard in manifest.shards:
        if shard.size < ffr_layout.tables_end(shard.samples):
            counts = f"{plural(shard.samples, 'sample')} cannot fit in {plural(shard.size, 'byte')}"
            raise FormatError(f"shard {shard.name}: {counts}")
    names = [shard.name for shard in manifest.shards]
    if len(set(names)) != len(names):
        raise FormatError(f"shard {next(a for a, b in itertools.pairwise(sorted(names)) if a == b)} is listed twice")
    total = sum(shard.samples for shard in manifest.shards)
    if total != manifest.samples:
        raise FormatError(f"it says {plural(manifest.samples, 'sample')}, but its shards have {total}")
    computed = fingerprint(manifest.shards, manifest.schema)
    if manifest.fingerprint != computed:
        raise FormatError(f"its fingerprint is {manifest.fingerprint!r}, but its shards have {computed!r}")


def check_shard_name(name: str) -> None:
    """Raise FormatError unless a name is a valid shard name: a plain file name, which leads out of no directory."""
    untrusted.check_name(name, ffr_layout.SUFFIX, "shard name")
