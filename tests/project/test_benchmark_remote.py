"""bench_remote.py runs, refuses wrong answers, records what it measured on, and its report is made."""

import json
import re
import shutil
from pathlib import Path

import benchmark_runs
import pytest

for package in ("obstore", "fsspec", "aiohttp"):
    pytest.importorskip(package, reason=f"{package} is not installed")

OURS = {"iter_batches", "blocks", "second epoch, from the cache", "FileReader"}


def contestants(out: Path) -> set[str]:
    """Of results that have all that belongs to them."""
    results = benchmark_runs.results(out, "not_measured")
    for result in results:
        assert result["bench"] == "remote" and len(result["seconds"]) == 5
        assert set(result["versions"]) >= {"obstore", "fsspec", "aiohttp", "nginx", "wrk", "curl"}
        assert result["details"]["role"] == ("ours" if result["contestant"] in OURS else "peer")
        if result["contestant"] in {"iter_batches", "second epoch, from the cache", "files of this machine"}:
            benchmark_runs.check_tails(result)
    return {result["contestant"] for result in results}


def reported(docs: Path, *found: Path) -> str:
    """What the page has of it."""
    return benchmark_runs.reported(docs, "remote.md", *found)


def smoke(directory: Path, part: str) -> tuple[str, Path]:
    """What it prints, and the file of its results."""
    directory.mkdir()
    return benchmark_runs.smoke("remote", directory, "--part", part)


def test_quick_parts_and_the_report(tmp_path: Path) -> None:
    printed, out = smoke(tmp_path / "data", "cache,opening")
    assert contestants(out) == {"second epoch, from the cache", "files of this machine", "FileReader"}
    assert re.search(
        r"opening 200 shards, 20 ms, requests of the round with most +1.00 \(\S+\) +<= 3 +reached", printed
    )
    made = reported(tmp_path, out)
    assert "### Figures of reading by URL and their targets" in made and "nginx 1." in made
    assert re.search(r"^#### .*, from the cache and from files of this machine: waits for a batch$", made, re.MULTILINE)
    assert re.search(
        r"\| 110 kB, batches of 8: second epoch, .* / files of this machine \| \S+ \(\S+\) \| >= 0.9 \| ", made
    )
    assert re.search(r"\| FileReader \| \d+ \(\d+–\d+\) ms \| 1 \|", made)


