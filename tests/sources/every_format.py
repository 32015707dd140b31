"""The same records in every format that can hold them, written by other programs than ours where there are any."""

import hashlib
import io
import json
import struct
import tarfile
import zipfile
import zlib
from importlib.util import find_spec
from pathlib import Path

import crc32c
import numpy as np
import pytest

import ffrecord
from ffrecord.sources import FixedFeature

RECORDS = [b"", b"a", b"two", bytes(range(256)) * 20, b"x" * 70_000, b"last\0"]
NAMES = [f"member/{index:03d}.bin" for index in range(len(RECORDS))]
GOLDEN = Path(__file__).parents[1] / "golden/seeds"
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
FEATURES = {
    "image": FixedFeature("uint8", (4, 4, 3)),
    "vec": FixedFeature("float32", (4,)),
    "ids": FixedFeature("int64", (3,)),
}


def ffr(folder):
    with ffrecord.FileWriter(folder / "records.ffr", len(RECORDS)) as writer:
        for record in RECORDS:
            writer.write_one(record)
    return folder / "records.ffr"


def packed_folder(folder):
    write_files(folder / "files")
    ffrecord.pack_folder(folder / "files", folder / "folder.ffr")
    return folder / "folder.ffr"


def write_files(folder):
    for name, record in zip(NAMES, RECORDS, strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(record)


def zip_of(method):
    def make(folder):
        with zipfile.ZipFile(folder / "records.zip", "w", method) as archive:
            for name, record in zip(NAMES, RECORDS, strict=True):
                archive.writestr(name, record)
        return folder / "records.zip"

    return make


def tar(folder):
    with tarfile.open(folder / "records.tar", "w") as archive:
        for name, record in zip(NAMES, RECORDS, strict=True):
            member = tarfile.TarInfo(name)
            member.size = len(record)
            archive.addfile(member, io.BytesIO(record))
    return folder / "records.tar"


def masked(data):
    crc = crc32c.crc32c(data)
    return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)


def tfrecord_bytes():
    lengths = [struct.pack("<Q", len(record)) for record in RECORDS]
    return b"".join(n + masked(n) + data + masked(data) for n, data in zip(lengths, RECORDS, strict=True))


def tfrecord(folder):
    (folder / "records.tfrecord").write_bytes(tfrecord_bytes())
    return folder / "records.tfrecord"


def tfrecord_gzip(folder):
    packer = zlib.compressobj(wbits=31)
    (folder / "records.tfrecord.gz").write_bytes(packer.compress(tfrecord_bytes()) + packer.flush())
    return folder / "records.tfrecord.gz"


def recordio(folder):
    """The dialect of PaddlePaddle, two records in a chunk, the second chunk gzipped."""
    chunks = []
    for at in range(0, len(RECORDS), 2):
        payload = b"".join(struct.pack("<I", len(record)) + record for record in RECORDS[at : at + 2])
        method = 2 if at == 2 else 0
        if method:
            packer = zlib.compressobj(wbits=31)
            payload = packer.compress(payload) + packer.flush()
        chunks.append(struct.pack("<5I", 0x01020304, zlib.crc32(payload), method, len(payload), 2) + payload)
    (folder / "records.recordio").write_bytes(b"".join(chunks))
    return folder / "records.recordio"


def lmdb_of(folder):
    lmdb = pytest.importorskip("lmdb", reason="lmdb is not installed")
    with lmdb.open(str(folder / "lmdb"), map_size=1 << 24) as database, database.begin(write=True) as transaction:
        for name, record in zip(NAMES, RECORDS, strict=True):
            transaction.put(name.encode(), record)
    return folder / "lmdb"


def image_folder(folder):
    for index, record in enumerate(RECORDS):
        path = folder / "images" / f"class{index // 3}" / f"{index:03d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record)
    return folder / "images"


