"""TFRecord files read in place: the golden one, those of other programs, and all kinds against a slow twin."""

import hashlib
import json
import logging
import os
import pickle
import struct
import threading
from itertools import pairwise
from pathlib import Path

import children
import numpy as np
import pytest
import tfrecord
import tfrecord_twin as twin
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import index_batches, records

import ffrecord
from ffrecord._crc import crc32c
from ffrecord.errors import ArgumentError, ChecksumError, FFRecordError, FormatError
from ffrecord.reading.record_reader import RecordReader
from ffrecord.sources.inflated import Inflated
from ffrecord.sources.tfrecord.examples import ExampleError, ExampleParser, FixedFeature, MissingFeatureError
from ffrecord.sources.tfrecord.reader import TFRecordReader
from ffrecord.sources.tfrecord.writer import TFRecordWriter

GOLDEN = Path(__file__).parents[1] / "golden/seeds/examples.tfrecord"
ABOUT = json.loads(GOLDEN.with_name("manifest.json").read_text())[GOLDEN.name]
RECORDS = [b"", b"a", bytes(range(256)) * 20, b"", b"x" * 70_000, *(bytes([i]) * i for i in range(50)), b"last\0"]
kinds = pytest.mark.parametrize("kind", twin.PACK)


def write(folder, data, name="x.tfrecord"):
    path = folder / name
    path.write_bytes(data)
    return str(path)


def made(folder, kind=None, contents=RECORDS, name="x.tfrecord"):
    return write(folder, twin.PACK[kind](twin.encode(contents)), name)


def everything(reader):
    return [bytes(record) for record in reader]


# What others wrote


def test_the_golden_file():
    data = GOLDEN.read_bytes()
    expected, good, end = twin.decode(data)
    assert (len(expected), all(good), end) == (ABOUT["n"], True, None)
    with TFRecordReader(GOLDEN) as reader:
        assert (len(reader), reader.format, reader.checksum, reader.torn) == (15, "tfrecord", "CRC-32C", {})
        assert everything(reader) == expected
    features = {"image": FixedFeature("uint8", (4, 4, 3)), "vec": FixedFeature("float32", (4,))}
    with TFRecordReader(GOLDEN, features={**features, "ids": FixedFeature("int64", (3,))}) as reader:
        samples = reader.samples(range(15))
    found = [hashlib.sha256(sample["image"].tobytes()).hexdigest() for sample in samples]
    assert found == [each["image_sha256"] for each in ABOUT["samples"]]
    for name in ("vec", "ids"):
        assert [sample[name].tolist() for sample in samples] == [each[name] for each in ABOUT["samples"]]


def test_what_the_package_writes(tmp_path):
    path = str(tmp_path / "theirs.tfrecord")
    theirs = tfrecord.TFRecordWriter(path)
    for i in range(20):
        theirs.write({"name": (b"x" * i * 700, "byte"), "number": (i, "int"), "vector": ([0.5, i], "float")})
    theirs.close()
    with TFRecordReader(path, features="infer") as reader:
        assert everything(reader) == [bytes(each) for each in tfrecord.tfrecord_iterator(path)]
        samples = reader.samples([3, -1])
    assert [(each["name"], each["number"], each["vector"].tolist()) for each in samples] == [
        (b"x" * i * 700, i, [0.5, i]) for i in (3, 19)
    ]


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_the_package_reads_ours(tmp_path, compression):
    with TFRecordWriter(tmp_path / "ours", compression) as writer:
        for record in RECORDS:
            writer.write(record)
    found = [bytes(each) for each in tfrecord.tfrecord_iterator(str(tmp_path / "ours"), compression_type=compression)]
    assert found == RECORDS


# Against the twin


@kinds
@pytest.mark.parametrize("io", ["auto", "pread", "direct", "mmap"])
def test_all_ways_of_reading(tmp_path, kind, io):
    with TFRecordReader(made(tmp_path, kind), io=io) as reader:
        assert isinstance(reader, RecordReader) and len(reader) == len(RECORDS)
        assert everything(reader) == RECORDS
        order = [5, -1, 4, 4, 0, 20]
        assert [bytes(each) for each in reader.read(order)] == [RECORDS[i] for i in order]
        data, offsets = reader.read_packed(order)
        assert [bytes(data[a:b]) for a, b in pairwise(offsets)] == [RECORDS[i] for i in order]
        assert bytes(reader.read_one(-2)) == RECORDS[-2] and bytes(reader[4]) == RECORDS[4]
        assert [bytes(each) for each in reader.read_range(3, 30)] == RECORDS[3:30]
        assert reader.stats().records >= len(RECORDS)
        assert reader.locate(-1) == (reader.fnames[0], len(RECORDS) - 1)


