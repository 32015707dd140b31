"""Writes by URL that go wrong at any point: what a manifest lists stays, and what none lists goes."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from ray_builders import numbered

from ffrecord.errors import FormatError, RemoteError, TransientError
from ffrecord.format import manifest

pytest.importorskip("fsspec", reason="its file system in memory stands for a store of objects")
from ray_places import complete, names, records, remove, result, run, sink_at

from ffrecord.dataset_writer.remote.objects import MARKER, Objects
from ffrecord.ray.writing import target_of
from ffrecord.remote.fsspec_client import FsspecClient

NAME = manifest.NAME
Call = Callable[..., Any]


def changed(monkeypatch: pytest.MonkeyPatch, name: str, call: Callable[[Call], Call]) -> None:
    """Have a call of the client be another, made of it."""
    monkeypatch.setattr(FsspecClient, name, call(getattr(FsspecClient, name)))


def test_the_answer_to_the_manifest_is_lost(url, monkeypatch):
    """It is there, but nobody says so: its shards are of a dataset."""
    sink = sink_at(url)
    written = run(sink, 0, range(25))

    def lost(put: Call) -> Call:
        def call(self: Any, path: str, *args: Any, **given: Any) -> Any:
            put(self, path, *args, **given)
            if path.endswith(NAME):
                monkeypatch.setattr(Objects, "_is_there", unknown)
                raise RemoteError("no answer")

        return call

    def unknown(self: Objects, after: str, error: RemoteError | None) -> bool:
        raise TransientError("nobody knows")

    changed(monkeypatch, "put", lost)
    with pytest.raises(TransientError, match="nobody knows"):
        sink.on_write_complete(result(written))
    sink.on_write_failed(RuntimeError("the answer was lost"))
    assert records(url) == [numbered(i) for i in range(25)]
    assert MARKER not in names(url)


def test_ctrl_c_right_after_the_manifest(url, monkeypatch):
    sink = sink_at(url)
    written = run(sink, 0, range(25))

    def interrupted(put: Call) -> Call:
        def call(self: Any, path: str, *args: Any, **given: Any) -> Any:
            put(self, path, *args, **given)
            if path.endswith(NAME):
                os.kill(os.getpid(), signal.SIGINT)

        return call

    changed(monkeypatch, "put", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sink.on_write_complete(result(written))
    sink._target.abandon()
    assert records(url) == [numbered(i) for i in range(25)]
    assert len(names(url)) == 4


def test_nothing_is_removed_where_the_manifest_cannot_be_read(url, monkeypatch, caplog):
    sink = sink_at(url)
    complete_names = {shard.name for shard in run(sink, 0, range(25)).shards}

    def unreadable(self: Objects) -> None:
        raise FormatError("damaged")

    monkeypatch.setattr(Objects, "manifest", unreadable)
    sink.on_write_failed(RuntimeError("a task failed"))
    assert set(names(url)) == complete_names
    assert "files of this write could not be removed: damaged" in caplog.text


@pytest.mark.parametrize("appends", [False, True], ids=["create", "append"])
@pytest.mark.parametrize("how", ["gone", "short"])
def test_what_a_task_has_sent_must_be_there(url, how, appends, monkeypatch):
    if appends:
        first = sink_at(url)
        complete(first, run(first, 0, range(3)))
    before = names(url)
    sink = sink_at(url, appends=appends)
    written = run(sink, 0, range(3, 28))
    name = written.shards[1].name
    remove(url, name)
    if how == "short":
        sink._target._objects._request(lambda client: client.put(f"bucket/dataset/{name}", b"short"))
    wanted = (FileNotFoundError, "does not exist") if how == "gone" else (FormatError, r"5 bytes, expected \d+")
    with pytest.raises(wanted[0], match=f"{name}.*{wanted[1]}"):
        sink.on_write_complete(result(written))
    sink.on_write_failed(RuntimeError("nothing was published"))
    assert names(url) == before


def test_a_task_that_comes_late_leaves_nothing(url, monkeypatch):
    """Its shard is on its way when the write has failed; and the next shard is not even begun."""
    sink = sink_at(url)
    run(sink, 0, range(5))

    def late(put_file: Call) -> Call:
        def call(self: Any, path: str, *args: Any, **given: Any) -> Any:
            sink.on_write_failed(RuntimeError("another task failed"))
            return put_file(self, path, *args, **given)

        return call

    changed(monkeypatch, "put_file", late)
    with pytest.raises(FileNotFoundError, match="memory://bucket/dataset: this write has already ended"):
        run(sink, 1, range(5, 10))
    assert names(url) == []
    with pytest.raises(FileNotFoundError, match="memory://bucket/dataset: this write has already ended"):
        run(sink, 2, range(10, 15))
    assert names(url) == []


def test_a_task_that_comes_late_when_another_write_has_begun(url, monkeypatch):
    sink = sink_at(url)
    sink._target.abandon()
    other = sink_at(url)
    with pytest.raises(BlockingIOError, match="another write of it is going on"):
        run(sink, 0, range(5))
    complete(other, run(other, 0, range(5)))
    assert records(url) == [numbered(i) for i in range(5)]


def test_a_claim_that_is_interrupted_leaves_no_marker(url, monkeypatch):
    def interrupted(put: Call) -> Call:
        def call(self: Any, path: str, *args: Any, **given: Any) -> Any:
            put(self, path, *args, **given)
            raise KeyboardInterrupt

        return call

    target = target_of(url, None, appends=False, resumes=True)
    with monkeypatch.context() as patched:
        changed(patched, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            target.begin()
    assert names(url) == [MARKER]
    target.abandon()
    assert names(url) == []


def test_a_clean_up_ends_though_the_store_is_gone(url, monkeypatch):
    """A second Ctrl-C is not held back until all tries are over."""
    sink = sink_at(url)
    asked = []

    def gone(call: Call) -> Call:
        def failing(self: Any, path: str, *args: Any, **given: Any) -> Any:
            asked.append(path)
            raise TransientError(f"{path}: the server did not answer in time")

        return failing

    for name in ("get", "list", "delete", "head"):
        changed(monkeypatch, name, gone)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        sink._target.abandon()
    timer.join()
    assert len(asked) < 8
