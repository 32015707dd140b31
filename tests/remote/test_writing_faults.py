"""Writing to object storage that fails: made again for a while, then one clear error, and the same call goes on."""

import json
import logging
import os
import stat
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import children
import pytest
from faulty import RESET, SILENT, SLOW_DOWN, STALE, UNAVAILABLE, Faulty
from servers import Storage, faulty
from written import QUICK, SECRET, Bucket, sent
from written_datasets import Samples, files_in

from ffrecord import DatasetWriter
from ffrecord.dataset_writer import Summary
from ffrecord.dataset_writer.remote import objects, staging, uploads
from ffrecord.errors import ChangedError, RemoteError, TransientError, WorkerError

pytest.importorskip("obstore", reason="obstore is not installed")

GIVEN = Samples.of_sizes([(i * 7919) % 5000 for i in range(120)])
ALL = ("GET", "HEAD", "PUT", "POST", "DELETE")
FEW = {"max_tries": 2, "retry_config": {**QUICK, "max_retries": 0}}


@pytest.fixture
def proxy(storage: Storage) -> Iterator[Faulty]:
    with faulty(storage.endpoint, share=0) as running:
        running.in_a_row = 1000
        yield running


@pytest.fixture
def bucket(storage: Storage, proxy: Faulty, request: pytest.FixtureRequest, tmp_path: Path) -> Bucket:
    return Bucket(storage, f"{abs(hash(request.node.name))}/set", tmp_path / "staging", proxy)


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Names and bytes of what a local writer writes."""
    path = tmp_path_factory.mktemp("local") / "set"
    DatasetWriter(path, num_workers=0, samples_per_shard=20).from_indexed_dataset(GIVEN.samples)
    return files_in(path)


def write(bucket: Bucket, samples: list[Any] = GIVEN.samples, few: bool = False, **options: Any) -> Summary:
    given: dict[str, Any] = {"num_workers": 0, "samples_per_shard": 20, **bucket.options, **options}
    given["storage_options"] = {**given["storage_options"], **(FEW if few else {})}
    return DatasetWriter(bucket.url, **given).from_indexed_dataset(samples, chunksize=10)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 30))])
def test_answers_that_are_lost(seed: int, storage: Storage, tmp_path: Path, local: dict[str, bytes]) -> None:
    """Some of them of requests that were done."""
    with faulty(storage.endpoint, seed, share=0.3, kinds=(RESET, UNAVAILABLE, SLOW_DOWN)) as proxy:
        proxy.methods = ALL
        bucket = Bucket(storage, f"lost {seed}/set", tmp_path / "staging", proxy)
        write(bucket)
        assert proxy.done.total() > 0
    assert bucket.files() == local
    assert bucket.staged() == []


@pytest.mark.parametrize("fault", [UNAVAILABLE, pytest.param(RESET, marks=pytest.mark.long)])
def test_a_store_that_takes_no_shard(fault: str, bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:

    def fail_from_the_second_shard(when: str, request: str) -> None:
        if "PART_00001" in request:
            proxy.share = 1.0

    proxy.methods, proxy.kinds, proxy.watch = ("PUT",), (fault,), fail_from_the_second_shard
    with pytest.raises(TransientError, match=r"set/PART_0000\d\.ffr: .*; tried 2 times in [\d.]+ seconds"):
        write(bucket, few=True)
    found = bucket.files()
    assert "dataset.json" not in found
    proxy.share, proxy.watch = 0, lambda when, request: None
    assert write(bucket).kept_shards >= 1
    assert bucket.files() == local


def test_what_is_there_is_not_what_was_sent(bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:
    proxy.methods, proxy.kinds, proxy.share = ("HEAD",), (STALE,), 1.0
    with pytest.raises(
        TransientError, match=r'with etag "another", but \d+ bytes with etag "\w+" were sent; tried 2 times'
    ):
        write(bucket, few=True)
    assert "dataset.json" not in bucket.files()
    proxy.share = 0
    assert write(bucket).kept_shards == 6
    assert bucket.files() == local


def test_a_shard_is_looked_for_again_and_not_sent_again(bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:
    """As often as any request is made again, and no more."""
    proxy.methods, proxy.kinds, proxy.share, proxy.in_a_row = ("HEAD",), (UNAVAILABLE,), 1.0, 2
    write(bucket)
    assert bucket.files() == local
    assert sorted(sent(proxy))[1:-1] == sorted(name for name in local if name.endswith(".ffr"))
    proxy.requests.clear()
    proxy.in_a_row = 1000
    with pytest.raises(TransientError, match=r"PART_\d+\.ffr: HTTP status 503; tried 2 times in [\d.]+ seconds(\n|$)"):
        write(bucket, mode="append", few=True)
    heads = Counter(line for line in proxy.requests if line.startswith("HEAD ") and "PART_" in line)
    assert set(heads.values()) <= {1, 2}


@pytest.mark.parametrize("name", [".dataset.part", "PART_00000.ffr"])
def test_only_we_make_requests_again(name: str, bucket: Bucket, proxy: Faulty) -> None:
    """Not obstore too, whose tries would be multiplied by ours."""
    refused: list[str] = []

    def refuse(request: str) -> int | None:
        if not request.startswith("PUT ") or name not in request:
            return None
        refused.append(request)
        return 503

    proxy.refuses = refuse
    options = {**bucket.options["storage_options"], "max_tries": 3}
    del options["retry_config"]
    with pytest.raises(TransientError, match=rf"{name}: HTTP status 503; tried 3 times in"):
        write(bucket, GIVEN.samples[:20], storage_options=options)
    assert len(refused) == 3


def test_a_shard_that_is_replaced_before_the_end(bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:
    """By whoever thinks that the place is theirs: the manifest must not list what is not there."""

    class Replacing(list[bytes]):
        def __getitem__(self, index: Any) -> Any:
            if index == 119:
                while not any(line.startswith("HEAD ") and "PART_00000" in line for line in proxy.requests):
                    pass
                bucket.put("PART_00000.ffr", b"x" * len(local["PART_00000.ffr"]))
            return super().__getitem__(index)

    with pytest.raises(ChangedError, match=r"PART_00000\.ffr: the object was replaced or removed after it was sent"):
        write(bucket, Replacing(GIVEN.samples), serializer=bytes)
    assert "dataset.json" not in bucket.files()
    bucket.delete("PART_00000.ffr")
    write(bucket, serializer=bytes)
    assert bucket.files().keys() == local.keys()


def test_another_manifest_comes_meanwhile(bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:
    """In the very moment before ours: the store compares."""
    write(bucket)
    before = bucket.files()
    other = json.dumps({**json.loads(before["dataset.json"]), "more": 1}).encode()

    def come(when: str, request: str) -> None:
        if when == "before" and request.startswith("PUT ") and request.endswith("dataset.json"):
            bucket.put("dataset.json", other)

    proxy.watch = come
    with pytest.raises(FileExistsError, match=r"nothing was published: another process has changed its dataset\.json"):
        write(bucket, mode="append")
    assert bucket.files()["dataset.json"] == other
    proxy.watch = lambda when, request: None


@pytest.mark.long
def test_a_manifest_of_which_the_answer_is_lost(bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:
    def lose(when: str, request: str) -> None:
        proxy.share = float(request.startswith("PUT ") and request.endswith("dataset.json"))

    proxy.methods, proxy.kinds, proxy.watch, proxy.in_a_row = ("PUT",), (RESET,), lose, 1
    write(bucket, few=True)
    assert proxy.done[RESET] == 1
    assert bucket.files() == local


def test_a_manifest_of_which_nobody_knows(bucket: Bucket, proxy: Faulty, local: dict[str, bytes]) -> None:
    """The store is gone when it is asked whether it took the manifest; the same call finds out."""

    def lose(when: str, request: str) -> None:
        if request.startswith("PUT ") and request.endswith("dataset.json"):
            proxy.share = 1.0

    proxy.methods, proxy.kinds, proxy.watch = ALL, (RESET,), lose
    with pytest.raises(TransientError, match="it is not known whether it was written; repeat the same call"):
        write(bucket, few=True)
    proxy.share, proxy.watch = 0, lambda when, request: None
    proxy.requests.clear()
    assert write(bucket).kept_shards == 6
    assert sent(proxy) == []
    assert bucket.files() == local


def test_two_writers_of_one_url(bucket: Bucket, storage: Storage, tmp_path: Path, local: dict[str, bytes]) -> None:
    """The second one is on another machine: it has another staging directory."""
    other = Bucket(storage, bucket.url.removeprefix("s3://bucket/"), tmp_path / "elsewhere")
    told: list[BaseException] = []

    class Meeting(list[bytes]):
        def __getitem__(self, index: Any) -> Any:
            if index == 70:
                try:
                    write(other)
                except OSError as error:
                    told.append(error)
            return super().__getitem__(index)

    write(bucket, Meeting(GIVEN.samples), serializer=bytes)
    assert [type(error).__mro__[1] for error in told] == [BlockingIOError]
    assert f"is going on, or was interrupted: by process {os.getpid()} on " in str(told[0])
    assert bucket.files().keys() == local.keys()
    assert other.staged() == []


@pytest.mark.long
def test_who_comes_later_is_refused_by_the_first_objects(bucket: Bucket, storage: Storage, tmp_path: Path) -> None:
    """Though somebody has removed the marker."""
    with pytest.raises(WorkerError):
        write(bucket, [*GIVEN.samples, object()], serializer=bytes)
    bucket.delete(".dataset.part")
    other = Bucket(storage, bucket.url.removeprefix("s3://bucket/"), tmp_path / "elsewhere")
    with pytest.raises(FileExistsError, match=r"set is not empty, it holds PART_00000\.ffr"):
        write(other)
    write(bucket, [*GIVEN.samples, b""], serializer=bytes)
    assert ".dataset.part" not in bucket.files()


def test_who_may_not(bucket: Bucket, proxy: Faulty) -> None:
    options = {**bucket.options["storage_options"], "skip_signature": True}
    with pytest.raises(PermissionError, match=r"set(/\.dataset\.part)?: access denied: HTTP status 403"):
        write(bucket, storage_options=options)
    # Or may look, but not write.
    proxy.refuses = lambda request: 403 if request.startswith("PUT ") else None
    with pytest.raises(PermissionError, match=r"set/\.dataset\.part: access denied: HTTP status 403") as raised:
        write(bucket)
    assert isinstance(raised.value, RemoteError)
    # Or everything but the last.
    proxy.refuses = lambda request: 403 if request.startswith("PUT ") and request.endswith("dataset.json") else None
    with pytest.raises(PermissionError, match=r"set/dataset\.json: access denied: HTTP status 403"):
        write(bucket)
    assert sorted(bucket.files()) == [".dataset.part", *(f"PART_{number:05d}.ffr" for number in range(6))]
    proxy.refuses = lambda request: None
    assert write(bucket).kept_shards == 6
    assert bucket.staged() == []


@pytest.mark.long
def test_a_late_upload_keeps_the_lock(
    bucket: Bucket, proxy: Faulty, local: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """What is still on its way when a write has ended must not replace what another one sends."""
    monkeypatch.setattr(uploads, "PATIENCE", 0.01)
    monkeypatch.setattr(uploads, "SLOW", 0.02)
    gate = threading.Event()
    proxy.watch = lambda when, request: gate.wait(20) if request.startswith("PUT ") and "PART_" in request else None

    class Failing(list[bytes]):
        def __getitem__(self, index: Any) -> Any:
            if index == 110:
                while not any("PART_" in name for name in map(str, bucket.staging.rglob("finished/*"))):
                    pass
                raise OSError("a bad day")
            return super().__getitem__(index)

    with pytest.raises(WorkerError, match="a bad day"):
        write(bucket, Failing(GIVEN.samples), serializer=bytes)
    assert "it stays locked until the shards that are being sent have arrived" in caplog.text
    with pytest.raises(BlockingIOError, match="has the lock of"):
        write(bucket, serializer=bytes)
    gate.set()
    end = time.monotonic() + 20
    while True:
        try:
            write(bucket, serializer=bytes)
            break
        except BlockingIOError:
            assert time.monotonic() < end
    assert bucket.files().keys() == local.keys()
    assert bucket.staged() == []


def test_a_clean_up_has_an_end(bucket: Bucket, proxy: Faulty, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all requests together, though the store does not answer any more."""
    monkeypatch.setattr(objects, "TIDYING", 0.5)

    def gives() -> Iterator[bytes]:
        yield from GIVEN.samples
        proxy.methods, proxy.kinds, proxy.share = ALL, (UNAVAILABLE,), 1.0
        raise KeyError("enough")

    writer = DatasetWriter(bucket.url, num_workers=0, samples_per_shard=100, **bucket.options)
    begun = time.monotonic()
    with pytest.raises(KeyError, match="enough"):
        writer.from_iterable(gives(), chunksize=10)
    assert time.monotonic() - begun < 10
    proxy.share = 0
    write(bucket)


