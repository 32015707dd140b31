"""T16: every mode on file systems that are mounted for the purpose: overlay, sectors of 4,096 bytes, xfs, btrfs."""

import shutil
import subprocess

import children
import pytest
from builders import IO_MODES

# The child mounts in a namespace of its own: nobody else sees it, and it is gone with the child, however that ends.
MOUNTED = """
import os, subprocess, sys
import builders, children, numpy as np
from ffrecord import FileReader, FileWriter
from situations import cached_share, evict

directory, kind, io = sys.argv[1:]
samples = builders.records([0, 1, 511, 3000, 70_000, 300_000, 4096] * 10)

def said(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"cannot: {done.stderr.strip()}")
    return done.stdout.strip()

try:
    children.own_mounts()
except OSError as error:
    sys.exit(f"cannot: {error}")
place = os.path.join(directory, "mounted")
os.mkdir(place)
if kind == "overlay":
    for name in ("lower", "upper", "work"):
        os.mkdir(os.path.join(directory, name))
    with FileWriter(os.path.join(directory, "lower", "a.ffr"), len(samples)) as writer:
        for sample in samples:
            writer.write_one(sample)
    said("mount", "-t", "overlay", "overlay", "-o",
         f"lowerdir={directory}/lower,upperdir={directory}/upper,workdir={directory}/work", place)
else:
    name, sector = kind.split()
    image = os.path.join(directory, "image")
    with open(image, "wb") as file:
        file.truncate(400 << 20)
    device = said("losetup", "--find", "--show", "--sector-size", sector, image)
    try:
        said(f"mkfs.{name}", "-q", device)
        said("mount", device, place)
    finally:
        said("losetup", "--detach", device)  # as soon as it is not mounted any more
    with FileWriter(os.path.join(place, "a.ffr"), len(samples)) as writer:
        for sample in samples:
            writer.write_one(sample)
path = os.path.join(place, "a.ffr")
random = np.random.default_rng(0)
with FileReader(path, io=io) as reader:
    for turn in range(40):
        if turn in (0, 10, 20):
            evict(path, *([os.path.join(directory, "lower", "a.ffr")] if kind == "overlay" else []))
        indices = random.integers(0, len(samples), 40)
        assert builders.unpack(reader.read_packed(indices)) == [samples[i] for i in indices]
    (engine,) = reader.stats().engines.items()
    for packed in reader.iter_batches([range(70)] * 5, packed=True):
        assert builders.unpack(packed) == samples
    assert [sample.tobytes() for sample in reader] == samples
print(*engine, sep=": ")
"""
ENGINES = {"auto": "page cache", "pread": "page cache", "direct": "direct", "mmap": "mmap"}


@pytest.mark.parametrize("io", IO_MODES)
@pytest.mark.parametrize("kind", ["overlay", "ext4 4096", "xfs 4096", "btrfs 4096"])
def test_every_mode_and_situation(tmp_path, kind, io):
    name = kind.split()[0]
    if name != "overlay" and (shutil.which(f"mkfs.{name}") is None or shutil.which("losetup") is None):
        pytest.skip(f"mkfs.{name} or losetup is not installed: nothing tests {kind}")
    done = children.finished(MOUNTED, tmp_path, kind, io, timeout=200)
    if "cannot: " in done.stderr:
        pytest.skip(f"nothing tests {kind}: {done.stderr}")
    assert (done.returncode, done.stderr) == (0, "")
    if (name, io) != ("overlay", "auto"):  # it has no RWF_NOWAIT: threads, until nothing waits any more
        assert done.stdout.strip() == f"{name}: {ENGINES[io]}"


def test_no_loop_device_is_left(tmp_path_factory):
    if shutil.which("losetup") is None:
        pytest.skip("no losetup")
    said = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=False).stdout
    assert str(tmp_path_factory.getbasetemp()) not in said
