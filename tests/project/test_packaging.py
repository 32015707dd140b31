"""What is distributed builds, installs and runs on its own: in isolation, without this tree, a compiler, or torch."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
release = import_module("release")
call = release.call

ROOT = Path(__file__).parents[2]
CONSTRAINTS = ROOT / "constraints.txt"

SHARED = "ffrecord/_cython_shared"  # what the others have in common, made by Cython


class Distributions(NamedTuple):
    """What was built.

    Attributes:
        python: of an environment that has the group "release".
        source, wheel: the archives.
    """

    python: Path
    source: Path
    wheel: Path


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return set(listed.stdout.split())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Source distribution and, from it, the wheel, each built in an isolated environment from a clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: nothing says which files belong to the source")
    directory = tmp_path_factory.mktemp("packaging")
    python = release.create_environment(Path(sys.executable), directory / "environment")
    call(python, "-m", "pip", "install", "--group", "release", "--constraint", CONSTRAINTS)
    source = release.source_archive(python, ROOT, directory)
    return Distributions(python, source, release.build_wheel(python, source, directory / "wheel"))


def names_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as opened:
        return {name for name in opened.namelist() if not name.endswith("/")}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_source_distribution_is_complete_and_builds(built: Distributions) -> None:
    with tarfile.open(built.source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked() - names == {".gitignore"}
    assert {name for name in names if name.endswith((".c", ".so"))} == {n for n in tracked() if n.endswith(".c")}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_wheel_has_what_it_takes_and_no_more(built: Distributions) -> None:
    names, ours = names_in(built.wheel), {name for name in tracked() if name.startswith("ffrecord/")}
    inside = {name for name in names if name.startswith("ffrecord/")}
    libraries = {name.split(".")[0] for name in inside if name.endswith(".so")}
    assert libraries == {SHARED, *(name.removesuffix(".pyx") for name in ours if name.endswith(".pyx"))}
    wanted = {name for name in ours if name.endswith((".py", ".pyi", ".pxd", "py.typed", ".html", ".css", ".js"))}
    assert {name for name in inside if not name.endswith(".so")} == wanted
    assert {name.partition("/")[2] for name in names - inside} == {
        *("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    }


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_their_descriptions_are_sound(built: Distributions) -> None:
    printed = call(built.python, "-m", "twine", "check", "--strict", built.source, built.wheel)
    assert printed.count("PASSED") == 2


@pytest.fixture(scope="module")
def repaired(built: Distributions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the tag of the Linux systems that it runs on."""
    wheel: Path = release.repair(built.python, built.wheel, tmp_path_factory.mktemp("repaired"))
    return wheel


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_wheel_runs_on_other_linuxes(built: Distributions, repaired: Path) -> None:
    """Its name says the glibc that auditwheel finds it to need; built here that is none younger than need be."""
    shown = call(built.python, "-m", "auditwheel", "show", repaired)
    (needed,) = re.findall(r'consistent\s+with\s+the\s+following\s+platform\s+tag:\s+"manylinux_2_(\d+)_\w+"', shown)
    named = [int(minor) for minor in re.findall(r"manylinux_2_(\d+)_", repaired.name)]
    assert min(named) == int(needed) <= release.NEWEST_GLIBC
    # No foreign library is taken along.
    assert {name for name in names_in(repaired) if ".so" in name} == {n for n in names_in(built.wheel) if ".so" in n}


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_it_installs_and_reads_where_there_is_no_compiler(repaired: Path, tmp_path: Path) -> None:
    release.use(release.create_environment(Path(sys.executable), tmp_path / "environment"), repaired, tmp_path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_release_has_all_that_it_says(built: Distributions, tmp_path: Path) -> None:
    """The command to its end, for this Python: checksums, the list of contents, and the step left to a person."""
    version, out = "{}.{}".format(*sys.version_info[:2]), tmp_path / "out"
    printed = call(built.python, ROOT / "tests" / "project" / "release.py", "--here", "--out", out, version)
    source, wheel = sorted(out.glob("ffrecord-*"), key=lambda path: path.suffix)
    assert source.name == built.source.name and f"-cp{version.replace('.', '')}-" in wheel.name
    assert {path.name for path in out.iterdir()} == {source.name, wheel.name, "SHA256SUMS", "CONTENTS.txt"}
    assert call("sha256sum", "--check", "SHA256SUMS", cwd=out).count(": OK") == 2
    contents = (out / "CONTENTS.txt").read_text()
    assert names_in(wheel) == set(re.findall(r"^ *[\d,]+  (.+)$", contents.split(wheel.name)[1].split("\n\n")[0], re.M))
    assert f"release: {wheel.name}: " in printed and "installed and used without a compiler" in printed
    _, obstacle = release.read_version()
    assert printed.splitlines()[-1].startswith("release: this was a trial" if obstacle else "release: left to a person")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files, and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """To nobody."""


@pytest.fixture(scope="module")
def wheels(built: Distributions, repaired: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and those of all that it needs."""
    directory = tmp_path_factory.mktemp("wheels")
    call(built.python, "-m", "pip", "download", "--only-binary", ":all:", "--constraint", CONSTRAINTS,
         "--dest", directory, repaired)  # fmt: skip
    assert {path.name.split("-")[0] for path in directory.iterdir()} == {"ffrecord", "msgspec", "numpy", "tqdm"}
    return directory


@contextmanager
def index_of(wheels: Path, directory: Path) -> Iterator[str]:
    """The address of a package index on this machine: a directory for each project, listed by a web server."""
    for wheel in wheels.iterdir():
        project = directory / "simple" / wheel.name.split("-")[0]
        project.mkdir(parents=True)
        shutil.copy(wheel, project)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(directory)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def install_by_name(python: Path, directory: Path, *options: object) -> None:
    """`pip install ffrecord` from nowhere else, where there is no compiler; then it writes and reads."""
    path = str(python.parent)
    assert not any(shutil.which(compiler, path=path) for compiler in release.COMPILERS)
    settings = {name: "" for name in os.environ if name.startswith("PIP_")}  # of this machine: other indexes
    settings |= {"PIP_CONFIG_FILE": os.devnull, "PATH": path}
    call(python, "-m", "pip", "install", *options, "ffrecord", cwd=directory, **settings)
    call(python, "-W", "error", release.SMOKE, release.GOLDEN, cwd=directory, PATH=path)
    assert "100" in call(python.parent / "ffrecord", "info", "written", cwd=directory, PATH=path)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_it_installs_by_name_from_a_directory(wheels: Path, tmp_path: Path) -> None:
    python = release.create_environment(Path(sys.executable), tmp_path / "environment")
    install_by_name(python, tmp_path, "--no-index", "--find-links", wheels)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_it_installs_by_name_from_an_index(wheels: Path, tmp_path: Path) -> None:
    python = release.create_environment(Path(sys.executable), tmp_path / "environment")
    with index_of(wheels, tmp_path / "index") as url:
        install_by_name(python, tmp_path, "--index-url", url)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the lowest versions have no wheels for this Python")
def test_it_runs_with_the_lowest_versions_it_asks_for(built: Distributions, tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    asked = re.findall(r'"([\w-]+)>=([\d.]+)"', re.search(r"^dependencies = \[.*\]$", text, re.MULTILINE)[0])
    assert {name for name, _ in asked} == {"msgspec", "numpy", "tqdm"}
    python = release.create_environment(Path(sys.executable), tmp_path / "environment")
    lowest = [f"{name}=={version}.*" for name, version in asked]
    call(python, "-m", "pip", "install", "--only-binary", ":all:", built.wheel, *lowest, cwd=tmp_path)
    call(python, "-W", "error", release.SMOKE, release.GOLDEN, cwd=tmp_path)


def test_every_package_has_type_hints() -> None:
    packages = {path.parent for path in (ROOT / "ffrecord").rglob("*.py")}
    assert all((package / "__init__.py").exists() for package in packages)
    assert (ROOT / "ffrecord" / "py.typed").exists()
    assert {path.with_suffix("") for path in (ROOT / "ffrecord").rglob("*.pyx")} == {
        path.with_suffix("") for path in (ROOT / "ffrecord").rglob("*.pyi")
    }
