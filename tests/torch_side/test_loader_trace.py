"""Traces of a loader's work, as Chrome and Perfetto read them."""

import errno
import json
import os
import re
import time
from itertools import pairwise
from typing import Any

import pytest
import torch
from loader_builders import fixed, mixed, write
from torch_builders import WORKERS_ANYWHERE

from ffrecord.errors import StateError
from ffrecord.torch import Loader
from ffrecord.torch.loading import trace as traces

pytestmark = WORKERS_ANYWHERE
COUNT = 30
MAKERS = [{"num_threads": 0}, {"num_threads": 2}, {"num_workers": 2}]
in_every_way = pytest.mark.parametrize("how", MAKERS, ids=str)
REQUIRED = {"M": {"name", "pid", "tid", "args"}, "X": {"name", "cat", "ts", "dur", "pid", "tid"}}
REQUIRED |= {phase: {"name", "cat", "id", "ts", "pid", "tid"} for phase in "be"}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    return write(tmp_path_factory.mktemp("trace") / "a.ffr", map(mixed, range(COUNT)))


def slow(sample: Any) -> Any:
    time.sleep(0.002)
    return sample


def events_of(path: Any, phase: str) -> list[dict[str, Any]]:
    """The events of a phase, all of which were checked."""
    found = json.loads(path.read_text())
    assert found["displayTimeUnit"] == "ms"
    for event in found["traceEvents"]:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert all(isinstance(event[name], int) for name in ("pid", "tid"))
        assert event.get("dur", 0) >= 0
    return [event for event in found["traceEvents"] if event["ph"] == phase]


@in_every_way
def test_every_stage_of_every_batch(path, tmp_path, how):
    loader = Loader(path, 4, transform=slow, batch_transform=slow, **how)
    list(loader)
    before = time.perf_counter()
    with loader.trace(tmp_path / "trace.json"):
        batches = len(list(loader))
    passed = time.perf_counter() - before
    spans = events_of(tmp_path / "trace.json", "X")
    for name in ("decode", "transform", "collate", "batch_transform"):
        assert sum(span["name"] == name for span in spans) == batches, name
    assert sum(span["name"] == "wait for batch" for span in spans) == batches + 1
    assert sum(span["dur"] for span in spans if span["name"] == "transform") >= COUNT * 0.002e6
    assert all(before * 1e6 <= span["ts"] <= (before + passed) * 1e6 for span in spans)
    begins, ends = (events_of(tmp_path / "trace.json", phase) for phase in "be")
    assert len(begins) == batches and {each["id"] for each in begins} == {each["id"] for each in ends}
    assert all(one["ts"] <= other["ts"] for one, other in zip(begins, ends, strict=True))
    assert sorted(each["args"]["position"] for each in begins) == list(range(0, COUNT, 4))
    assert sum(each["args"]["samples"] for each in begins) == COUNT
    names = {(each["pid"], each["tid"]): each["args"]["name"] for each in events_of(tmp_path / "trace.json", "M")}
    assert {(span["pid"], span["tid"]) for span in spans} == names.keys()
    own = [name for (pid, _), name in names.items() if pid == os.getpid()]
    assert "training loop" in own and len(names) <= 3
    if "num_workers" in how:
        assert len({pid for pid, _ in names}) == 3 and len(own) == 1


def test_spans_of_a_thread_do_not_overlap(path, tmp_path):
    loader = Loader(path, 4, transform=slow, num_threads=2)
    with loader.trace(tmp_path / "trace.json"):
        list(loader)
    spans = [span for span in events_of(tmp_path / "trace.json", "X") if span["name"] != "wait for read"]
    for tid in {span["tid"] for span in spans}:
        mine = sorted((span["ts"], span["ts"] + span["dur"]) for span in spans if span["tid"] == tid)
        assert all(stop <= start + 1 for (_, stop), (start, _) in pairwise(mine))