@settings(max_examples=30)
@given(kind=st.sampled_from(list(twin.PACK)), contents=records(40), data=st.data())
def test_any_records(tmp_path_factory, kind, contents, data):
    with TFRecordReader(made(tmp_path_factory.mktemp("any"), kind, contents)) as reader:
        assert everything(reader) == contents
        batch = data.draw(index_batches(len(contents)))
        assert [bytes(each) for each in reader.read(batch)] == [contents[i] for i in batch]


@kinds
def test_columns(tmp_path, kind):
    contents = [struct.pack("<qd", i, i / 2) for i in range(100)]
    with TFRecordReader(made(tmp_path, kind, contents)) as reader:
        numbers, halves = reader.read_columns([7, 99, 7], 16, [(0, 8), (8, 8)])
        assert numbers.view("<i8").ravel().tolist() == [7, 99, 7] and halves.view("<f8").ravel().tolist() == [
            3.5,
            49.5,
            3.5,
        ]
        assert [len(each[0]) for each in reader.iter_columns([[1], [2, 3]], 16, [(0, 8)])] == [1, 2]
        with pytest.raises(FormatError, match="16 bytes"):
            reader.read_columns([0], 17, [(0, 8)])


@kinds
def test_no_records(tmp_path, kind):
    with TFRecordReader(made(tmp_path, kind, [])) as reader:
        assert (len(reader), everything(reader), reader.read([])) == (0, [], [])
        with pytest.raises(IndexError, match="0 >= 0"):
            reader.read([0])


def test_several_files_of_all_kinds(tmp_path):
    for number, kind in enumerate(twin.PACK):
        made(tmp_path, kind, [f"{kind} {i}".encode() for i in range(10)], f"{number}.tfrecord")
    expected = [f"{kind} {i}".encode() for kind in twin.PACK for i in range(10)]
    (tmp_path / "other.txt").write_text("not a TFRecord")
    for source in (tmp_path, str(tmp_path / "?.tfrecord"), sorted(map(str, tmp_path.glob("*.tfrecord")))):
        with TFRecordReader(source) as reader:
            assert everything(reader) == expected
            order = [35, 2, 17, -1, 2, 22]
            assert [bytes(each) for each in reader.read(order)] == [expected[i] for i in order]
            assert reader.locate(25) == (str(tmp_path / "2.tfrecord"), 5)


def test_compression_as_told(tmp_path):
    path = made(tmp_path, "gzip")
    with pytest.raises(FormatError, match="not a TFRecord"):
        TFRecordReader(path, compression="none")
    with pytest.raises(FormatError, match="zlib data are damaged"):
        TFRecordReader(path, compression="zlib")
    with TFRecordReader(path, compression="gzip") as reader:
        assert everything(reader) == RECORDS
    with pytest.raises(ValueError, match="compression is 'snappy', expected"):
        TFRecordReader(path, compression="snappy")


@pytest.mark.parametrize("first", [b"\x1f\x8b", b"\x78\x9c", b"\x78\x01"])
def test_lengths_that_look_like_compressed_files(tmp_path, first):
    contents = [bytes(int.from_bytes(first, "little"))]
    path = made(tmp_path, None, contents)
    assert Path(path).read_bytes().startswith(first)
    with TFRecordReader(path) as reader:
        assert everything(reader) == contents


def test_without_checksums(tmp_path):
    zeroed = b"".join(struct.pack("<QI", len(each), 0) + each + bytes(4) for each in RECORDS)
    path = write(tmp_path, zeroed)
    with pytest.raises(FormatError, match="record 0 at offset 0: CRC-32C 0x8c28b28a of its length 0, stored"):
        TFRecordReader(path)
    with TFRecordReader(path, check_data=False) as reader:
        assert everything(reader) == RECORDS


# Options