def test_no_such_bucket(bucket: Bucket, storage: Storage) -> None:
    with pytest.raises(FileNotFoundError, match="there is no such bucket"):
        DatasetWriter("s3://nowhere/set", **bucket.options)


@pytest.mark.long
def test_no_answer(bucket: Bucket, proxy: Faulty) -> None:
    """Not for ever."""
    proxy.methods, proxy.kinds, proxy.share = ("PUT",), (SILENT,), 1.0
    options = {**bucket.options["storage_options"], **FEW, "client_options": {"timeout": "300ms"}, "max_tries": 2}
    with pytest.raises(TransientError, match=r"set/PART_0000\d\.ffr: the server did not answer in time; tried 2 times"):
        write(bucket, storage_options=options)


FULL = """
import json, sys
import children
from ffrecord import DatasetWriter
disk, url, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
try:
    children.small_disk(disk, 3 << 20)
except OSError as error:
    sys.exit(print(f"no mounts: {error}"))
samples = [bytes(100_000)] * 100
for shard, refused in ((50, True), (2, False)):
    try:
        writer = DatasetWriter(url, num_workers=0, samples_per_shard=shard, storage_options=options, staging=disk)
        writer.from_indexed_dataset(samples, chunksize=2)
    except OSError as error:
        assert refused and error.errno == 28, error
        print(error, *getattr(error, "__notes__", []), sep="\\n")
    else:
        assert not refused
"""


