"""Fixtures, and the three hypothesis profiles: HYPOTHESIS_PROFILE=default, ci or nightly."""

import functools
import gc
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from typing import NamedTuple

import builders
import children
import pytest
import tidying
from children import descriptors
from hypothesis import HealthCheck, settings
from written_datasets import open_files

from ffrecord import FileReader

pytest_plugins = ["failed_once"]

# A run in the background of a shell, or of some CI, ignores Ctrl-C, and so would all processes the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)
# The many processes the tests start need a quarter less time where byte code is kept, which git ignores. To rewrite
# the assertions of all tests takes ten seconds, in each process that runs tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

settings.register_profile(
    "default", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, max_examples=200)
settings.register_profile("nightly", settings.get_profile("default"), max_examples=20_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Of tests/reliability: what a long run may change."""
    parser.addoption("--quick", action="store_true", help="leave out the files that tests/slow.txt lists")
    group = parser.getgroup("reliability")
    group.addoption("--seed", type=int, default=0, help="of what the tests of the guarantees do at random; default: 0")
    group.addoption("--figures", type=Path, help="append what these tests counted to this file, as lines of JSON")


@functools.cache
def slow_files() -> dict[Path, int]:
    """Return the files of tests that take long, the longest first, with their places. `--quick` leaves them out."""
    lines = (Path(__file__).parent / "slow.txt").read_text().splitlines()
    files = [Path(__file__).parent / line for line in lines if line and not line.startswith("#")]
    return {file: place for place, file in enumerate(files)}


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out slow files where the quick tests are asked for."""
    return True if config.getoption("--quick") and collection_path in slow_files() else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first where several run side by side, so that none is left at the end.

    Skip what cannot run under the sanitizer that this process runs under.
    """
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: slow_files().get(item.path, len(slow_files())))
    for item in items if children.SANITIZER else ():
        for marker in item.iter_markers("unsanitized"):
            item.add_marker(pytest.mark.skip(reason=f"under the {children.SANITIZER} sanitizer: {marker.args[0]}"))


def pytest_collection() -> None:
    """Collect no garbage while tests are collected: there is next to none, and to look for it takes seconds."""
    gc.disable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Tidy up after the collection of tests, which imports nearly everything."""
    gc.enable()
    tidying.leave_out_of_collections()
    if hasattr(session.config, "workerinput"):
        tidying.put_into_huge_pages()


@pytest.fixture(scope="module", autouse=True)
def tidy(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tidy up after each file of tests, where many run in a process: else the later ones take longer and longer."""
    yield
    if hasattr(request.config, "workerinput"):
        tidying.leave_out_of_collections()
        tidying.put_into_huge_pages()


def pytest_sessionfinish() -> None:
    """Collect garbage again where the collection of tests has failed."""
    gc.enable()


def pytest_make_parametrize_id(config: pytest.Config, val: object) -> str | None:
    """Names of tests are the same in every run: no addresses of objects."""
    return type(val).__name__ if " at 0x" in repr(val) and not callable(val) else None


def pytest_report_header() -> list[str]:
    """What this run leaves out."""
    folders = {"torch": "torch_side", "ray": "ray_side"}
    return [
        f"{name} is not installed: tests/{folder} is left out"
        for name, folder in folders.items()
        if not find_spec(name)
    ]


# Folders of tests that are not about files: a disk would only make them wait. All else is tested on a real one.
IN_MEMORY = {"cli", "compat", "conversion", "fields", "format", "inputs", "order", "remote", "sources"}
MEMORY = Path("/dev/shm")
ROOM = 1 << 30  # bytes


@pytest.fixture(scope="session")
def memory() -> Iterator[Path | None]:
    """A directory on tmpfs; None where there is none, or little room, or PYTEST_DEBUG_TEMPROOT says where to write."""
    if "PYTEST_DEBUG_TEMPROOT" in os.environ or not os.access(MEMORY, os.W_OK) or shutil.disk_usage(MEMORY).free < ROOM:
        yield None
        return
    children.remove_left_directories(MEMORY)
    directory = Path(tempfile.mkdtemp(prefix=f"{children.DIRECTORIES}{os.getpid()}-", dir=MEMORY))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def tmp_path(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, memory: Path | None
) -> Iterator[Path]:
    """An empty directory: in memory for tests that are not about files, else where pytest has it."""
    name = re.sub(r"\W", "_", request.node.name)[:30]
    if memory is None or request.path.parent.name not in IN_MEMORY:
        yield tmp_path_factory.mktemp(name)
        return
    directory = Path(tempfile.mkdtemp(prefix=name, dir=memory))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


class SampleFile(NamedTuple):
    """A file and what it must give."""

    path: str
    samples: list[bytes]


@pytest.fixture
def small_file(tmp_path: Path) -> SampleFile:
    """Eight samples in 404 bytes, an empty one among them."""
    return SampleFile(builders.write_samples(tmp_path / "small.ffr", builders.small()), builders.small())


@pytest.fixture(scope="session")
def sample_file(tmp_path_factory: pytest.TempPathFactory) -> SampleFile:
    """300 samples of 0 to 300 kB, about 4 MB, for reading only."""
    sizes = [(i * 7919) % 4096 if i % 30 else i * 1000 for i in range(301)]
    samples = builders.records(sizes, seed=1)
    return SampleFile(builders.write_samples(tmp_path_factory.mktemp("sample") / "sample.ffr", samples), samples)


@pytest.fixture(scope="session")
def good_and_damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Names of two files of the same 40 samples; in the second, sample 20 does not match its CRC-32."""
    directory = tmp_path_factory.mktemp("leaks")
    samples = builders.records([i * 500 for i in range(39)] + [300_000])
    good = builders.write_samples(directory / "good.ffr", samples)
    bad = builders.write(directory / "bad.ffr", builders.flip_in_sample(20)(builders.ffr_twin.build(samples)))
    return good, bad


@pytest.fixture(params=builders.IO_MODES)
def reader(request: pytest.FixtureRequest, sample_file: SampleFile) -> Iterator[FileReader]:
    """An open reader of `sample_file`, in every io mode."""
    with FileReader(sample_file.path, io=request.param) as opened:
        yield opened


@pytest.fixture
def no_leaked_descriptors() -> Iterator[None]:
    """Fail if the test leaves descriptors of `.ffr` or `.part` files open."""
    before = descriptors()

    def left() -> list[str]:
        return [path for number, path in descriptors().items() if ".ffr" in path and before.get(number) != path]

    yield
    if left():
        gc.collect()  # slow, and hardly ever needed
    assert not left()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """On tmpfs, whose files are cached from the first batch on."""
    if not os.path.isdir("/dev/shm") or not os.access("/dev/shm", os.W_OK):
        pytest.skip("/dev/shm is not there")
    directory = tempfile.mkdtemp(dir="/dev/shm")
    yield Path(directory)
    shutil.rmtree(directory)


@pytest.fixture
def nothing_leaks() -> Iterator[None]:
    """Fail if the test leaves a descriptor open, or a process."""
    # Else the first use of spawn or forkserver starts them, and they stay.
    forkserver.ensure_running()
    resource_tracker.ensure_running()
    before = Counter(open_files())
    yield
    # Not those that are gone: an earlier test's idle connections to a server end when they like.
    assert Counter(open_files()) - before == Counter()
    assert multiprocessing.active_children() == []


@pytest.fixture(scope="session")
def preloadable(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A function that makes a library for LD_PRELOAD of a C file that is beside the tests."""

    def compiled(name: str) -> Path:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            pytest.skip(f"no C compiler to build {name} with")
        if sys.platform != "linux" or os.environ.get("LD_PRELOAD"):
            pytest.skip("preloads something else already, such as a sanitizer")
        source = Path(__file__).parent / name
        library = tmp_path_factory.mktemp("preloadable") / f"{source.stem}.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        return library

    return compiled
