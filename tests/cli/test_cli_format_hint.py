"""What `convert` says of a source that was perhaps meant as another thing than it is taken as."""

import io
import re
import tarfile
import zipfile

import numpy as np
import pytest
from cli_runs import run

import ffrecord


def tar_of(path, *names, mode="w"):
    with tarfile.open(path, mode) as archive:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
    return path


@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_webdataset(tmp_path, mode, count):
    names = [f"a/{i:06}.{end}" for i in range(count) for end in ("jpg", "seg.png", "cls")]
    path = tar_of(tmp_path / "a.tar", *names, mode=mode)
    ran = run("convert", path, tmp_path / "out", "-j", "1")
    told = f"ffrecord convert: {path} looks like a WebDataset: use --format webdataset to group its files\n"
    assert (ran.code, ran.err) == (0, told)
    for quiet in (["--quiet"], ["--format", "webdataset"]):
        ran = run("convert", path, tmp_path / quiet[-1], "-j", "1", *quiet)
        assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    "names",
    [
        [f"cat/{i}.jpg" for i in range(20)],
        ["setup.py", "setup.cfg", "README.md", "src/a.py", "src/b.py"],
        ["a.jpg", "a.txt"],
        ["Makefile.am", "Makefile.in", "configure.ac", "configure.in"],
        ["a/x", "b/x"],
    ],
)
def test_a_plain_tar(tmp_path, names):
    ran = run("convert", tar_of(tmp_path / "a.tar", *names), tmp_path / "out", "-j", "1")
    assert (ran.code, ran.err) == (0, "")


def test_arrays(tmp_path):
    path = tmp_path / "arrays.npz"
    np.savez(path, x=np.zeros((3, 2)), y=np.arange(3))
    told = f"{path} has arrays of numpy: run `ffrecord write {path} OUT` to make samples of them; "
    ran = run("convert", path, tmp_path / "out", "-j", "1")
    assert (ran.code, ran.err) == (2, f"ffrecord convert: {told}use --format zip to convert its files\n")
    with pytest.raises(ValueError, match=re.escape(told)):
        ffrecord.convert(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert run("convert", path, tmp_path / "out", "-j", "1", "--format", "zip").code == 0
    assert len(ffrecord.open(tmp_path / "out")) == 2


def test_a_plain_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for name in ("0.npy", "1.npy", "2.jpg", "2.txt"):
            archive.writestr(name, "abc")
    ran = run("convert", tmp_path / "a.zip", tmp_path / "out", "-j", "1")
    assert (ran.code, ran.err) == (0, "")


def test_nothing_is_said_of_what_cannot_be_read(tmp_path):
    ran = run("convert", tmp_path / "no.tar", tmp_path / "out")
    assert (ran.code, ran.err.count("\n")) == (3, 1)
