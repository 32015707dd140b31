"""The commands that divide and shuffle: split, shuffle."""

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from fractions import Fraction

import children
import pytest
from cli_runs import run
from hypothesis import given
from hypothesis import strategies as st
from numbered import done, labels, written

from ffrecord import DatasetWriter
from ffrecord.cli.commands.split import SplitPart, part_sizes, publish
from ffrecord.errors import ArgumentError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return written(tmp_path_factory.mktemp("making") / "first", 0, 20)


def test_shuffle(dataset, tmp_path):
    assert done("shuffle", dataset, tmp_path / "a", "--seed", "7", "-j", "1")["seed"] == 7
    done("shuffle", dataset, tmp_path / "b", "--seed", "7", "-j", "2")
    drawn = done("shuffle", dataset, tmp_path / "c")["seed"]
    assert 0 <= drawn < 2**32
    order = labels(tmp_path / "a")
    assert sorted(order) == [*range(20)] != order
    assert order == labels(tmp_path / "b")
    assert sorted(labels(tmp_path / "c")) == [*range(20)]


def test_an_interrupted_shuffle_goes_on_in_the_order_that_was_drawn(dataset, tmp_path):
    command = ["shuffle", dataset, tmp_path / "out", "--samples-per-shard", "1", "-j", "1"]
    stopped = """
import os, signal, sys
from ffrecord.cli import main
from ffrecord.dataset_writer.part_directory import PartDirectory

keep, kept = PartDirectory.keep, []

def stop(*arguments):
    keep(*arguments)
    kept.append(arguments)
    if len(kept) == 5:
        os.kill(os.getpid(), signal.SIGINT)

PartDirectory.keep = stop
sys.exit(main(sys.argv[1:]))
"""
    ended = subprocess.run([sys.executable, "-c", stopped, *command], capture_output=True, text=True, check=False)
    assert (ended.returncode, "repeat the same call to continue" in ended.stderr) == (130, True)
    other = run(*command, "--seed", "7")
    assert (other.code, "order.seed was " in other.err, "the same call" in other.err) == (3, True, False)
    seed = json.loads(run(*command, "--json").out)["seed"]
    done("shuffle", dataset, tmp_path / "again", "--seed", seed, "--samples-per-shard", "1")
    assert labels(tmp_path / "out") == labels(tmp_path / "again")


@pytest.mark.parametrize("seed", ["-1", "4294967296", "x"])
def test_wrong_seeds(dataset, tmp_path, seed):
    assert run("shuffle", dataset, tmp_path / "a", f"--seed={seed}").code == 2


def test_split_by_chance(dataset, tmp_path):
    train, val = tmp_path / "train", tmp_path / "val"
    parts = done("split", dataset, f"{train}=0.8", f"{val}=0.2")
    assert [part["samples"] for part in parts] == [16, 4]
    assert sorted(labels(train) + labels(val)) == [*range(20)]
    assert labels(val) == sorted(labels(val)) != [16, 17, 18, 19]


def test_split_in_order(dataset, tmp_path):
    done("split", dataset, f"{tmp_path}/a=5", f"{tmp_path}/b=rest", "--in-order")
    assert (labels(tmp_path / "a"), labels(tmp_path / "b")) == ([*range(5)], [*range(5, 20)])


CRASHES = """
import os, sys
from ffrecord.cli import main
from ffrecord.cli.commands import split

def crash(*_):
    os._exit(9)

if sys.argv[1] == "written":
    split.publish = crash
else:
    first = split.SplitPart.publish
    split.SplitPart.publish = lambda part: crash() if part.path.endswith("b") else first(part)
main(sys.argv[2:])
"""


def test_names_that_are_not_utf_8(dataset, tmp_path):
    parts = [os.fsdecode(bytes(tmp_path) + b"/caf\xe9." + end) for end in (b"a", b"b")]
    assert run("split", dataset, f"{parts[0]}=3", f"{parts[1]}=rest", "--in-order", "-j", "1").code == 0
    assert [labels(path) for path in parts] == [[*range(3)], [*range(3, 20)]]


@pytest.mark.parametrize("when", ["written", "published"])
def test_a_split_that_was_killed_goes_on(dataset, tmp_path, when):
    command = ["split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest"]
    assert children.finished(CRASHES, when, *command).returncode == 9
    assert (tmp_path / "a").exists() == (when == "published")
    before = json.loads((tmp_path / ".a.split" / "part.json").read_text())["summary"]
    first, second = done(*command)
    assert (first["seconds"], first["samples"], second["samples"]) == (before["seconds"], 10, 10)
    assert sorted(labels(tmp_path / "a") + labels(tmp_path / "b")) == [*range(20)]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]
    assert run(*command).code == 3


def test_a_split_of_something_else_leaves_what_is_finished(dataset, tmp_path):
    command = ["split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest"]
    assert children.finished(CRASHES, "written", *command).returncode == 9
    ran = run(*command, "--seed", "1")
    assert (ran.code, "use --restart to discard them" in ran.err, ran.err.count("\n")) == (3, True, 1)
    assert [part["samples"] for part in done(*command, "--seed", "1", "--restart")] == [10, 10]


