"""Zip archives read in place: against Python's zipfile."""

import io
import os
import pickle
import random
import shutil
import subprocess
import threading
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from zip_builders import Pipe, Raw, lzma_with_mark, lzma_without_mark, raw, zipped

from ffrecord.errors import FFRecordError, MissingFileError, NotAFileError
from ffrecord.sources.zip.reader import ZipReader

MEMBERS = [(f"d{i % 3}/f{i}.bin", bytes([i]) * (i * 997 % 5000)) for i in range(40)]


def write(path, data):
    path.write_bytes(data)
    return str(path)


def everything(reader):
    return [(name, array.tobytes()) for name, array in zip(reader.keys(), reader.read(range(len(reader))), strict=True)]


@pytest.fixture(params=["stored", "deflated", "all methods"])
def archive(request, tmp_path):
    method = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED, "all methods": None}[request.param]
    return write(tmp_path / "a.zip", zipped(MEMBERS, method))


def test_every_form_of_reading(archive):
    expected = [data for _, data in MEMBERS]
    chosen = [3, -1, 3, 0, 17]
    with ZipReader(archive) as reader:
        assert (
            len(reader) == 40 and reader.checksum == "CRC-32" and list(reader.keys()) == [name for name, _ in MEMBERS]
        )
        assert everything(reader) == MEMBERS
        assert [each.tobytes() for each in reader.read(chosen)] == [expected[i] for i in chosen]
        data, offsets = reader.read_packed(chosen)
        assert data.tobytes() == b"".join(expected[i] for i in chosen) and len(offsets) == 6
        assert [each.tobytes() for each in reader] == expected
        assert [each.tobytes() for each in reader.read_range(5, 9)] == expected[5:9]
        assert [each.tobytes() for each in reader[2:8:3]] == expected[2:8:3]
        batches = [[each.tobytes() for each in batch] for batch in reader.iter_batches([[1, 2], [], [39]])]
        assert batches == [expected[1:3], [], [expected[39]]]
        assert reader.samples([4])[0]["key"] == MEMBERS[4][0] and reader.sample(4)["data"].tobytes() == expected[4]
        for array in reader.read([5, 5]):
            array[:] = 0  # theirs alone
        assert reader.read_one(5).tobytes() == expected[5]
        with pytest.raises(IndexError, match="40 >= 40"):
            reader.read([0, 40])
        assert reader.stats().records > 40


def test_by_name(archive):
    contents = dict(MEMBERS)
    with ZipReader(archive) as reader:
        assert reader.read("d1/f4.bin").tobytes() == contents["d1/f4.bin"]
        assert reader.read_one("./d1//f4.bin").tobytes() == contents["d1/f4.bin"]
        names = [name for name, _ in MEMBERS[::-2]]
        assert [each.tobytes() for each in reader.read(names)] == [contents[name] for name in names]
        assert reader.read_packed(names)[0].tobytes() == b"".join(contents[name] for name in names)
        assert [each["key"] for each in reader.samples(("d0/f0.bin",))] == ["d0/f0.bin"]
        assert reader["d2/f2.bin"].tobytes() == contents["d2/f2.bin"]
        with pytest.raises(MissingFileError, match="d1/none does not exist in"):
            reader.read(["d1/f4.bin", "d1/none"])
        with pytest.raises(NotAFileError, match="d1 is not a file but a directory"):
            reader.read("d1")
        with pytest.raises(TypeError):
            reader.read([0, "d1/f4.bin"])


@pytest.mark.parametrize("io_mode", ["auto", "pread", "direct", "mmap"])
def test_io(archive, io_mode):
    with ZipReader(archive, io=io_mode) as reader:
        assert reader.io == io_mode and everything(reader) == MEMBERS


def test_columns(tmp_path):
    members = [(str(i), bytes([i, i + 1, i + 2])) for i in range(9)]
    for method in (zipfile.ZIP_STORED, None):
        with ZipReader(write(tmp_path / "a.zip", zipped(members, method))) as reader:
            last, first = reader.read_columns([8, 0, 4], 3, [(2, 1), (0, 2)])
            assert last.tolist() == [[10], [2], [6]] and first.tolist() == [[8, 9], [0, 1], [4, 5]]
            out = np.zeros((9, 3), np.uint8)
            assert reader.read_columns(range(9), 3, [(0, 3)], [out])[0].tobytes() == b"".join(d for _, d in members)
            with pytest.raises(ValueError, match="12 bytes"):
                reader.read_columns(range(9), 3, [(0, 3)], [out[:4]])
            with pytest.raises(FFRecordError, match=r"3 bytes.*expected 4"):
                reader.read_columns(range(9), 4, [(0, 3)])


names = st.text(st.characters(codec="utf-8", exclude_characters="\0\\"), min_size=1, max_size=12)
members = st.lists(st.tuples(names, st.binary(max_size=300)), max_size=8)


