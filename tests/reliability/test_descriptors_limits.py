"""Load (guarantee G7): readers of many files beside the limit of descriptors of their process."""

from pathlib import Path

import builders
import children
import pytest
from builders import IO_MODES
from figures import counts

in_every_mode = pytest.mark.parametrize("io", IO_MODES)


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    """Forty shards of four samples."""
    path = tmp_path_factory.mktemp("shards")
    for i in range(40):
        builders.write_samples(path / f"{i:02}.ffr", builders.records([100 + i, 0, 5000, 3], i))
    return path


LIMITED = """
import errno, os, resource, sys
import builders
from children import descriptors
from ffrecord import FileReader
names, io = sorted(os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1])), sys.argv[2]
soft = 40
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
reader = FileReader(names, io=io)
assert len(descriptors()) < soft // 4 * 2 + 10
first = builders.read_all(reader)
assert reader.stats().open_files <= soft // 4
taken = []
"""


@in_every_mode
def test_descriptors_are_taken_by_others(directory, io):
    """Idle files of the reader make room; when it has none, the error says what is missing."""
    code = f"""{LIMITED}
try:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))
except OSError as error:
    assert error.errno == errno.EMFILE
assert builders.read_all(reader) == first
assert builders.read_all(reader) == first
"""
    children.run(code, directory, io)


@pytest.mark.parametrize("io", builders.COPYING_MODES)
def test_no_descriptor_at_all(directory, io):
    code = f"""{LIMITED}
resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))  # those that are open stay so
try:
    builders.read_all(reader)
except OSError as error:
    assert error.errno == errno.EMFILE and error.filename in names and error.filename in str(error), error
else:
    sys.exit("no error")
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
assert builders.read_all(reader) == first
"""
    children.run(code, directory, io)


SHARING = f"""{LIMITED}
import threading
import numpy as np

def batches(seed):
    random = np.random.default_rng(seed)
    return [random.permutation(reader.n)[:100] for _ in range(100)]

def check(indices, packed):
    assert builders.unpack(packed) == [first[i] for i in indices]

for indices, packed in zip(batches(0), reader.iter_batches(batches(0), prefetch=4, packed=True)):
    check(indices, packed)
wrong = []

def work(seed):
    try:
        for indices in batches(seed):
            check(indices, reader.read_packed(indices))
    except BaseException as error:
        wrong.append(error)

threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
assert reader.stats().open_files <= soft // 4
"""


@in_every_mode
def test_threads_share_the_descriptors(directory, io):
    """Each reads from more files than may be open at once."""
    children.run(SHARING, directory, io)


@counts(3000, 10_000)
def test_many_shards(tmp_path, count):
    """No more descriptors than documented: a quarter of the limit."""
    data = [builders.ffr_twin.build([b"%d" % i, b""]) for i in range(count)]
    for i in range(count):
        (tmp_path / f"{i:05}.ffr").write_bytes(data[i])
    code = """
import os, resource, sys
import numpy as np
from children import descriptors
from ffrecord import FileReader
count = int(sys.argv[2])
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (400, hard))
for io in ("auto", "pread", "direct", "mmap"):
    with FileReader(sys.argv[1], io=io) as reader:
        assert len(descriptors()) < 120, len(descriptors())
        for indices in (range(0, 2 * count, 2), np.random.default_rng(0).integers(0, count, 1000) * 2):
            assert [sample.tobytes() for sample in reader.read(indices)] == [b"%d" % (i // 2) for i in indices]
            assert len(descriptors()) < 220 and reader.stats().open_files <= 100
        assert sum(len(sample) for sample in reader) == sum(len(b"%d" % i) for i in range(count))
"""
    children.run(code, tmp_path, count)