def path_list(folder):
    image_folder(folder)
    lines = [f"{folder}/images/class{index // 3}/{index:03d}.jpg {index}\n" for index in range(len(RECORDS))]
    (folder / "list.txt").write_text("".join(lines))
    return folder / "list.txt"


# Format as `Store.format` says it, how it is made, options.
FORMATS = {
    "ffrecord": ("ffrecord", ffr, {}),
    "packed folder": ("packed folder", packed_folder, {}),
    "zip": ("zip", zip_of(zipfile.ZIP_STORED), {}),
    "zip, deflated": ("zip", zip_of(zipfile.ZIP_DEFLATED), {}),
    "tar": ("tar", tar, {}),
    "tfrecord": ("tfrecord", tfrecord, {}),
    "tfrecord, gzip": ("tfrecord", tfrecord_gzip, {}),
    "recordio": ("recordio", recordio, {}),
    "lmdb": ("lmdb", lmdb_of, {}),
    "image folder": ("image folder", image_folder, {}),
    "path list": ("path list", path_list, {"format": "path list"}),
}
# Those that cannot be made here, for programs that make one after the other: tests of a single one skip.
LACKING = set() if find_spec("lmdb") else {"lmdb"}
# Files of the original systems, whose records are not the ones above: format, file, options, what the manifest says.
SEEDS = {
    "recordio, snappy": ("recordio", "a_snappy.recordio", {}, lambda sample: digest(sample["data"])),
    "tfrecord, examples": (
        "tfrecord",
        "examples.tfrecord",
        {"features": FEATURES},
        lambda sample: of_example(**sample),
    ),
    "torchrecord": ("torchrecord", "torchrecord_lmdb", {}, lambda sample: of_picture(**sample)),
    "beton": ("beton", "mixed.beton", {}, lambda sample: of_row(**sample)),
    "mds": ("mds", "mds", {}, lambda sample: of_mds(**sample)),
}


def told(seed):
    """What the manifest says of each sample."""
    about = MANIFEST[SEEDS[seed][1]]
    return about["samples"] if "samples" in about else about["sha256"]


def digest(value):
    return hashlib.sha256(value).hexdigest()


def of_example(image, vec, ids):
    return {"image_sha256": digest(image), "vec": vec.tolist(), "ids": ids.tolist()}


def of_picture(image, label):
    return {"size": [image.shape[1], image.shape[0]], "label": label, "sha256": digest(image)}


def of_row(vec, blob, img, **others):
    shape = list(img.shape)
    return {
        **others,
        "vec_sha256": digest(vec),
        "blob_sha256": digest(blob),
        "img_shape": shape,
        "img_sha256": digest(img),
    }


def of_mds(x, y, t):
    return {"x_sha256": digest(x), "y": y, "t": t}


def names(format, path):
    """The names that records have; None where they have none."""
    files = [f"class{index // 3}/{index:03d}.jpg" for index in range(len(RECORDS))]
    bounds = [0, 7, 15, 23]
    return {
        **dict.fromkeys(("packed folder", "zip", "tar", "lmdb"), NAMES),
        "image folder": files,
        "path list": [f"{path.parent}/images/{name}" for name in files],
        "torchrecord": [f"db{i}/{j}" for i in range(3) for j in range(bounds[i + 1] - bounds[i])],
    }.get(format)


def samples(format):
    """The records above as `store.samples` gives them, arrays as bytes."""
    if format in ("image folder", "path list"):
        labels = [index // 3 if format == "image folder" else index for index in range(len(RECORDS))]
        return [{"image": record, "label": label} for record, label in zip(RECORDS, labels, strict=True)]
    if names(format, GOLDEN) is None:
        return [{"data": record} for record in RECORDS]
    return [{"key": name, "data": record} for name, record in zip(NAMES, RECORDS, strict=True)]


def of_plain(sample):
    return {name: bytes(value) if isinstance(value, np.ndarray) else value for name, value in sample.items()}
