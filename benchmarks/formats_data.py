"""The same records in files of other formats, written by other libraries or by hand, not by the measured code."""

import importlib
import importlib.util
import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import formats_typed
import read_data
from read_data import Records, settle

LIST = "list.txt"  # of paths and labels, beside the files


def name(index: int) -> str:
    return f"member/{index:07d}.bin"


def write_zip(path: Path, records: Records) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for index, record in enumerate(records):
            archive.writestr(name(index), record)


def write_tar(path: Path, records: Records) -> None:
    with tarfile.open(path, "w") as archive:
        for index, record in enumerate(records):
            member = tarfile.TarInfo(name(index))
            member.size = len(record)
            archive.addfile(member, io.BytesIO(record))


def masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def write_tfrecord(path: Path, records: Records) -> None:
    crc32c = importlib.import_module("crc32c").crc32c
    with path.open("wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + struct.pack("<I", masked(crc32c(length))))
            file.write(record)
            file.write(struct.pack("<I", masked(crc32c(record))))


def write_recordio(path: Path, records: Records) -> None:
    """Write PaddlePaddle's dialect, not compressed, in chunks of a megabyte."""
    zlib = importlib.import_module("zlib")
    with path.open("wb") as file:
        chunk: list[bytes] = []
        for index, record in enumerate(records):
            chunk.append(struct.pack("<I", len(record)) + record)
            if index == records.n - 1 or sum(map(len, chunk)) >= 1 << 20:
                payload = b"".join(chunk)
                file.write(struct.pack("<5I", 0x01020304, zlib.crc32(payload), 0, len(payload), len(chunk)) + payload)
                chunk = []


def write_lmdb(path: Path, records: Records) -> None:
    lmdb = importlib.import_module("lmdb")
    room = 2 * len(records.payload) + 100 * records.n + (16 << 20)
    with lmdb.open(str(path), map_size=room, sync=False) as database, database.begin(write=True) as transaction:
        for index, record in enumerate(records):
            transaction.put(name(index).encode(), record, append=True)


def write_folder(path: Path, records: Records) -> None:
    """Write ten classes of files with names of pictures; nobody decodes them here."""
    for label in range(10):
        (path / f"class{label}").mkdir(parents=True)
    for index, record in enumerate(records):
        (path / f"class{index * 10 // records.n}" / f"{index:07d}.jpg").write_bytes(record)


def write_list(path: Path, records: Records) -> None:
    """Write the same files, named by a list with their labels."""
    write_folder(path, records)
    files = sorted(path.rglob("*.jpg"))
    lines = (f"{file} {index * 10 // records.n}\n" for index, file in enumerate(files))
    (path / LIST).write_text("".join(lines))


WRITERS: dict[str, tuple[str, Callable[[Path, Records], None]]] = {
    "ffrecord": ("records.ffr", read_data.write_ffr),
    "zip": ("records.zip", write_zip),
    "tar": ("records.tar", write_tar),
    "tfrecord": ("records.tfrecord", write_tfrecord),
    "recordio": ("records.recordio", write_recordio),
    "lmdb": ("records.lmdb", write_lmdb),
    "image folder": ("records.folder", write_folder),
    "path list": ("records.listed", write_list),
    "mds": ("records.mds", formats_typed.write_mds),
    "beton": ("records.beton", formats_typed.write_beton),
    "torchrecord": ("records.torchrecord", formats_typed.write_torchrecord),
    "parquet": ("records.parquet", formats_typed.write_parquet),
    "huggingface": ("records.huggingface", formats_typed.write_huggingface),
}
PACKAGES = {"lmdb": "lmdb", "torchrecord": "lmdb"}  # that write a format, where the tests' packages may lack them


def usable(formats: Sequence[str]) -> list[str]:
    """Return the formats that can be written here; say which are not measured."""
    found = []
    for format in formats:
        package = PACKAGES.get(format)
        if package is None or importlib.util.find_spec(package):
            found.append(format)
        else:
            print(f"{format}: {package} is not installed, not measured", flush=True)
    return found


def make(directory: Path, format: str, records: Records) -> Path:
    """Write the records to a file or directory of a format, and sync it to disk."""
    file, write = WRITERS[format]
    path = directory / file
    write(path, records)
    for each in [path] if path.is_file() else path.rglob("*"):
        if each.is_file():
            settle(each)
    return path


def example_class() -> Any:
    """Return tf.train.Example as google.protobuf builds it, from a description made here."""
    descriptors = importlib.import_module("google.protobuf.descriptor_pb2")
    pool = importlib.import_module("google.protobuf.descriptor_pool").DescriptorPool()
    kind, file = descriptors.FieldDescriptorProto, descriptors.FileDescriptorProto(name="example.proto", package="t")
    file.syntax = "proto3"

    def message(of: Any, title: str, *fields: tuple[str, int, Any, bool, str]) -> Any:
        made = of.add(name=title)
        for field, number, type_, repeated, refers in fields:
            label = kind.LABEL_REPEATED if repeated else kind.LABEL_OPTIONAL
            made.field.add(name=field, number=number, type=type_, label=label, type_name=refers or None)
        return made

    lists = {"BytesList": kind.TYPE_BYTES, "FloatList": kind.TYPE_FLOAT, "Int64List": kind.TYPE_INT64}
    for title, type_ in lists.items():
        message(file.message_type, title, ("value", 1, type_, True, ""))
    parts = [("bytes_list", 1, ".t.BytesList"), ("float_list", 2, ".t.FloatList"), ("int64_list", 3, ".t.Int64List")]
    feature = message(file.message_type, "Feature", *((n, i, kind.TYPE_MESSAGE, False, of) for n, i, of in parts))
    feature.oneof_decl.add(name="kind")
    for field in feature.field:
        field.oneof_index = 0
    features = message(
        file.message_type, "Features", ("feature", 1, kind.TYPE_MESSAGE, True, ".t.Features.FeatureEntry")
    )
    entry = message(
        features.nested_type,
        "FeatureEntry",
        ("key", 1, kind.TYPE_STRING, False, ""),
        ("value", 2, kind.TYPE_MESSAGE, False, ".t.Feature"),
    )
    entry.options.map_entry = True
    message(file.message_type, "Example", ("features", 1, kind.TYPE_MESSAGE, False, ".t.Features"))
    pool.Add(file)
    factory = importlib.import_module("google.protobuf.message_factory")
    return factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))
