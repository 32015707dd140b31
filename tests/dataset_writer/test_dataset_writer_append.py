"""Appending: what is there is not touched, readers go on, a crash at any instant leaves the old dataset or the new."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
from calls import dies_before, refused_at
from written_datasets import Samples, files_in, read_all, write_from

from ffrecord import FileReader, FormatError, MismatchError
from ffrecord.dataset_writer import DatasetWriter, Summary
from ffrecord.dataset_writer.dump import dump
from ffrecord.dataset_writer.layout import shard_name
from ffrecord.dataset_writer.part_directory import PartDirectory
from ffrecord.dataset_writer.target import next_shard_name
from ffrecord.errors import MissingFileError, WorkerError
from ffrecord.fields import IntField, schema_of
from ffrecord.format import manifest
from ffrecord.system import locked_directory

OLD = [b"old %d" % index * (index % 5) for index in range(30)]
NEW = [b"new %d" % index * (index % 7) for index in range(40)]


def create(path: Path, samples: Any = OLD, **options: Any) -> Summary:
    return DatasetWriter(path, **{"num_workers": 0, "samples_per_shard": 10, **options}).from_indexed_dataset(samples)


def append(path: Path, samples: Any = NEW, **options: Any) -> Summary:
    return create(path, samples, mode="append", **options)


def identities(path: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for shard in sorted(path.glob("*.ffr")):
        status = shard.stat()
        found[shard.name] = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, shard.read_bytes())
    return found


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cut", [{}, {"samples_per_shard": None, "shard_size": 100}], ids=["by count", "by bytes"])
def test_append(tmp_path: Path, workers: int, cut: dict[str, Any]) -> None:
    """Old shards stay as they are, in every respect; readers opened before go on, those opened after see all."""
    create(tmp_path / "set", **cut)
    before = identities(tmp_path / "set")
    with FileReader(tmp_path / "set") as old:
        summary = append(tmp_path / "set", num_workers=workers, **cut)
        assert builders.read_all(old) == OLD
    assert read_all(tmp_path / "set") == OLD + NEW
    after = identities(tmp_path / "set")
    assert {name: after[name] for name in before} == before
    assert (summary.samples, summary.shards) == (len(NEW), len(after) - len(before))
    assert min(after.keys() - before.keys()) > max(before)
    assert sorted(os.listdir(tmp_path / "set")) == [*sorted(after), "dataset.json"]
    assert os.listdir(tmp_path) == ["set"]


def test_the_shards_are_those_of_a_write_of_their_own(tmp_path: Path) -> None:
    create(tmp_path / "set")
    append(tmp_path / "set")
    create(tmp_path / "new", NEW)
    for number in range(4):
        appended, alone = (tmp_path / name for name in (f"set/PART_0000{3 + number}.ffr", f"new/PART_0000{number}.ffr"))
        assert appended.read_bytes() == alone.read_bytes()


def test_again_and_again(tmp_path: Path) -> None:
    create(tmp_path / "set", [])
    for turn in range(5):
        append(tmp_path / "set", [bytes([turn])] * (turn + 1), samples_per_shard=2)
    assert read_all(tmp_path / "set") == [bytes([turn]) for turn in range(5) for _ in range(turn + 1)]
    listed = manifest.load(str(tmp_path / "set"))
    assert listed is not None and [shard.samples for shard in listed.shards] == [0, 1, 2, 2, 1, 2, 2, 2, 2, 1]


def test_columns_are_those_that_are_there(tmp_path: Path) -> None:
    """Inferred once: what is appended need not show them again."""
    create(tmp_path / "set", [{"x": np.arange(index)} for index in range(20)])
    append(tmp_path / "set", [{"x": np.arange(7)}] * 3)
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.decode(reader.read_one(22))["x"].tolist() == list(range(7))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("source", ["dataset", "iterable", "lines"])
def test_what_is_appended_to_nothing_decides_the_columns(tmp_path: Path, source: str, workers: int) -> None:
    create(tmp_path / "set", [])
    empty = identities(tmp_path / "set")
    given = Samples([{"x": index} for index in range(25)])
    how: dict[str, Any] = {"mode": "append", "num_workers": workers, "samples_per_shard": 10}
    write_from(source, tmp_path / "set", given, **how)
    listed = manifest.load(str(tmp_path / "set"))
    assert listed is not None and [shard.name for shard in listed.shards] == [f"PART_0000{i}.ffr" for i in (1, 2, 3)]
    assert {name: identities(tmp_path / "set")[name] for name in empty} == empty
    with FileReader(tmp_path / "set") as reader:
        schema = schema_of(reader)
        assert schema is not None and schema.decode(reader.read_one(24)) == {"x": 24}
    with pytest.raises(MismatchError, match=r"schema\S* was .*'x'"):
        append(tmp_path / "set", [{"y": 1}], fields={"y": IntField()})
    append(tmp_path / "set", given.samples)
    with FileReader(tmp_path / "set") as reader:
        assert reader.n == 50


def test_what_is_appended_to_nothing_decides_the_serializer(tmp_path: Path) -> None:
    for name in ("new", "old"):
        create(tmp_path / name, [])
        if name == "old":
            (tmp_path / name / "dataset.json").unlink()
        append(tmp_path / name, [1, 2], serializer=pickle.dumps)
        with pytest.raises(MismatchError, match=r"serializer was '_pickle\.dumps', is None"):
            append(tmp_path / name, [b"x"])
        with FileReader(tmp_path / name) as reader:
            assert reader.extension is not None and reader.extension.serializer == "_pickle.dumps"


def test_columns_that_were_declared_stay(tmp_path: Path) -> None:
    """Without samples, too."""
    create(tmp_path / "set", [], fields={"x": IntField()})
    with pytest.raises(MismatchError, match=r"schema\S* was .*'x'"):
        append(tmp_path / "set", [{"y": 1}], fields={"y": IntField()})
    append(tmp_path / "set", [{"x": 1}])
    listed = manifest.load(str(tmp_path / "set"))
    assert listed is not None and [shard.samples for shard in listed.shards] == [0, 1]


def test_other_columns_are_refused_and_named(tmp_path: Path) -> None:
    create(tmp_path / "set", [{"x": 1}] * 20)
    before = files_in(tmp_path / "set")
    with pytest.raises(
        MismatchError, match=r"the samples to append differ from those of the dataset: schema.*'x'"
    ) as caught:
        append(tmp_path / "set", [{"y": 1}], fields={"y": IntField()})
    assert caught.value.differences
    with pytest.raises(MismatchError, match=r"items\[1\] was nothing, is \['y'"):
        append(tmp_path / "set", [{"x": 1, "y": 2}], fields={"x": IntField(), "y": IntField()})
    with pytest.raises(MismatchError, match="schema"):  # before any sample is looked at
        append(tmp_path / "set", [{"x": 1}], fields={"z": IntField()})
    with pytest.raises(MismatchError, match=r"serializer was None, is 'builtins\.bytes'"):
        append(tmp_path / "set", [{"x": 1}], serializer=bytes)
    with pytest.raises(MismatchError, match=r"serializer was None, is '_pickle\.dumps'"):
        append(tmp_path / "set", [{"y": 1}], serializer=pickle.dumps)
    with pytest.raises(WorkerError, match="sample 0"):
        append(tmp_path / "set", [{"y": 1}])
    assert files_in(tmp_path / "set") == before


def test_other_serializers_are_refused_and_named(tmp_path: Path) -> None:
    create(tmp_path / "set", [1, 2, 3], serializer=pickle.dumps)
    with pytest.raises(MismatchError, match=r"serializer was '_pickle\.dumps', is None"):
        append(tmp_path / "set", [b"x"])
    with pytest.raises(MismatchError, match=r"serializer was '_pickle\.dumps', is 'builtins\.bytes'"):
        append(tmp_path / "set", [b"x"], serializer=bytes)
    append(tmp_path / "set", [4], serializer=pickle.dumps)
    assert [pickle.loads(sample) for sample in read_all(tmp_path / "set")] == [1, 2, 3, 4]


def test_typed_samples_to_plain_ones_are_refused(tmp_path: Path) -> None:
    create(tmp_path / "set")
    with pytest.raises(MismatchError, match="schema was None, is"):
        append(tmp_path / "set", [{"x": 1}])
    assert read_all(tmp_path / "set") == OLD


def test_a_directory_without_a_manifest(tmp_path: Path) -> None:
    """As ffrecord 1.x writes them: it gets one, of all files in string order."""
    dump(OLD, tmp_path / "set", 3)
    before = identities(tmp_path / "set")
    append(tmp_path / "set")
    assert read_all(tmp_path / "set") == OLD + NEW
    after = identities(tmp_path / "set")
    assert {name: after[name] for name in before} == before and list(after)[:3] == list(before)


def test_files_of_any_name(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    builders.write_samples(tmp_path / "set" / "zebra.ffr", [b"z"])
    builders.write_samples(tmp_path / "set" / "ant.ffr", [b"a"])
    append(tmp_path / "set", [b"1", b"2"], samples_per_shard=1)
    append(tmp_path / "set", [b"3"])
    names = sorted(name for name in os.listdir(tmp_path / "set") if name.endswith(".ffr"))
    assert names == ["ant.ffr", "zebra.ffr", "zebra_00000.ffr", "zebra_00001.ffr", "zebra_00002.ffr"]
    assert read_all(tmp_path / "set") == [b"a", b"z", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "names, first",
    [
        ([], "PART_00000.ffr"),
        (["PART_00000.ffr", "PART_00007.ffr"], "PART_00008.ffr"),
        (["PART_99999.ffr"], "PART_99999_00000.ffr"),
        (["part_3.ffr"], "part_3_00000.ffr"),
        (["a.ffr", "b_00001.ffr"], "b_00002.ffr"),
        (["PART_00001.ffr", "x.ffr"], "x_00000.ffr"),
    ],
)
def test_names_sort_after_all(names: list[str], first: str) -> None:
    stem, start = next_shard_name(names)
    assert shard_name(start.shard, stem) == first > max(names, default="")


def test_nothing_to_append_to(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(FileNotFoundError, match="holds no dataset to append to"):
            append(path)
    with pytest.raises(ValueError, match="mode is 'a', expected 'create' or 'append'"):
        create(tmp_path / "set", mode="a")
    assert os.listdir(tmp_path) == []


def test_a_dataset_that_is_not_whole_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "set")
    path = tmp_path / "set" / "PART_00001.ffr"
    data = path.read_bytes()
    path.write_bytes(data + b"\0")
    with pytest.raises(
        FormatError, match=r"PART_00001\.ffr: it is another shard than the listed one, .*: \(samples, size"
    ):
        append(tmp_path / "set")
    path.unlink()
    with pytest.raises(MissingFileError, match=r"PART_00001\.ffr does not exist, but dataset\.json lists it"):
        append(tmp_path / "set")
    path.write_bytes(data)
    append(tmp_path / "set")
    assert read_all(tmp_path / "set") == OLD + NEW


def test_two_at_once_refuse_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locked_directory, "PATIENCE", 0.1)

    class Meddling:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> bytes:
            if index == 1 and not threading.current_thread().name.startswith("ffrecord"):
                with pytest.raises(BlockingIOError, match="another process or thread is writing to it"):
                    append(tmp_path / "set", [b"x"])
            return b"y"

    create(tmp_path / "set")
    append(tmp_path / "set", Meddling(), serializer=None)
    assert read_all(tmp_path / "set") == OLD + [b"y"] * 3


class Failing(list[bytes]):
    def __getitem__(self, index: Any) -> Any:
        if index == 34:
            raise KeyError("not yet")
        return super().__getitem__(index)


def interrupted(path: Path) -> None:
    """An append of which three shards are finished."""
    writer = DatasetWriter(path, mode="append", num_workers=0, samples_per_shard=10)
    with pytest.raises(WorkerError, match="sample 34"):
        writer.from_indexed_dataset(Failing(NEW), chunksize=5)


def iterate(path: Path, samples: Any = NEW, **options: Any) -> Summary:
    return DatasetWriter(path, mode="append", num_workers=0, **options).from_iterable(samples)


def test_interrupted_and_gone_on_with(tmp_path: Path) -> None:
    create(tmp_path / "set")
    interrupted(tmp_path / "set")
    assert read_all(tmp_path / "set") == OLD
    assert sorted(os.listdir(tmp_path / "set" / ".dataset.part" / "finished")) == [
        f"PART_0000{number}.ffr" for number in (3, 4, 5)
    ]
    with pytest.raises(MismatchError, match="samples_per_shard was 10, is 11"):
        append(tmp_path / "set", samples_per_shard=11)
    assert append(tmp_path / "set").kept_shards == 3
    assert read_all(tmp_path / "set") == OLD + NEW
    assert not (tmp_path / "set" / ".dataset.part").exists()


def test_an_iterable_that_is_refused_leaves_what_another_call_has_finished(tmp_path: Path) -> None:
    create(tmp_path / "set")
    interrupted(tmp_path / "set")
    with pytest.raises(MismatchError, match="3 finished shards of an interrupted write, which this one cannot"):
        iterate(tmp_path / "set", [{"y": 1}], fields={"y": IntField()})
    assert append(tmp_path / "set").kept_shards == 3
    assert read_all(tmp_path / "set") == OLD + NEW


def test_what_was_finished_for_another_base_is_refused(tmp_path: Path) -> None:
    create(tmp_path / "set")
    with pytest.raises(OSError, match="disk"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartDirectory, "publish_more", failing)
        append(tmp_path / "set")
    shutil.move(tmp_path / "set" / ".dataset.part", tmp_path / "aside")
    append(tmp_path / "set", [b"between"])
    shutil.move(tmp_path / "aside", tmp_path / "set" / ".dataset.part")
    with pytest.raises(MismatchError, match="dataset appended to was '"):
        append(tmp_path / "set")
    assert append(tmp_path / "set", resume=False).kept_shards == 0
    assert read_all(tmp_path / "set") == [*OLD, b"between", *NEW]


def failing(*args: Any, **options: Any) -> None:
    raise OSError(5, "disk")


# Dying at every call.


@pytest.mark.parametrize("with_manifest", [True, False])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.long)])
def test_killed_before_any_call(tmp_path: Path, with_manifest: bool, step: int) -> None:
    """At each instant the old dataset, whole, or the new one; and the next append goes on, and appends once."""
    pristine, target = tmp_path / "pristine", tmp_path / "set"
    if with_manifest:
        create(pristine)
    else:
        dump(OLD, pristine, 3)
    died, at, published = True, 1, 0
    while died:
        shutil.copytree(pristine, target)
        before = identities(target)
        died = dies_before(at, lambda: append(target, NEW[:25]))
        found = read_all(target)
        assert found in (OLD, OLD + NEW[:25]), at
        published += died and len(found) > len(OLD)
        # Once the ledger is gone, nobody knows any more that it died tidying up; an empty directory may stay.
        known = found == OLD or (target / ".dataset.part" / "ledger").exists()
        if known:
            append(target, NEW[:25])
        assert read_all(target) == OLD + NEW[:25]
        after = identities(target)
        assert {name: after[name] for name in before} == before
        names = {*os.listdir(target)} - ({".dataset.part"} if died and not known else set())
        assert sorted(names) == [*sorted(after), "dataset.json"] and len(after) == 6
        shutil.rmtree(target)
        at += step
    assert at > 40 and published


@pytest.mark.parametrize("number", [5, 28])
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.long)])
def test_any_call_refused(tmp_path: Path, number: int, step: int) -> None:
    pristine, target = tmp_path / "pristine", tmp_path / "set"
    create(pristine)
    outcomes = set()
    for at in range(1, 400, step):
        shutil.copytree(pristine, target)
        before = identities(target)
        outcome = refused_at(at, number, lambda: append(target, NEW[:25]))
        outcomes.add(outcome)
        assert outcome in (0, 1, 3), at
        if read_all(target) == OLD:
            append(target, NEW[:25])
        assert read_all(target) == OLD + NEW[:25]
        assert {name: identities(target)[name] for name in before} == before
        shutil.rmtree(target)
        if outcome == 3:
            break
    assert outcomes >= {1, 3}


def test_published_before_it_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call again tells what was appended, and appends nothing; another one appends."""
    create(tmp_path / "set")
    for again in (NEW, [b"else"]):
        pid = os.fork()
        if pid == 0:
            monkeypatch.setattr(PartDirectory, "discard", lambda self: os.kill(os.getpid(), signal.SIGKILL))
            append(tmp_path / "set")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
        there = read_all(tmp_path / "set")
        summary = append(tmp_path / "set", again)
        assert summary.samples == len(again) and summary.kept_shards == (4 if again is NEW else 0)
        assert read_all(tmp_path / "set") == (there if again is NEW else [*there, b"else"])
    assert read_all(tmp_path / "set") == [*OLD, *NEW, *NEW, b"else"]


