"""T17 (guarantees G3, G4, G5): every parser of bytes from files, fuzzed, never crashes, hangs or takes all memory.

Nor does it raise anything but errors of this package and OSError. What it gives for bytes that it accepts is compared
with other readers' for `.ffr` files, zip and tar; tests of damage and of differences between readers do more of that.

Everyday: what is kept is replayed by the ordinary build, and a few changes more are made blindly. Long: 10 million
executions, led by coverage of the parsers, with a limit for memory, time, and each allocation.
"""

import contextlib
import gc
import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from children import descriptors, measures_memory

import ffrecord
from ffrecord import FileReader, FormatError
from ffrecord.sources import TarReader, ZipReader
from ffrecord.sources.recordio import snappy

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))

from fuzz import building, corpus  # noqa: E402  # found by the line above
from fuzz.fuzz import Outcome, Session, fuzz, table  # noqa: E402
from fuzz.targets import Scratch, refused, targets  # noqa: E402

TARGETS = targets()
LONG = 10_000_000


@pytest.fixture(scope="module")
def fuzzer():
    """The fuzzer, without counters in the parsers: that takes a minute to build."""
    if os.environ.get("LD_PRELOAD"):
        pytest.skip("preloads something else already, such as a sanitizer")
    try:
        building.fuzzer()
    except FileNotFoundError as error:
        pytest.skip(f"no C compiler to build the fuzzer with: {error}")


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs(name, tmp_path, counted):
    """Seeds, inputs that the fuzzer kept, and those that once broke something: typed errors or none."""
    target = TARGETS[name]
    accepted = refused() + documented(target)
    with Scratch() as scratch, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*old version ffrecord")
        run = target.prepare(scratch)
        inputs = [*target.seeds(tmp_path), *corpus.load(name), *(data for _, data in corpus.crashes(name))]
        for data in inputs:
            with contextlib.suppress(*accepted):
                run(memoryview(data))
    del run
    gc.collect()
    # After an error, too, no parser keeps a file open.
    assert [path for path in descriptors().values() if path.startswith(str(scratch.folder))] == []
    assert len(inputs) > 1
    counted.add("fuzz inputs replayed", len(inputs))


@pytest.mark.parametrize("name, reader", [("ffr", FileReader), ("zip", ZipReader), ("tar", TarReader)])
def test_other_bytes_than_another_reader_gives_are_found(name, reader, tmp_path, monkeypatch):
    monkeypatch.setattr(reader, "read_one", lambda self, index: b"something else")
    with Scratch() as scratch:
        run = TARGETS[name].prepare(scratch)
        with pytest.raises(AssertionError, match=r"another reader says|reads other samples"):
            for seed in TARGETS[name].seeds(tmp_path):
                with contextlib.suppress(*refused()):
                    run(memoryview(seed))


def documented(target):
    from ffrecord import errors

    return tuple(getattr(errors, name) for name in target.accepted)


def test_kept_inputs_are_few():
    """Each reaches something; all are in less than a megabyte."""
    names = {path.stem for path in corpus.KEPT.glob("*.zip")}
    assert names <= set(TARGETS)
    assert sum(path.stat().st_size for path in corpus.KEPT.glob("*.zip")) < 1 << 20
    assert {path.name for path in corpus.CRASHES.iterdir()} <= set(TARGETS)


def test_some_seconds(fuzzer, tmp_path, seed, counted):
    """Led by Python code alone: a quarter of the targets, another one with each seed."""
    with Session(tmp_path, counted=False, seed=seed) as session:
        outcomes = fuzz(session, sorted(TARGETS)[seed % 4 :: 4], 0.3, 0, 2)
    check(outcomes)
    counted.add("fuzz executions", sum(each.executions for each in outcomes))


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_ten_million(fuzzer, tmp_path, seed, counted):
    """Every target has some seconds of a CPU; those that are fast have the rest."""
    with Session(tmp_path, seed=seed) as session:
        outcomes = fuzz(session, TARGETS, 8.0, LONG, 2)
    check(outcomes)
    executions = sum(each.executions for each in outcomes)
    assert executions >= LONG
    counted.add("fuzz executions", executions)
    counted.at_most("seconds of one fuzzed input", max(each.slowest for each in outcomes))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_sanitizers(fuzzer, tmp_path, seed, counted):
    """All that is kept, and some seconds of changes, by parsers that the address sanitizer checks."""
    if not sanitizer():
        pytest.skip("gcc has no address sanitizer here")
    with Session(tmp_path, sanitized=True) as session, ThreadPoolExecutor(2) as pool:
        compiled = [name for name, target in TARGETS.items() if target.compiled]
        outcomes = list(pool.map(lambda name: session.run(Outcome(name), "fuzz", 1 << 60, 3.0), compiled))
    check(outcomes)
    counted.add("fuzz executions under sanitizers", sum(each.executions for each in outcomes))


