"""Facts about a dataset, found without reading its samples."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ffrecord.cli.sources import FILE_EACH
from ffrecord.cli.terminal.messages import format_error
from ffrecord.cli.terminal.output import format_size
from ffrecord.errors import FFRecordError, FormatError, MissingNamesError
from ffrecord.fields import Field, Schema
from ffrecord.fields.spec import field_spec
from ffrecord.format import manifest
from ffrecord.format.extension import Extension
from ffrecord.reading.ffr_file import OpenedFile
from ffrecord.reading.store import Store

SIZE, PER_SAMPLE = "size", "bytes per sample"
CLASSES_SHOWN = 10


def facts_of(source: str, found: manifest.Manifest | Store) -> dict[str, Any]:
    """Return the facts about a dataset.

    Args:
        source: path of the dataset.
        found: its manifest, if it has dataset.json; else the opened store. A manifest is enough if shards are missing.

    Returns:
        Facts by name: sizes in bytes; column → Field as "schema"; problems in words as "wrong".
    """
    return _facts_of_manifest(source, found) if isinstance(found, manifest.Manifest) else _facts_of_store(source, found)


def format_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Format the facts for people."""
    told: dict[str, Any] = {name: _format_size_or_none(facts[name]) for name in (SIZE, PER_SAMPLE)}
    told["schema"] = _format_fields(facts["schema"], repr)
    if "classes" in facts:
        more = len(facts["classes"]) - CLASSES_SHOWN
        told["classes"] = ", ".join(facts["classes"][:CLASSES_SHOWN]) + (f", and {more:,} more" if more > 0 else "")
    return {**facts, **told, "wrong": facts["wrong"] or None}


def facts_for_json(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the facts for programs: fields become what files have for them."""
    return {**facts, "schema": _format_fields(facts["schema"], field_spec)}


def _format_size_or_none(size: float | None) -> str | None:
    return None if size is None else format_size(size)


def _format_fields(columns: Mapping[str, Field | str] | None, say: Callable[[Field], Any]) -> dict[str, Any] | None:
    """Format each field of a schema with `say`. Columns that are text already stay."""
    if columns is None:
        return None
    return {name: say(field) if isinstance(field, Field) else field for name, field in columns.items()}


def _facts_of_manifest(directory: str, listed: manifest.Manifest) -> dict[str, Any]:
    """Return the facts that dataset.json has, and those of the first shard that has the listed size."""
    size = sum(shard.size for shard in listed.shards)
    facts = _counts(directory, "ffrecord", listed.samples, len(listed.shards), size)
    facts |= {
        "schema": _columns(listed.schema),
        "checksum": "CRC-32",
        "seed": listed.seed,
        "fingerprint": listed.fingerprint,
    }
    sizes = _sizes_on_disk(directory)
    wrong = list(_find_differences(listed.shards, sizes))
    first = next((shard.name for shard in listed.shards if sizes.get(shard.name) == shard.size), None)
    try:
        facts |= _read_writer(os.path.join(directory, first)) if first is not None else {}
    except (FFRecordError, OSError) as error:
        wrong.append(format_error(error))
    return {**facts, "wrong": wrong}


def _facts_of_store(source: str, store: Store) -> dict[str, Any]:
    """Return the facts that any store has."""
    size = None if store.format in FILE_EACH else sum(_file_sizes(store))
    files = store.n if store.format in FILE_EACH else len(store.fnames)
    facts = _counts(source, store.format, store.n, files, size)
    extension = getattr(store, "extension", None)
    facts |= {"schema": _columns(extension.schema) if extension else None, "checksum": store.checksum or "none"}
    try:
        facts["names"] = len(store.keys()) > 0 or store.n == 0
    except MissingNamesError:
        facts["names"] = False
    if getattr(store, "classes", None):
        facts["classes"] = list(store.classes)  # type: ignore[attr-defined]
    facts["fingerprint"] = store.fingerprint()
    facts |= _writer_facts(extension) if store.format == "ffrecord" else {}
    return {**facts, "wrong": list(_find_cut_files(store))}


def _find_cut_files(store: Store) -> Iterable[str]:
    """Yield a message for each file that ends before its last record begins."""
    offsets: list[int] = getattr(store, "last_offsets", [])  # only readers of .ffr files have it
    for path, size, offset in zip(store.fnames, _file_sizes(store), offsets, strict=True) if offsets else ():
        if offset > size:
            yield f"{path} was cut: it has {size} bytes, its last record begins at {offset}"


def _sizes_on_disk(directory: str) -> dict[str, int]:
    with os.scandir(directory) as entries:
        return {entry.name: entry.stat().st_size for entry in entries}


def _find_differences(shards: Iterable[manifest.Shard], sizes: Mapping[str, int]) -> Iterable[str]:
    """Yield a message for each shard that is missing or has another size than listed."""
    for shard in shards:
        size = sizes.get(shard.name)
        if size is None:
            yield f"{shard.name} is missing"
        elif size != shard.size:
            yield f"{shard.name} has {size} bytes, expected {shard.size}"


def _counts(path: str, format: str, samples: int, files: int, size: int | None) -> dict[str, Any]:
    """Return the counts of a dataset.

    Args:
        path: path of the dataset.
        format: its format.
        samples, files: number of samples and of files.
        size: bytes of the files; None if each of very many files would have to be looked at.
    """
    return {
        "path": path,
        "format": format,
        "samples": samples,
        "files": files,
        "bytes": size,
        SIZE: size,
        PER_SAMPLE: size / samples if samples and size is not None else None,
    }


def _columns(schema: Mapping[str, Any] | None) -> dict[str, Field | str] | None:
    """Return column → field of a schema; or "?" → the reason why it cannot be read; None without a schema."""
    if schema is None:
        return None
    try:
        return dict(Schema.from_builtins(schema).fields)
    except FormatError as error:  # a later version wrote it, or this program lacks the fields
        return {"?": str(error)}


def _read_writer(path: str) -> dict[str, Any]:
    """Return the facts that the extension block of a file has about its writer."""
    opened = OpenedFile(path, check=False, whole=False)
    try:
        return _writer_facts(opened.extension)
    finally:
        opened.close()


def _writer_facts(extension: Extension | None) -> dict[str, Any]:
    return {"writer": (extension and extension.writer) or None, "serializer": extension and extension.serializer}


def _file_sizes(store: Store) -> Iterable[int]:
    """Return the size of each file in bytes. A reader whose files are not on this machine knows the sizes itself."""
    known: Iterable[int] | None = getattr(store, "file_sizes", None)  # readers know their sizes
    return map(_size_on_disk, store.fnames) if known is None else known


def _size_on_disk(path: str) -> int:
    if not os.path.isdir(path):
        return os.stat(path).st_size
    return sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