def test_blocks_and_the_report(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    printed, out = smoke(tmp_path / "data", "blocks")
    assert contestants(out) == {"blocks", "record by record"}
    assert re.search(r"10800 B, 10 ms, blocks of 16, requests for each block +\S+ \(\S+\) +<= 1.25 ", printed)
    assert re.search(r"blocks / record by record +\S+ \(\S+\) +>= 2 ", printed)
    assert re.search(r"\| blocks \| \S+ \(\S+\) \| ", reported(tmp_path, out))


@pytest.mark.long
def test_all_parts_and_the_report(tmp_path: Path) -> None:
    printed, out = smoke(tmp_path / "data", "batches")
    missing = set(json.loads(out.read_text().splitlines()[0])["not_measured"])
    tools = {"wrk": "wrk, 16 connections", "curl": "curl, 16 in parallel"}
    assert contestants(out) == {"iter_batches", "fsspec, record by record"} | {
        name for tool, name in tools.items() if tool not in missing
    }
    for name, least in [*((name, 0.9) for tool, name in tools.items() if tool not in missing), ("fsspec", 5)]:
        assert re.search(rf"iter_batches / {name}.* +\S+ \(\S+\) +>= {least} ", printed), name
    # A part that was measured again leaves the other, which has the same workload, as it was.
    made = reported(tmp_path, out, smoke(tmp_path / "again", "cache")[1])
    assert "| iter_batches | " in made and "| second epoch, from the cache | " in made


ASKED = """
import dataclasses, pathlib, sys, bench_remote, remote_rivals, remote_server, remote_ways, workloads
from ffrecord import FileReader
directory, work = pathlib.Path(sys.argv[1]), workloads.RemoteReads(10_000, 4, 40, 20, 8)
if remote_server.missing(latency=0.02):
    raise SystemExit(77)
(directory / "root").mkdir()
data = bench_remote.make_data(work, directory / "root")
def told(check):
    try:
        check()
        print("nothing")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
with remote_server.serving(directory / "root", 0.02, directory=directory / "nginx") as server:
    asked = remote_rivals.Fetching(server, data, work, directory, True)
"""


def asked(directory: Path, text: str) -> list[str]:
    """What a program prints for a dataset that is served."""
    done = benchmark_runs.program(ASKED + text, directory)
    if done.returncode == 77:
        pytest.skip("no server that waits before it answers")
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_rivals_with_other_records_are_refused(tmp_path: Path) -> None:
    program = """
    for make in remote_rivals.rivals(asked):
        told(make.check)
    data.records[data.order[1]] = bytes(work.mean)  # wrk asks for the first one, to see what it is
    for make in remote_rivals.rivals(asked):
        told(make.check)
"""
    told = asked(tmp_path, program)
    half = len(told) // 2
    assert half and told[:half] == ["nothing"] * half
    for line in told[half:]:
        assert re.fullmatch(r"WrongAnswerError: (wrk|curl|fsspec), .*: (a record|record \d+) has other bytes", line)


def test_rivals_that_get_other_answers_are_refused(tmp_path: Path) -> None:
    """Whole files, where a range was asked for."""
    program = """
    whole = asked._replace(data=data._replace(name="whole/" + data.name))
    for make in (remote_rivals.wrk, remote_rivals.curl):
        one = make(whole)
        told(one.check)
        told(one.run)
"""
    if not shutil.which("wrk") or not shutil.which("curl"):
        pytest.skip("wrk or curl is not installed")
    looked, counted, *by_curl = asked(tmp_path, program)
    error = "WrongAnswerError: wrk, 8 connections: "
    assert re.fullmatch(rf"{error}an answer of status 200 with 50\d+ bytes, expected 206 with 10000", looked)
    assert re.fullmatch(rf"{error}\['answers \d+ errors 0 microseconds \d+ bytes \d+'\]", counted)
    assert len(by_curl) == 2 and all(line.startswith("WrongAnswerError: curl, 8 in parallel: ") for line in by_curl)


def test_the_rate_of_wrk_is_that_of_whole_answers(tmp_path: Path) -> None:
    program = """
    printed = "answers 80 errors {} microseconds 2000000 bytes {}"
    for errors, came in ((0, 800_000), (0, 888_000 + 88 * 1024 - 8_000), (0, 799_999), (0, 970_113), (1, 800_000)):
        told(lambda: print(remote_rivals.seconds_of_epoch("wrk", printed.format(errors, came), work)))
    told(lambda: remote_rivals.seconds_of_epoch("wrk", printed.format(0, 0).replace("80", "0"), work))
"""
    told = asked(tmp_path, program)
    assert told[:4] == ["1.0", "nothing"] * 2
    assert len(told) == 8 and all(line.startswith("WrongAnswerError: wrk: ['answers ") for line in told[4:])


def test_a_dataset_with_other_shards_is_refused(tmp_path: Path) -> None:
    program = """
    import remote_opening
    def checked(shards, name="many", expected=None):
        with FileReader(f"{server.url}/{name}") as reader:
            remote_opening.check("FileReader", reader, expected or shards)
    many = remote_opening.make(directory / "root" / "many", 25)
    told(lambda: checked(25))
    told(lambda: checked(26))
    told(lambda: checked(40, data.name))
    remote_opening.record = lambda index: bytes(100)
    told(lambda: checked(25))
"""
    assert asked(tmp_path, program) == [
        "nothing",
        "WrongAnswerError: FileReader: 25 shards and 25 samples, expected 26 of each",
        "WrongAnswerError: FileReader: 8 shards and 40 samples, expected 40 of each",
        "WrongAnswerError: FileReader: sample 12 has other bytes",
    ]


def test_every_workload_comes_back_from_its_record() -> None:
    program = """
import dataclasses, harness, workloads
found = [each for value in vars(workloads).values() for each in (value if isinstance(value, list) else [value])]
found = [each for each in found if dataclasses.is_dataclass(each) and not isinstance(each, type)]
for work in found:
    record = harness.Measurement("us", work, [1.0], 1).as_record()
    assert harness.Measurement.from_record(record).workload == work, work
print(len(found))
"""
    done = benchmark_runs.program(program)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 50