def sanitizer():
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    return found.returncode == 0 and Path(found.stdout.strip()).is_absolute()


def check(outcomes):
    """Nothing was found, and all targets were run."""
    print(table(outcomes))
    assert not [each.failure for each in outcomes if each.failure]
    found = [path.with_suffix(".txt").read_text() for each in outcomes for path in each.findings]
    assert not found, "\n".join(found)
    assert min(each.executions for each in outcomes) > 1


# What it found, where an input alone does not tell


@measures_memory
@pytest.mark.parametrize("refused", ["tar", "snappy"])
def test_an_error_keeps_no_memory(refused, tmp_path):
    """Until garbage is collected, that is: 8 MiB for headers of a damaged archive, what a stream should expand to."""
    if refused == "tar":
        (tmp_path / "damaged.tar").write_bytes(bytes(range(256)) * 4)
        read = partial(TarReader, tmp_path / "damaged.tar")
    else:
        # A literal of 64 bytes that says to be a million ones.
        said = np.frombuffer(b"\x80\x80\x40" + bytes(50_000), np.uint8)
        read = partial(snappy.expand, said, snappy.RAW, 1 << 20)
    gc.collect()
    gc.disable()
    try:
        before = data_size()
        for _ in range(30):
            with pytest.raises(FormatError):
                read()
        assert data_size() - before < 20 << 20
    finally:
        gc.enable()


def data_size():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData"))


# The fuzzer itself

DEFECTS = {
    "error": "RuntimeError: of no class that is documented",
    "warning": "RuntimeWarning: said",
    "index": "IndexError: list index out of range",
    "recursion": "RecursionError",
    "memory": "bytes of memory at once",
    "crash": "status -11",
    "hang": "no end within",
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_fuzzer_finds_defects(fuzzer, tmp_path, seed, defect):
    """Behind a magic number, a length and three bytes: by coverage and by what is compared, from 24 zeros."""
    with Session(tmp_path, counted=False, seed=seed) as session:
        session.hangs, session.ends_most, session.enough = 1.0, 0, 1
        outcome = session.run(Outcome(f"planted_{defect}"), "fuzz", 3_000_000, 12.0)
    assert outcome.findings, outcome
    told = outcome.findings[0].with_suffix(".txt").read_text()
    assert DEFECTS[defect] in told
    assert outcome.findings[0].read_bytes().startswith(b"\x7fQ\x01R")


def test_fuzzer_finds_nothing_where_nothing_is(fuzzer, tmp_path, seed):
    with Session(tmp_path, counted=False, seed=seed) as session:
        outcome = session.run(Outcome("planted_none"), "fuzz", 50_000, 8.0)
    assert not outcome.findings and not outcome.failure and outcome.executions >= 50_000
    assert outcome.corpus > 4  # each comparison that was passed


@pytest.mark.long
def test_table_and_command_line(fuzzer, tmp_path):
    command = [sys.executable, str(TESTS / "fuzz/fuzz.py"), "braces", "--plain", "--seconds", "0.2"]
    figures = tmp_path / "figures"
    done = subprocess.run([*command, "--figures", str(figures)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].split()[:2] == ["target", "executions"]
    assert json.loads(figures.read_text())["sums"]["fuzz executions"] > 100
    wrong = subprocess.run([*command[:2], "nothing"], capture_output=True, text=True)
    assert wrong.returncode == 2 and "no target nothing" in wrong.stderr


def test_targets_name_modules_that_exist():
    """A module that has moved would no longer lead the fuzzer."""
    package = Path(ffrecord.__file__).parent.parent
    for target in TARGETS.values():
        for name in target.modules:
            path = package / name.replace(".", "/")
            assert path.with_suffix(".py").is_file(), (target.name, name)
        for name in target.compiled:
            assert (package / "ffrecord" / name).with_suffix(".pyx").is_file(), (target.name, name)
