"""`filesystems`: kinds of file systems by their numbers."""

import os

import pytest

from ffrecord.engine._engine import filesystem_type
from ffrecord.system.filesystems import Filesystem, from_type


@pytest.mark.parametrize(
    ("number", "wanted"),
    [
        (0xEF53, Filesystem("ext4")),
        (0x9123683E, Filesystem("btrfs")),  # above 2**31
        (0x01021994, Filesystem("tmpfs", memory=True)),
        (0x6969, Filesystem("nfs", network=True)),
        (0xFF534D42, Filesystem("cifs", network=True)),
        (0x0BD00BD0, Filesystem("lustre", network=True)),
        (0x65735546, Filesystem("fuse", network=True)),
        (0x1234, Filesystem("0x1234")),
        (0, Filesystem("0x0")),
    ],
)
def test_kinds(number, wanted):
    assert from_type(number) == wanted


# What mount(8) calls them, where that is not the name here.
OTHER_NAMES = {"devtmpfs": "tmpfs", "ext2": "ext4", "ext3": "ext4", "nfs4": "nfs", "fuseblk": "fuse"}


def mounts() -> dict[str, str]:
    """A directory of each kind that is mounted here, by the name that the kernel gives the kind."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as lines:
        found = {kind.split(".")[0]: place for _, place, kind, *_ in map(str.split, lines)}
    return {kind: place for kind, place in found.items() if os.access(place, os.R_OK) and os.path.isdir(place)}


def test_those_that_are_mounted_here():
    """Whatever is mounted has its own name, or none that is known here."""
    seen = set()
    for kind, place in mounts().items():
        fd = os.open(place, os.O_RDONLY)
        try:
            name = from_type(filesystem_type(fd)).name
        finally:
            os.close(fd)
        assert name.startswith("0x") or name == OTHER_NAMES.get(kind, kind), (kind, place)
        seen.add(name)
    assert seen


def test_no_file_has_no_kind():
    assert filesystem_type(-1) == 0