@given(members, st.sampled_from([0, 8, 12, 14, None]), st.binary(max_size=60), st.binary(max_size=40))
def test_against_zipfile(tmp_path_factory, given_members, method, comment, prefix):
    assume(b"PK\5\6" not in comment)  # zipfile finds no archive then
    data = prefix + zipped(given_members, method, comment)
    path = write(tmp_path_factory.mktemp("zip") / "a.zip", data)
    with zipfile.ZipFile(io.BytesIO(data)) as twin, ZipReader(path) as reader:
        files = [info for info in twin.infolist() if not info.filename.endswith("/")]
        assert everything(reader) == [(info.filename, twin.read(info)) for info in files]
        assert [reader.size(i) for i in range(len(reader))] == [info.file_size for info in files]
        for name in {info.filename for info in files}:
            assert reader.read(name).tobytes() == twin.read(name)
            with reader.open(name) as file:
                assert file.read() == twin.read(name)


def test_repeated_names(tmp_path):
    path = write(tmp_path / "a.zip", zipped([("a", b"old"), ("b", b"x"), ("a", b"new")]))
    with ZipReader(path) as reader:
        assert reader.read("a").tobytes() == b"new" and [each.tobytes() for each in reader] == [b"old", b"x", b"new"]
        assert reader.list() == ["a", "b"]


def test_names_of_every_encoding(tmp_path):
    up = b"\x01" + zlib.crc32(b"#U0444.txt").to_bytes(4, "little") + "ф.txt".encode()
    stale = b"\x01" + zlib.crc32(b"renamed since").to_bytes(4, "little") + b"old.txt"
    made = [
        Raw(b"\x81\x84.txt", b"1"),  # code page 437
        Raw("ü".encode(), b"2", flags=1 << 11),
        Raw(b"#U0444.txt", b"3", extra=b"\x75\x70" + len(up).to_bytes(2, "little") + up),
        Raw(b"kept.txt", b"4", extra=b"\x75\x70" + len(stale).to_bytes(2, "little") + stale),
        Raw(b"\xff\xfe", b"5", flags=1 << 11),  # says UTF-8, is not
    ]
    with ZipReader(write(tmp_path / "a.zip", raw(made))) as reader:
        assert list(reader.keys()) == ["üä.txt", "ü", "ф.txt", "kept.txt", "\udcff\udcfe"]
        assert [reader.read(name).tobytes() for name in list(reader.keys())] == [b"1", b"2", b"3", b"4", b"5"]


def test_data_descriptors(tmp_path):
    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as archive:
        for name, data in MEMBERS:
            archive.writestr(name, data)
    with ZipReader(write(tmp_path / "a.zip", pipe.getvalue())) as reader:
        assert reader.members.flags[0] & 8 and everything(reader) == MEMBERS


def test_local_extra_that_differs_from_the_directorys(tmp_path):
    made = [Raw(b"a", b"one", local_extra=b"\xca\xfe\x03\0abc", comment=b"said"), Raw(b"b", b"two", extra=b"\1\0\0\0")]
    with ZipReader(write(tmp_path / "a.zip", raw(made))) as reader:
        assert everything(reader) == [("a", b"one"), ("b", b"two")]