def test_records_of_fixed_size_and_python_sources(tmp_path):
    plain = write(tmp_path / "b.ffr", map(fixed, range(COUNT)))
    for source, stage in ((plain, "decode"), ([{"id": i} for i in range(COUNT)], "fetch")):
        loader = Loader(source, 4)
        with loader.trace(tmp_path / "trace.json"):
            list(loader)
        names = [span["name"] for span in events_of(tmp_path / "trace.json", "X")]
        assert names.count(stage) == len(loader)


def test_nothing_is_kept_without_a_trace(path, tmp_path):
    loader = Loader(path, 4)
    with loader.trace(tmp_path / "trace.json"):
        second = loader.trace(tmp_path / "other.json")
        with pytest.raises(StateError, match="being made already"):
            second.__enter__()
    assert loader._counts.trace is None and not events_of(tmp_path / "trace.json", "X")
    with pytest.raises(FileNotFoundError), loader.trace(tmp_path / "none" / "trace.json"):
        pass
    list(loader)
    assert loader._counts.trace is None


def test_trace_is_written_after_an_error(path, tmp_path):
    loader = Loader(path, 4, num_threads=1)
    with pytest.raises(LookupError), loader.trace(tmp_path / "trace.json"):
        for _ in loader:
            raise LookupError
    assert len(events_of(tmp_path / "trace.json", "b")) == 1


def test_long_traces_are_cut(path, tmp_path, monkeypatch):
    monkeypatch.setattr(traces, "EVENTS_MOST", 10)
    loader = Loader(path, 4)
    with loader.trace(tmp_path / "trace.json"):
        list(loader)
    found = json.loads((tmp_path / "trace.json").read_text())
    assert sum(event["ph"] != "M" for event in found["traceEvents"]) == 10
    assert found["otherData"]["dropped events"] > 5


def test_the_file_is_whole_or_not_there(path, tmp_path, monkeypatch, caplog):
    """As all files: what was there stays until the trace is complete, and nothing else is left."""
    loader, file = Loader(path, 4), tmp_path / "trace.json"
    file.write_text("old")
    with loader.trace(file):
        list(loader)
        assert file.read_text() == "old"
    assert events_of(file, "X") and [*tmp_path.iterdir()] == [file]

    def full(trace: Any, written: Any) -> None:
        written.write("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    before = file.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(traces.json, "dump", full)
        with (
            pytest.raises(OSError, match=r"trace\.json: the trace could not be written: No space left"),
            loader.trace(file),
        ):
            list(loader)
        with pytest.raises(ZeroDivisionError), loader.trace(file):
            raise ZeroDivisionError
    assert "the trace could not be written" in caplog.text
    assert file.read_text() == before and [*tmp_path.iterdir()] == [file]
    with pytest.raises(ZeroDivisionError), loader.trace(file):
        raise ZeroDivisionError
    assert events_of(file, "X") == []


def test_what_is_no_place_for_a_file(path, tmp_path):
    """It is said before anything is read: a FIFO without a reader would hold up the training for ever."""
    loader = Loader(path, 4)
    os.mkfifo(tmp_path / "fifo")
    for place in (tmp_path, tmp_path / "fifo", "/dev/full", tmp_path / "gone" / "trace.json"):
        with pytest.raises(OSError, match=re.escape(str(place))), loader.trace(place):
            pytest.fail("it was begun")
    with pytest.raises(TypeError), loader.trace(1):  # no descriptor: here that of stdout
        pytest.fail("it was begun")
    os.symlink(tmp_path / "there.json", tmp_path / "link.json")
    with loader.trace(tmp_path / "link.json"):
        list(loader)
    assert (tmp_path / "link.json").is_symlink() and events_of(tmp_path / "there.json", "X")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_copies(path, tmp_path):
    loader = Loader(path, 4, device="cuda")
    with loader.trace(tmp_path / "trace.json"):
        list(loader)
    assert sum(span["name"] == "copy" for span in events_of(tmp_path / "trace.json", "X")) == len(loader)


def test_a_trace_needs_a_path(path):
    words = r"path is None, expected str or os\.PathLike"
    with Loader(path) as loader, pytest.raises(TypeError, match=words), loader.trace(None):
        pass
