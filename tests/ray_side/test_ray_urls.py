"""Datasets by URL, task by task. The tests call what Ray calls, in its order; those with real servers are long."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from documents import ROOT
from ray import cloudpickle
from ray_builders import numbered, plain

from ffrecord import FileReader
from ffrecord.errors import ArgumentError
from ffrecord.ray.pieces import Opening, shards_of
from ffrecord.ray.reading import ShardDatasource, _select_columns
from ffrecord.ray.writing import write

pytest.importorskip("fsspec", reason="its file system in memory stands for a store of objects")
from ray_places import complete, names, records, run, sink_at


def test_only_what_counts_is_published(url):
    """Task 1 runs twice, task 3 is never heard of again; then more is added."""
    sink = sink_at(url)
    first, again = run(sink, 0, range(25)), run(sink, 1, range(25, 50))
    run(sink, 1, range(25, 50))
    run(sink, 3, range(60, 80))
    with pytest.raises(FileNotFoundError):
        FileReader(url)
    complete(sink, again, first)
    assert records(url) == [numbered(i) for i in range(50)]
    assert len(names(url)) == 7
    more = sink_at(url, appends=True)
    complete(more, run(more, 0, range(50, 55)))
    assert records(url) == [numbered(i) for i in range(55)]
    assert len(names(url)) == 8


def test_an_end_leaves_nothing(url):
    sink = sink_at(url)
    run(sink, 0, range(25))
    assert names(url)
    sink.on_write_failed(RuntimeError("a task failed"))
    assert names(url) == []


def test_one_writes_at_a_time_and_to_nothing(url):
    sink = sink_at(url)
    with pytest.raises(BlockingIOError, match="another write of it is going on, or was interrupted"):
        sink_at(url)
    complete(sink)
    assert records(url) == []
    with pytest.raises(FileExistsError, match="is not empty"):
        sink_at(url)


def test_nothing_at_a_url_is_discarded(url):
    with pytest.raises(ValueError, match=r"memory://bucket/dataset: resume=False is only for directories"):
        write(None, url, resume=False)


def test_what_a_killed_worker_has_left_goes_with_the_next(url, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = """
import os, sys, tempfile
tempfile.tempdir = sys.argv[1]
from ffrecord.dataset_writer.remote.staging import ScratchDirectory
print(ScratchDirectory("ray").path, flush=True)
os.kill(os.getpid(), 9)
"""
    left = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert Path(left.stdout.strip()).is_dir()
    sink = sink_at(url)
    complete(sink, run(sink, 0, range(5)))
    (root,) = tmp_path.iterdir()
    assert list(root.iterdir()) == []


def test_tasks_of_reading(url):
    sink = sink_at(url)
    complete(sink, run(sink, 0, range(95)))
    opening = Opening({})
    with opening.reader(url) as reader:
        source = ShardDatasource(shards_of(url, opening), _select_columns(reader, None, None), opening)
    tasks = source.get_read_tasks(6)
    assert 3 < len(tasks) <= 6
    found = [row for task in tasks for block in cloudpickle.loads(cloudpickle.dumps(task))() for row in block["data"]]
    assert [row.as_py() for row in found] == [numbered(i) for i in range(95)]


class Signed(BaseHTTPRequestHandler):
    """Gives ranges of one file, to those who have a signature."""

    file: Path

    def do_GET(self) -> None:
        if not self.path.endswith("?X-Signature=testing-secret"):
            self.send_error(403)
            return
        data = self.file.read_bytes()
        start, stop = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
        part = data[start : stop + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *args: Any) -> None:
        """To nobody."""


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    """Of ten samples, from 10 on."""
    pytest.importorskip("obstore", reason="asks by HTTP")
    plain(tmp_path / "set", 10, start=10)
    handler = type("Handler", (Signed,), {"file": tmp_path / "set" / "PART_00000.ffr"})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_is_signed_is_read_and_not_told(host: str) -> None:
    opening = Opening({"storage_options": {"client_options": {"user_agent": "testing-secret"}}})
    shards = shards_of(f"{host}/a.ffr?X-Signature=testing-secret", opening)
    with opening.reader(shards[0].path) as reader:
        source = ShardDatasource(shards, _select_columns(reader, None, None), opening)
    tasks = source.get_read_tasks(2)
    assert [row.as_py() for task in tasks for block in task() for row in block["data"]] == [
        numbered(i) for i in range(10, 20)
    ]
    told = repr((shards, opening, [task.metadata for task in tasks]))
    assert f"{host}/a.ffr?" in told
    assert "testing-secret" not in told


def test_what_was_written_is_told_without_secrets(url: str) -> None:
    class Rows:
        """Of Ray, as far as it is asked."""

        def schema(self) -> Any:
            return pa.schema([("data", pa.binary())])

        def write_datasink(self, sink: Any, **given: Any) -> None:
            complete(sink, run(sink, 0, range(5)))

    summary = write(Rows(), url)
    assert (summary.path, summary.samples) == (url, 5)
    with pytest.raises(ArgumentError, match=r"dataset\?…: a memory:// URL has no query") as told:
        write(Rows(), f"{url}?X-Signature=testing-secret")
    assert "testing-secret" not in str(told.value)


@pytest.mark.long
@pytest.mark.unsanitized("Ray does not run under it")
@pytest.mark.usefixtures("started_ray")
def test_through_an_s3_api(tmp_path, monkeypatch):
    pytest.importorskip("moto", reason="an S3 API on this machine")
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "remote"))
    import ray.data
    from servers import moto

    import ffrecord.ray

    with moto(tmp_path / "server") as server:
        options: dict[str, Any] = server.storage_options
        url = server.url("dataset")
        ds = ray.data.range(1000, override_num_blocks=5).map(lambda row: {"data": b"%d" % row["id"]})
        summary = ffrecord.ray.write(ds, url, samples_per_shard=100, storage_options=options)
        assert summary.samples == 1000
        rows = ffrecord.ray.read(url, storage_options=options, override_num_blocks=4).take_all()
        assert sorted(int(row["data"]) for row in rows) == list(range(1000))
