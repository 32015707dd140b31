"""T16 (guarantees G1, G3, G6, G9): reading and writing on file systems that are mounted for the purpose.

Overlay, tmpfs, disks with sectors of 512 and 4,096 bytes, xfs, btrfs, FUSE; NFS where a machine has it.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import children
import pytest
import situations
from builders import IO_MODES
from figures import Counted

HERE = Path(__file__).parent
KINDS = ("overlay", "tmpfs", "ext4 512", "ext4 4096", "xfs 4096", "btrfs 4096", "fuse", "nfs")
ENGINES = {"auto": "page cache", "pread": "page cache", "direct": "direct", "mmap": "mmap"}


def on(kind: str, directory: Path, work: str) -> str:
    """What a child printed that mounts such a file system, and works on it; skips where that cannot be."""
    if kind == "fuse":  # whose server would live on in the child's namespace
        with situations.fuse_mount(directory) as place:
            return in_child("here", place, work)
    name = kind.split()[0]
    for program in [f"mkfs.{name}", "losetup"] if " " in kind else ["exportfs" if kind == "nfs" else "mount"]:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: nothing tests {kind}")
    return in_child(kind, directory, work)


def in_child(kind: str, directory: Path, work: str) -> str:
    code = f"import sys, runpy; sys.path.insert(0, {str(HERE)!r}); runpy.run_module('mounted', run_name='__main__')"
    done = children.finished(code, kind, directory, work, timeout=200)
    if "cannot: " in done.stderr:
        pytest.skip(f"nothing tests {kind} here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("kind", KINDS)
def test_every_mode_and_situation(tmp_path: Path, kind: str) -> None:
    engines = dict(zip(IO_MODES, on(kind, tmp_path, "read").splitlines(), strict=True))
    name = kind.split()[0]
    for io, engine in engines.items():
        if io != "auto" or name not in ("overlay", "fuse", "nfs"):  # no RWF_NOWAIT: threads, until nothing waits
            assert engine == f"{name}: {ENGINES[io]}"


@pytest.mark.parametrize("kind", KINDS)
def test_writing(tmp_path: Path, kind: str, counted: Counted) -> None:
    """Files, datasets, archives, folders; replaced, cut, killed, gone on with, on a full disk."""
    on(kind, tmp_path, "change")
    counted.add("file systems written on")


def test_no_loop_device_is_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    if sys.platform != "linux" or shutil.which("losetup") is None:
        pytest.skip("no losetup")
    said = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=False).stdout
    assert str(tmp_path_factory.getbasetemp()) not in said