def test_a_full_staging_directory(bucket: Bucket, tmp_path: Path, storage: Storage) -> None:
    """A dataset of 10 MB in large shards does not go through a disk of 3 MB; in small ones it does."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = children.finished(FULL, disk, bucket.url, json.dumps(storage.storage_options))
    if "no mounts" in done.stdout:
        pytest.skip(f"this machine allows no mounts: {done.stdout}")
    assert done.returncode == 0, done.stderr
    assert f"{disk}/set-" in done.stdout
    assert "No space left on device" in done.stdout
    assert "pass staging= for another directory" in done.stdout + done.stderr
    assert len(bucket.files()) == 51


def test_nothing_secret_is_told(bucket: Bucket, proxy: Faulty, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    writer = DatasetWriter(bucket.url, num_workers=0, samples_per_shard=20, **bucket.options)
    said = [repr(writer), repr(vars(writer)), repr(writer._options)]
    for status, name in ((403, "dataset.json"), (503, "PART_00003"), (500, ".dataset.part")):

        def refuse(request: str, status: int = status, name: str = name) -> int | None:
            return status if request.startswith("PUT ") and name in request else None

        proxy.refuses = refuse
        with pytest.raises(OSError, match="set/") as raised:
            write(bucket, few=True, resume=False)
        said += traceback.format_exception(raised.value)
        said += [path.read_text("latin-1") for path in bucket.staging.rglob("ledger")]
    proxy.refuses = lambda request: None
    write(bucket, resume=False)
    said += [data.decode("latin-1") for name, data in bucket.files().items() if not name.endswith(".ffr")]
    said += [record.getMessage() for record in caplog.records]
    assert len(said) > 10
    assert not [text for text in said if SECRET in text or "testing-key" in text]


# The staging directory


def test_its_place_is_of_the_url_and_the_store() -> None:
    usual = staging.staging_path("s3://bucket/a/set", {"region": "x"}, "/tmp/s")
    assert usual.startswith("/tmp/s/set-")
    for url in ("s3://bucket/a/set/", "s3://key:secret@bucket/a/set", "S3://bucket/a/set"):
        assert staging.staging_path(url, {"secret_access_key": "y"}, "/tmp/s") == usual
    assert staging.staging_path("s3://bucket/b/set", None, "/tmp/s") != usual
    assert staging.staging_path("s3://bucket/a/set", {"endpoint": "http://other"}, "/tmp/s") != usual


def test_the_usual_one_is_of_this_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = staging.staging_path("s3://bucket/set", None, None)
    staging.make_staging(place, own=True)
    directory = Path(place).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    staging.make_staging(place, own=True)
    directory.chmod(0o755)
    with pytest.raises(PermissionError, match="is not a directory of this user alone; pass staging="):
        staging.make_staging(place, own=True)
    directory.rmdir()
    (tmp_path / "mine").mkdir(0o700)
    directory.symlink_to(tmp_path / "mine")
    with pytest.raises(PermissionError, match="is not a directory of this user alone"):
        staging.make_staging(place, own=True)


def test_a_directory_of_a_process_that_another_one_takes_for_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its locking."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lock, gone = staging.lock, []

    def late(fd: int, path: str) -> bool:
        if not gone:
            gone.append(path)
            os.rmdir(path)
        return lock(fd, path)

    monkeypatch.setattr(staging, "lock", late)
    scratch = staging.ScratchDirectory("test")
    assert [scratch.path] == [str(path) for path in Path(gone[0]).parent.iterdir()]
    scratch.close()
    scratch.close()
    assert list(Path(gone[0]).parent.iterdir()) == []
    monkeypatch.setattr(staging, "lock", lambda fd, path: False)
    with pytest.raises(OSError, match="another process removes each directory that is created there"):
        staging.ScratchDirectory("test")


def test_a_directory_where_there_are_no_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def refused(fd: int, path: str) -> bool:
        raise OSError(95, "no locks")

    monkeypatch.setattr(staging, "lock", refused)
    first, second = staging.ScratchDirectory("test"), staging.ScratchDirectory("test")
    assert os.path.isdir(first.path)
    first.close()
    second.close()


def test_versions_are_compared_as_stores_spell_them() -> None:
    assert objects.same_etag('"0x8D"', "0x8D")
    assert objects.same_etag('W/"a"', '"a"')
    assert objects.same_etag(None, '"a"')
    assert not objects.same_etag('"a"', '"b"')


# The threads


def shard(number: int) -> Any:
    return number


def test_uploads_in_order_and_some_at_once() -> None:
    begun: list[int] = []
    gate = threading.Event()

    def send(number: Any, given_up: threading.Event) -> None:
        begun.append(number)
        gate.wait(20)

    sending = uploads.Uploads(send)
    for number in range(10):
        sending.add(shard(number))
    assert begun == []
    sending.start()
    while len(begun) < uploads.AT_ONCE:
        pass
    assert sorted(begun) == [0, 1, 2, 3]
    gate.set()
    sending.wait()
    assert sorted(begun) == list(range(10))
    assert sending.stop()


def test_the_first_failure_ends_uploads() -> None:
    def send(number: Any, given_up: threading.Event) -> None:
        raise KeyError(number)

    sending = uploads.Uploads(send)
    sending.add(shard(0))
    with pytest.raises(KeyError):
        sending.wait()
    sending.add(shard(1))
    sending.add(shard(2))
    with pytest.raises(KeyError):
        sending.make_room()
    assert sending.stop()


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_threads_that_cannot_be_had(
    allowed: int, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, local: dict[str, bytes]
) -> None:
    """Of a system that lets a process have few: fewer send, and without any it is told and goes on later."""
    begin, left = threading.Thread.start, iter(range(allowed))

    def start(thread: threading.Thread) -> None:
        if thread.name.startswith("ffrecord-upload") and next(left, None) is None:
            raise RuntimeError("can't start new thread")
        begin(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        if allowed:
            write(bucket)
        else:
            with pytest.raises(OSError, match="a thread to send shards could not be started: can't start new thread"):
                write(bucket)
            assert "dataset.json" not in bucket.files()
    if not allowed:
        write(bucket, resume=True)
    assert bucket.files() == local


def test_where_nothing_is_left_to_send_no_thread_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sending = uploads.Uploads(lambda each, given_up: None)
    monkeypatch.setattr(threading.Thread, "start", refused)
    sending.wait()
    sending.add(shard(0))
    with pytest.raises(OSError, match="a thread to send shards could not be started"):
        sending.wait()
    assert sending.stop()


def test_what_is_on_its_way_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "PATIENCE", 0.05)
    ended: list[int] = []

    def send(number: Any, given_up: threading.Event) -> None:
        assert given_up.wait(20)
        ended.append(number)

    sending = uploads.Uploads(send)
    for number in range(6):
        sending.add(shard(number))
    sending.start()
    while sending._busy < uploads.AT_ONCE:
        pass
    assert sending.stop()
    assert sorted(ended) == [0, 1, 2, 3]


def test_what_cannot_be_given_up_is_told_of_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "PATIENCE", 0.01)
    monkeypatch.setattr(uploads, "SLOW", 0.02)
    gate, told = threading.Event(), threading.Event()

    def send(number: Any, given_up: threading.Event) -> None:
        gate.wait(20)

    sending = uploads.Uploads(send)
    sending.add(shard(0))
    sending.start()
    while not sending._busy:
        pass
    assert not sending.stop()
    sending.call_when_idle(told.set)
    assert not told.is_set()
    gate.set()
    assert told.wait(20)
    again = threading.Event()
    sending.call_when_idle(again.set)
    assert again.is_set()


@pytest.mark.parametrize("code", ["ConditionalRequestConflict", "OperationAborted", ""])
@pytest.mark.parametrize("mode", ["create", "append"])
def test_conflicts_of_conditional_writes(
    code: str, mode: str, bucket: Bucket, proxy: Faulty, local: dict[str, bytes]
) -> None:
    """S3 answers 409 while another conditional write of the key is going on: nobody knows yet, so it is asked again."""
    if mode == "append":
        write(bucket)
    left = Counter({".dataset.part": 1, "dataset.json": 1})

    def conflict(request: str) -> tuple[int, str] | None:
        method, _, path = request.partition(" ")
        name = path.rpartition("/")[2]
        if method != "PUT" or not left[name]:
            return None
        left[name] -= 1
        return 409, f"<Error><Code>{code}</Code></Error>" if code else ""

    proxy.refuses = conflict
    write(bucket, mode=mode)
    assert not left.total()
    found = bucket.files()
    assert {name: found[name] for name in local if name != "dataset.json"}.items() <= local.items()
    assert len(found) == (len(local) if mode == "create" else 2 * len(local) - 1)
    assert bucket.staged() == []