def test_parts_are_published_together_or_not_at_all(dataset, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").touch()
    ran = run("split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest")
    assert (ran.code, "it already exists" in ran.err) == (3, True)
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


def complete(parts):
    for part in parts:
        part.begin({"of": part.path})
        part.write(lambda path: DatasetWriter(path, num_workers=0, progress=False).from_indexed_dataset([{"y": 1}]))


def test_parts_that_cannot_all_be_published_are_hidden_again(tmp_path, monkeypatch):
    found = [SplitPart(str(tmp_path / name)) for name in "ab"]
    with found[0], found[1]:
        complete(found)
        with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
            patch.setattr(found[1], "publish", lambda: (_ for _ in ()).throw(OSError("full")))
            publish(found)
        assert sorted(each.name for each in tmp_path.iterdir()) == [".a.split", ".b.split"]
        with pytest.raises(BlockingIOError, match="another process"), SplitPart(str(tmp_path / "a")):
            pass
        publish(found)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("which", ["a", "b"])
def test_an_exception_after_a_part_got_its_name_strands_none(tmp_path, monkeypatch, which):
    """As of Ctrl-C, which comes when the system call returns."""
    rename = os.rename

    def interrupted(source, target, **more):
        rename(source, target, **more)
        if target == str(tmp_path / which):
            raise KeyboardInterrupt

    found = [SplitPart(str(tmp_path / name)) for name in "ab"]
    with pytest.raises(KeyboardInterrupt), found[0], found[1], monkeypatch.context() as patch:
        complete(found)
        patch.setattr(os, "rename", interrupted)
        publish(found)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".a.split", ".b.split"]
    with found[0], found[1]:
        complete(found)
        publish(found)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