def killed_tidying_up(work: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        PartDirectory.discard = lambda self: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
        work()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def test_an_iterable_published_before_it_was_killed_is_not_appended_twice(tmp_path: Path) -> None:
    create(tmp_path / "set")
    killed_tidying_up(lambda: iterate(tmp_path / "set"))
    for _ in range(2):
        with pytest.raises(MismatchError, match=r"so this one may append the same again; pass resume=False to append"):
            iterate(tmp_path / "set")
    assert read_all(tmp_path / "set") == OLD + NEW
    iterate(tmp_path / "set", [b"more"], resume=False)
    assert read_all(tmp_path / "set") == [*OLD, *NEW, b"more"]
    iterate(tmp_path / "set", [b"and more"])
    assert read_all(tmp_path / "set") == [*OLD, *NEW, b"more", b"and more"]


def test_nothing_was_appended_before_it_was_killed(tmp_path: Path) -> None:
    create(tmp_path / "set")
    killed_tidying_up(lambda: append(tmp_path / "set", []))
    summary = append(tmp_path / "set", [])
    assert (summary.samples, summary.shards, summary.kept_shards) == (0, 0, 0)
    append(tmp_path / "set")
    assert read_all(tmp_path / "set") == OLD + NEW


READER = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from ffrecord import FileReader
sizes = set()
while not Path({stop!r}).exists():
    with FileReader({target!r}) as reader:
        samples = [bytes(sample) for sample in reader]
    assert len(samples) % 40 == 30, len(samples)
    sizes.add(len(samples))
print(len(sizes))
"""


def test_readers_beside_appending_writers(tmp_path: Path) -> None:
    """Processes that open the dataset again and again see it as it was before or after each append."""
    create(tmp_path / "set")
    code = READER.format(path=sys.path, stop=str(tmp_path / "stop"), target=str(tmp_path / "set"))
    readers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    time.sleep(0.5)
    for _ in range(15):
        append(tmp_path / "set")
        time.sleep(0.02)
    (tmp_path / "stop").touch()
    seen = [reader.communicate(timeout=60)[0] for reader in readers]
    assert all(reader.returncode == 0 for reader in readers)
    assert all(int(count) >= 1 for count in seen)
    assert read_all(tmp_path / "set") == OLD + NEW * 15


def test_the_manifest_changed_meanwhile(tmp_path: Path) -> None:
    """By a program that knows no locks: nothing is added."""
    create(tmp_path / "set")

    def meddle(real: Callable[..., None]) -> Callable[..., None]:
        def publish_more(part: PartDirectory, *args: Any) -> None:
            listed = manifest.load(part.target)
            assert listed is not None
            manifest.save(part.target, manifest.build(listed.shards[:2]))
            real(part, *args)

        return publish_more

    with pytest.MonkeyPatch.context() as patch, pytest.raises(FileExistsError, match=r"nothing was added"):
        patch.setattr(PartDirectory, "publish_more", meddle(PartDirectory.publish_more))
        append(tmp_path / "set")
    assert read_all(tmp_path / "set") == OLD[:20]