@kinds
def test_index_cache(tmp_path, kind, monkeypatch):
    path = made(tmp_path, kind)
    with TFRecordReader(path, index_cache=True) as reader:
        assert everything(reader) == RECORDS
    kept = [each for each in os.listdir(tmp_path) if each.endswith(".ffindex")]
    assert len(kept) == 1
    monkeypatch.setattr("ffrecord.sources.tfrecord.index._of_file", None)
    monkeypatch.setattr("ffrecord.sources.tfrecord.index._of_stream", None)
    with TFRecordReader(path, index_cache=True) as reader:
        assert everything(reader) == RECORDS and bytes(reader[-1]) == RECORDS[-1]
    monkeypatch.undo()
    made(tmp_path, kind, RECORDS[:7])
    with TFRecordReader(path, index_cache=True) as reader:
        assert everything(reader) == RECORDS[:7]


def test_an_index_without_checks_is_not_taken_for_a_checked_one(tmp_path):
    data = bytearray(twin.encode(RECORDS))
    data[8] ^= 1
    path = write(tmp_path, data)
    with TFRecordReader(path, check_data=False, index_cache=tmp_path / "kept") as reader:
        assert everything(reader) == RECORDS
    with pytest.raises(FormatError, match="of its length 0"):
        TFRecordReader(path, index_cache=tmp_path / "kept")


@kinds
def test_on_error(tmp_path, kind, caplog):
    data = bytearray(twin.encode(RECORDS))
    data[data.index(b"a", 20)] ^= 1
    path = write(tmp_path, twin.PACK[kind](bytes(data)))
    with TFRecordReader(path) as reader:
        with pytest.raises(
            ChecksumError, match=r"Sample 1: .*x.tfrecord: record 1: CRC-32C 0x.*1 byte at offset 28"
        ) as caught:
            reader.read([0, 1])
        error = caught.value
        assert (error.path, error.index, error.stored) == (path, 1, crc32c(b"a")) and error.computed == crc32c(b"`")
        assert [bytes(each) for each in reader.read([0, 2])] == [RECORDS[0], RECORDS[2]]
    with caplog.at_level(logging.CRITICAL), TFRecordReader(path, on_error="skip") as reader:
        assert everything(reader) == [RECORDS[0], *RECORDS[2:]] and reader.skipped == 1
    with caplog.at_level(logging.CRITICAL), TFRecordReader(path, on_error=lambda error: b"instead") as reader:
        assert bytes(reader[1]) == b"instead"
    with TFRecordReader(path, check_data=False) as reader:
        assert bytes(reader[1]) == b"`"


def test_wrong_arguments(tmp_path):
    path = made(tmp_path)
    for options, words in [
        ({"io": "telepathy"}, "io is 'telepathy'"),
        ({"on_error": "hope"}, "on_error is 'hope'"),
        ({"on_torn": "mend"}, "on_torn is 'mend'"),
        ({"features": "guess"}, "features is 'guess'"),
    ]:
        with pytest.raises(ValueError, match=words):
            TFRecordReader(path, **options)
    with pytest.raises(FileNotFoundError):
        TFRecordReader(tmp_path / "missing.tfrecord")
    with pytest.raises(ArgumentError, match="nothing to open"):
        TFRecordReader([])
    with pytest.raises(FFRecordError, match="no names"):
        TFRecordReader(path).keys()


def test_features(tmp_path):
    parser = ExampleParser({"number": FixedFeature("int64")})
    data = [ffrecord.sources.tfrecord.examples.encode_example({"number": i}) for i in range(5)]
    path = made(tmp_path, None, data)
    with TFRecordReader(path, features=parser) as reader:
        assert [int(each["number"]) for each in reader.samples([4, 0])] == [4, 0]
        assert reader.parser.parse_batch(*reader.read_packed([1, 2]))["number"].tolist() == [1, 2]
        with pickle.loads(pickle.dumps(reader)) as copy:
            assert copy.sample(3) == {"number": 3}
    with TFRecordReader(path) as reader:
        assert reader.parser is None and bytes(reader.sample(1)["data"]) == data[1]
    with pytest.raises(FFRecordError):
        TFRecordReader(made(tmp_path, None, [b"\xff\xff"]), features="infer")


