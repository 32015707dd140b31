"""JPEG files decoded by several threads: in order, the first failure told, nothing left behind."""

import gc
import io
import signal
import threading
import time
import weakref

import numpy as np
import pytest

from ffrecord.errors import FormatError
from ffrecord.fields.images import jpeg_files
from ffrecord.fields.images.jpeg_files import jpeg_pixels_of

Image = pytest.importorskip("PIL.Image")


def picture(shade: int) -> np.ndarray:
    out = io.BytesIO()
    Image.new("RGB", (9, 6), (shade, shade, shade)).save(out, "JPEG")
    return np.frombuffer(out.getvalue(), np.uint8)


PICTURES = [picture(5 * i) for i in range(40)]


def decoded(records: list[np.ndarray], threads: int | None) -> list[np.ndarray]:
    return jpeg_pixels_of(records, lambda place: f"picture {place}", False, threads)


@pytest.fixture(autouse=True)
def no_thread_stays():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("threads", [1, 2, 7, 100, None])
def test_in_order(threads):
    for count in (0, 1, 3, 40):
        found = decoded(PICTURES[:count], threads)
        assert [each.shape for each in found] == [(6, 9, 3)] * count
        assert all(abs(int(each.mean()) - 5 * i) <= 2 for i, each in enumerate(found))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_first_that_cannot_be_had_is_told(threads):
    """Though a later one fails sooner."""
    for bad in (0, 17, 39):
        records = list(PICTURES)
        records[bad] = records[bad][:60]  # takes longer to be refused
        for after in range(bad + 1, 40):
            records[after] = np.zeros(3, np.uint8)
        with pytest.raises(FormatError, match=f"^picture {bad}: "):
            decoded(records, threads)


def test_so_many_threads(monkeypatch):
    """At once; what is begun after a failure is nothing."""
    at_work, most, lock = set(), [], threading.Lock()

    def jpeg_pixels(data, name, grey, kept):
        with lock:
            at_work.add(threading.get_ident())
            most.append(len(at_work))
        time.sleep(0.01)
        if name() == "picture 5":
            raise FormatError("no")
        return data

    monkeypatch.setattr(jpeg_files, "jpeg_pixels", jpeg_pixels)
    with pytest.raises(FormatError, match="no"):
        decoded(PICTURES, 3)
    assert max(most) == 3 and len(most) <= 5 + 3


def test_without_more_threads(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert len(decoded(PICTURES, 4)) == 40


def test_an_interrupt_leaves_the_rest(monkeypatch):
    begun = []

    def jpeg_pixels(data, name, grey, kept):
        begun.append(name())
        if len(begun) == 4:
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.02)
        return data

    monkeypatch.setattr(jpeg_files, "jpeg_pixels", jpeg_pixels)
    with pytest.raises(KeyboardInterrupt):
        decoded(PICTURES, 2)
    assert len(begun) < 10


@pytest.mark.parametrize("threads", [1, 3])
def test_whatever_ends_a_thread_is_told(threads, monkeypatch):
    def jpeg_pixels(data, name, grey, kept):
        if name() == "picture 7":
            raise SystemExit(3)
        return data

    monkeypatch.setattr(jpeg_files, "jpeg_pixels", jpeg_pixels)
    with pytest.raises(SystemExit):
        decoded(PICTURES, threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_nothing_stays_after_a_failure(threads):
    records = [each.copy() for each in PICTURES]
    records[20] = records[20][:60].copy()
    kept = [weakref.ref(each) for each in records]
    gc.disable()
    try:
        with pytest.raises(FormatError) as raised:
            decoded(records, threads)
        del raised, records
        assert [ref() for ref in kept] == [None] * 40
    finally:
        gc.enable()
