"""checkFsAlign: no on every file system but its authors', and never an error for a bad descriptor."""

import fcntl
import os
import struct

import numpy as np
import pytest

from ffrecord.system.filesystems import checkFsAlign

REQUEST = 2147772004


def twin(fd):
    answer = bytearray(4)
    try:
        fcntl.ioctl(fd, REQUEST, answer)
    except OSError:
        return False
    return struct.unpack("i", answer) == (1,)


@pytest.mark.parametrize("kind", [int, np.int64])
def test_ordinary_file(tmp_path, kind):
    with open(tmp_path / "file", "wb") as file:
        assert checkFsAlign(kind(file.fileno())) is twin(file.fileno()) is False


def test_device_pipe_and_directory():
    ends = os.pipe()
    fds = [os.open("/dev/null", os.O_RDONLY), os.open("/", os.O_RDONLY), *ends]
    assert [checkFsAlign(fd) for fd in fds] == [False] * 4
    for fd in fds:
        os.close(fd)


@pytest.mark.parametrize("fd", [-1, -(2**40), 10**6, 2**31, 2**64])
def test_bad_descriptor(fd):
    assert checkFsAlign(fd) is False


def test_closed_descriptor(tmp_path):
    fd = os.open(tmp_path, os.O_RDONLY)
    os.close(fd)
    assert checkFsAlign(fd) is False


@pytest.mark.parametrize("wrong", [0.0, 1.5, "0", None, b"0", os])
def test_wrong_type(wrong):
    with pytest.raises(TypeError):
        checkFsAlign(wrong)


def test_file_object_is_no_descriptor(tmp_path):
    with open(tmp_path / "file", "wb") as file, pytest.raises(TypeError):
        checkFsAlign(file)


@pytest.mark.parametrize(("answer", "expected"), [(0, False), (1, True), (2, False), (2**31, False)])
def test_answer_of_the_file_system(monkeypatch, answer, expected):
    def ioctl(fd, request, buffer):
        assert (fd, request, bytes(buffer)) == (7, 0x80046664, bytes(4))
        buffer[:] = struct.pack("=I", answer)
        return 0

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    assert checkFsAlign(7) is expected