FAILING = """
import os, sys
from ffrecord.cli import main
from ffrecord.cli.commands import split

target, rename, fsync = os.environ["TARGET"], os.rename, split.fsync_directory

def failing(source, to, **more):
    if str(to) == f"{target}/b" or str(source) == f"{target}/a":
        raise OSError(5, "Input/output error")
    rename(source, to, **more)

def not_durable(directory):
    if directory == target:
        raise OSError(5, "Input/output error")
    fsync(directory)

if sys.argv[1] == "rename":
    os.rename = failing
else:
    split.fsync_directory = not_durable
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("what", ["rename", "fsync"])
def test_what_is_in_place_after_a_failure_is_told_and_gone_on_from(dataset, tmp_path, monkeypatch, what):
    monkeypatch.setenv("TARGET", str(tmp_path))
    command = ["split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest"]
    ran = children.finished(FAILING, what, *command)
    words = {"rename": f"{tmp_path}/a could not be hidden again", "fsync": "all parts are in place, but fsync"}[what]
    assert (ran.returncode, words in ran.stderr, "nothing was published" in ran.stderr) == (3, True, False), ran.stderr
    assert [(tmp_path / name).exists() for name in "ab"] == [True, what == "fsync"]
    assert [part["samples"] for part in done(*command)] == [10, 10]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a", "b"]


def test_parts_that_are_no_longer_whole_are_written_again(dataset, tmp_path):
    command = ["split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest"]
    assert children.finished(CRASHES, "written", *command).returncode == 9
    cut, gone = (min((tmp_path / f".{name}.split" / name).glob("*.ffr")) for name in "ab")
    os.truncate(cut, 30)
    gone.unlink()
    done(*command)
    assert sorted(labels(tmp_path / "a") + labels(tmp_path / "b")) == [*range(20)]
    assert run("verify", tmp_path / "a").code == run("verify", tmp_path / "b").code == 0


def test_a_published_part_that_is_no_longer_whole_is_told(dataset, tmp_path):
    command = ["split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest"]
    assert children.finished(CRASHES, "published", *command).returncode == 9
    shard = min((tmp_path / "a").glob("*.ffr"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"!")
    ran = run(*command)
    assert (ran.code, str(shard) in ran.err, (tmp_path / "b").exists()) == (3, True, False)


def test_the_remains_of_a_killed_write_are_nothing_finished(dataset, tmp_path):
    hidden = tmp_path / ".a.split"
    (hidden / ".a.part" / "finished").mkdir(parents=True)
    (hidden / "part.json").write_text('{"request": {"samples": 3}}')
    (hidden / ".part.json").write_text('{"requ')
    assert done("split", dataset, f"{tmp_path}/a=1.0")["samples"] == 20
    assert [each.name for each in tmp_path.iterdir()] == ["a"]


def test_a_refused_split_makes_no_directories(dataset, tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").touch()
    assert run("split", dataset, f"{tmp_path}/deep/er/a=0.5", f"{tmp_path}/b=rest").code == 3
    assert [each.name for each in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("when", ["begun", "written", "published"])
def test_a_link_that_comes_to_be_at_the_place_of_a_part_leads_nowhere(tmp_path, when):
    """Somebody who may write to the directory it is in puts it there."""
    victim, shared = tmp_path / "victim", tmp_path / "shared"
    (victim / "a").mkdir(parents=True)
    (victim / "precious").touch()
    (victim / "part.json").write_text("mine")
    (victim / "away").symlink_to(victim)

    def swap():
        (shared / ".a.split").rename(shared / "away")
        (shared / ".a.split").symlink_to(victim)

    def write(path):
        made = DatasetWriter(path, num_workers=0, progress=False).from_indexed_dataset([{"y": 1}])
        (shared / ".a.split" / "more").symlink_to(victim)
        if when == "written":
            swap()
        return made

    with contextlib.suppress(PermissionError), SplitPart(str(shared / "a")) as part:
        part.begin({})
        if when == "begun":
            swap()
        part.write(write)
        publish([part])
        swap()
    assert sorted(each.name for each in victim.iterdir()) == ["a", "away", "part.json", "precious"]
    assert ((victim / "part.json").read_text(), [*(victim / "a").iterdir()]) == ("mine", [])
    assert (shared / "a").exists() == (when == "published")


def test_a_planted_place_for_a_part_is_refused(dataset, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".a.split").symlink_to(tmp_path / "elsewhere")
    ran = run("split", dataset, f"{tmp_path}/a=0.5", f"{tmp_path}/b=rest")
    assert (ran.code, "is a symbolic link" in ran.err) == (3, True)
    assert [*(tmp_path / "elsewhere").iterdir()] == []


def test_an_empty_part_is_remarked_on(dataset, tmp_path):
    ran = run("split", dataset, f"{tmp_path}/a=1.0", f"{tmp_path}/b=rest")
    assert (ran.code, ran.err) == (0, f"ffrecord split: {tmp_path}/b has no samples\n")


def test_nothing_is_written_into_its_source(dataset, tmp_path):
    source = shutil.copytree(dataset, tmp_path / "source")
    inside = source / "out"
    for command in (
        ["split", source, f"{inside}=1.0"],
        ["write", source, inside],
        ["convert", source, inside],
        ["shuffle", source, inside],
        ["merge", source, source, "--out", inside],
        ["export", source, f"{inside}.zip"],
        ["pack", source, f"{inside}.ffr"],
    ):
        ran = run(*command)
        assert (ran.code, "is inside" in ran.err) == (2, True), command
    assert sorted(each.name for each in source.iterdir()) == sorted(each.name for each in dataset.iterdir())


@pytest.mark.parametrize("command", ["convert", "shuffle"])
def test_a_url_is_not_inside_the_working_directory(dataset, command):
    """http:// is refused by the writer, before anything is connected."""
    ran = run(command, ".", "http://bucket/set", cwd=dataset)
    assert (ran.code, "datasets cannot be written by HTTP" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["a=0.5", "b=0.4"], "ask for 18 samples"),
        (["a=25", "b=rest"], "ask for 25 samples"),
        (["a=rest", "b=rest"], "only one part"),
        (["a=0.5", "a=0.5"], "twice"),
        (["a=2.5"], "expected 0 to 1"),
        (["a"], "OUT=SHARE"),
        (["a=nan", "b=rest"], "expected 0 to 1"),
    ],
)
def test_wrong_parts(dataset, tmp_path, parts, words):
    ran = run("split", dataset, *(f"{tmp_path}/{part}" for part in parts))
    assert ran.code == 2
    assert words in ran.err
    assert [*tmp_path.iterdir()] == []


def test_sizes_of_parts():
    assert part_sizes([("a", 0.5), ("b", 0.5)], 5) == [2, 3]
    assert part_sizes([("a", 1 / 3), ("b", 1 / 3), ("c", 1 / 3)], 100) == [33, 34, 33]
    assert part_sizes([("a", 0.25), ("b", None), ("c", 3)], 8) == [2, 3, 3]
    assert part_sizes([("a", 0.5), ("b", 0.5), ("c", None)], 3) == [1, 2, 0]
    assert part_sizes([(name, 0.2) for name in "abcde"], 8) == [2, 1, 2, 1, 2]
    with pytest.raises(ArgumentError):
        part_sizes([("a", 4)], 5)


@given(thousandths=st.lists(st.integers(0, 1000), max_size=9), n=st.integers(0, 10**9), rest=st.booleans())
def test_shares_add_up(thousandths, n, rest):
    """However many there are, the last one does not pay for all that was rounded."""
    ends = [0, *sorted(thousandths), 1000]
    shares = [Fraction(end - start, 1000) for start, end in itertools.pairwise(ends)]
    given = [("", float(share)) for share in shares]
    counts = part_sizes([*given[:-1], ("", None)] if rest else given, n)
    assert sum(counts) == n
    assert all(count >= 0 and abs(count - share * n) < 1 for count, share in zip(counts, shares, strict=True))