def test_zip64_members(tmp_path):
    """zipfile writes their sizes in extra fields when told that a member may be large."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in MEMBERS:
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(data)
    with ZipReader(path) as reader:
        assert everything(reader) == MEMBERS
    numbers = (5).to_bytes(8, "little") * 2 + bytes(8)
    made = raw([Raw(b"a", b"12345", extra=b"\1\0\x18\0" + numbers)]).replace(b"\0" * 4 + b"a", b"\xff" * 4 + b"a")
    at = made.index(b"PK\1\2")
    made = made[: at + 20] + b"\xff" * 8 + made[at + 28 :]
    with ZipReader(write(path, made)) as reader:
        assert everything(reader) == [("a", b"12345")]


@pytest.mark.parametrize("frames", ["one", "several", "skippable"])
def test_zstd_members(tmp_path, frames):
    zstandard = pytest.importorskip("zstandard")
    content = bytes(range(256)) * 50
    packed = zstandard.compress(content)
    if frames == "several":
        packed = zstandard.compress(content[:999]) + zstandard.compress(content[999:])
    if frames == "skippable":
        packed = b"\x50\x2a\x4d\x18\x02\0\0\0ab" + packed
    path = write(tmp_path / "a.zip", raw([Raw(b"a", packed, 93, crc=zlib.crc32(content), size=len(content))]))
    with ZipReader(path) as reader:
        assert everything(reader) == [("a", content)]
        with reader.open("a") as file:
            assert file.read() == content and file.seek(7) == 7 and file.read(3) == content[7:10]


@pytest.mark.parametrize("size", [0, 300, 2000, 2001, 2033, 60_000])
def test_lzma_that_ends_at_its_size(tmp_path, size):
    """As 7-Zip and WinZip write it: what the last bytes still hold is no content."""
    content = bytes(random.Random(size).choices(b"\0" * 40 + b"\1", k=size))
    packed, sizes = lzma_without_mark(content) if size else lzma_with_mark(b""), {"size": size}
    path = write(tmp_path / "a.zip", raw([Raw(b"a", packed, 14, crc=zlib.crc32(content), **sizes)]))
    with zipfile.ZipFile(path) as archive:
        assert archive.read("a") == content
    with ZipReader(path) as reader:
        assert everything(reader) == [("a", content)]
        with reader.open("a") as file:
            assert file.read() == content and file.seek(size // 2) == size // 2 and file.read() == content[size // 2 :]


def test_several_archives(tmp_path):
    write(tmp_path / "b.zip", zipped(MEMBERS[:10], None))
    write(tmp_path / "c.zip", zipped([]))
    write(tmp_path / "a.ZIP", zipped(MEMBERS[10:]))
    write(tmp_path / "a.txt", b"not taken")
    with ZipReader(tmp_path) as reader:
        assert everything(reader) == MEMBERS[10:] + MEMBERS[:10]
        assert reader.locate(31) == (str(tmp_path / "b.zip"), 1)
        assert reader.read(MEMBERS[0][0]).tobytes() == MEMBERS[0][1]
        assert reader.list() == ["d0", "d1", "d2"]


def test_no_members(tmp_path):
    with ZipReader(write(tmp_path / "a.zip", zipped([]))) as reader:
        assert len(reader) == 0 and reader.read([]) == [] and list(reader) == [] and reader.list() == []


def test_index_cache(archive, tmp_path):
    kept = tmp_path / "kept"
    for _ in range(2):
        with ZipReader(archive, index_cache=kept) as reader:
            assert everything(reader) == MEMBERS
    (file,) = kept.iterdir()
    assert not reader.keys().offsets.flags.writeable  # a mapping, which processes share
    write(tmp_path / "a.zip", zipped(MEMBERS[:3]))
    with ZipReader(archive, index_cache=kept) as reader:
        assert everything(reader) == MEMBERS[:3]
    file.write_bytes(b"FFINDEX2" + bytes(100))
    with ZipReader(archive, index_cache=kept) as reader:
        assert everything(reader) == MEMBERS[:3]


def test_pickle_and_replaced_archive(archive):
    with ZipReader(archive, max_ratio=None, on_error="skip") as reader:
        reader.read([0])
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert everything(copy) == MEMBERS and copy._options() == reader._options()
        pickled = pickle.dumps(reader)
        os.replace(write(Path(f"{archive}.new"), zipped(MEMBERS[::-1])), archive)
        assert reader.read_one(7).tobytes() == MEMBERS[7][1]
        with pytest.raises(OSError, match="replaced or removed after it was opened"):
            reader.open(7)
    with pytest.raises(FFRecordError, match="differ from those"):
        pickle.loads(pickled)


def test_threads_and_fork(archive):
    expected = [data for _, data in MEMBERS]
    with ZipReader(archive) as reader:
        failures = []

        def work(seed):
            indices = np.random.default_rng(seed).integers(0, 40, 200)
            if [each.tobytes() for each in reader.read(indices)] != [expected[i] for i in indices]:
                failures.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        child = os.fork()
        if child == 0:
            os._exit(0 if [each.tobytes() for each in reader.read(range(40))] == expected else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_closed(archive):
    reader = ZipReader(archive)
    reader.close()
    reader.close()
    for call in (lambda: reader.read([0]), lambda: reader.open(0), lambda: reader.read("d0/f0.bin")):
        with pytest.raises(ValueError, match="ZipReader has been closed"):
            call()


@pytest.mark.skipif(shutil.which("zip") is None, reason="the zip program is not installed")
def test_the_zip_program(tmp_path):
    tree = tmp_path / "tree"
    for name, data in MEMBERS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(data)
    (tree / "empty").mkdir()
    (tree / "grün.txt").write_bytes(b"named outside ASCII")
    for options in (["-0"], ["-9"], ["-0", "-fz"], ["-Z", "bzip2"]):
        path = tmp_path / "a.zip"
        path.unlink(missing_ok=True)
        subprocess.run(
            ["zip", "-qr", *options, path, "."], cwd=tree, check=True, env={**os.environ, "LC_ALL": "C.UTF-8"}
        )
        with ZipReader(path) as reader, zipfile.ZipFile(path) as twin:
            assert dict(everything(reader)) == {
                info.filename: twin.read(info) for info in twin.infolist() if not info.is_dir()
            }
            assert len(reader) == 41
            assert reader.is_dir("empty") and reader.list("empty") == []


@pytest.mark.long
def test_a_member_beyond_4_gib(tmp_path):
    path = tmp_path / "large.zip"
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("hole", "w", force_zip64=True) as file:
            for _ in range(4200):
                file.write(bytes(1 << 20))
        archive.writestr("after", b"beyond the first 4 GiB")
    with ZipReader(path) as reader:
        assert reader.read("after").tobytes() == b"beyond the first 4 GiB" and reader.size("hole") == 4200 << 20
        with reader.open("hole") as file:
            assert file.seek(-5, 2) == (4200 << 20) - 5 and file.read() == bytes(5)