def test_errors_of_features_name_file_and_record(tmp_path):
    data = [ffrecord.sources.tfrecord.examples.encode_example({"a": i} if i != 7 else {"b": i}) for i in range(9)]
    paths = [made(tmp_path, None, data[:4], "x"), made(tmp_path, "gzip", data[4:], "y")]
    with TFRecordReader(paths, features={"a": FixedFeature("int64")}) as reader:
        with pytest.raises(
            MissingFeatureError, match=r"^Sample 7: .*/y: record 3: feature 'a': it is missing"
        ) as caught:
            reader.samples([5, 7, 8])
        assert caught.value.index == 7
        with pytest.raises(MissingFeatureError, match=r"Sample 7: .*/y: record 3"):
            reader.sample(-2)
    broken = made(tmp_path, None, [*data[:4], b"\xff\xff"], "z")
    with pytest.raises(ExampleError, match=r"^Sample 4: .*/z: record 4: it is not an Example: at byte 0"):
        TFRecordReader(broken, features="infer")


# Threads, processes, files that change


@kinds
def test_threads(tmp_path, kind):
    wrong = []
    with TFRecordReader(made(tmp_path, kind)) as reader:

        def work(seed):
            for batch in np.random.default_rng(seed).integers(0, len(RECORDS), (20, 8)).tolist():
                if [bytes(each) for each in reader.read(batch)] != [RECORDS[i] for i in batch]:
                    wrong.append(batch)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        batches = [[1, 2, 3], [50], [4, 4]] * 10
        for batch, found in zip(batches, reader.iter_batches(batches, 3), strict=True):
            assert [bytes(each) for each in found] == [RECORDS[i] for i in batch]
        for thread in threads:
            thread.join()
    assert wrong == []


FORKED = """
import os, sys, threading, warnings
from ffrecord.sources.tfrecord.reader import TFRecordReader

warnings.simplefilter("ignore")  # of forks beside threads, which is what this is about
reader = TFRecordReader(sys.argv[1])
expected = [bytes(each) for each in reader]
stop = threading.Event()

def disturb():
    while not stop.is_set():
        reader.read([len(reader) - 1, 0])

thread = threading.Thread(target=disturb)
thread.start()
for turn in range(3):
    pid = os.fork()
    if pid == 0:
        os._exit([bytes(each) for each in reader.read(range(-1, len(reader) - 1))] != expected[-1:] + expected[:-1])
    assert os.waitpid(pid, 0)[1] == 0, turn
    reader.read([turn])
stop.set()
thread.join()
print("done")
"""


@pytest.mark.parametrize("kind", [None, "members"])
def test_forks(tmp_path, kind):
    assert children.run(FORKED, made(tmp_path, kind)) == "done\n"


@kinds
def test_pickles_refuse_other_files(tmp_path, kind):
    path = made(tmp_path, kind)
    with TFRecordReader(path, on_torn="skip", compression=None) as reader:
        pickled = pickle.dumps(reader)
    with pickle.loads(pickled) as copy:
        assert everything(copy) == RECORDS and copy.fingerprint() == reader.fingerprint()
    made(tmp_path, kind, RECORDS[:-1])
    with pytest.raises(FFRecordError, match="differ"):
        pickle.loads(pickled)


@kinds
def test_closed(tmp_path, kind):
    before = len(children.open_files(collect=True))
    reader = TFRecordReader(made(tmp_path, kind))
    everything(reader)
    reader.close()
    reader.close()
    assert reader.closed and len(children.open_files()) == before
    with pytest.raises(RuntimeError, match="has been closed"):
        reader.read([0])


def test_a_compressed_file_is_decompressed_once(tmp_path, monkeypatch):
    """By a pass over all of it, batches of which are read ahead; now and then one overtakes the other."""
    contents = [bytes([i]) * 100_000 for i in range(160)]
    decompressed = [0]
    decompress = Inflated._decompress

    def counting(self, most):
        found = decompress(self, most)
        decompressed[0] += len(found)
        return found

    with TFRecordReader(made(tmp_path, "gzip", contents)) as reader:
        monkeypatch.setattr(Inflated, "_decompress", counting)
        assert everything(reader) == contents
    assert decompressed[0] < 2.2 * 16_000_000


def test_opened_by_content(tmp_path):
    for number, kind in enumerate(twin.PACK):
        with ffrecord.open(made(tmp_path, kind, name=f"{number}")) as reader:
            assert isinstance(reader, TFRecordReader) and everything(reader) == RECORDS
