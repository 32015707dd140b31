"""Errors about what is missing: compiled modules in a clone, packages that are needed, and optional ones."""

import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ffrecord.system.requirements import EXTRAS, MODULES, NEEDED, install_command

ROOT = Path(__file__).parents[2]
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
CODE = "import ffrecord"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A copy of the sources, as a clone has them."""
    shutil.copytree(ROOT / "ffrecord", tmp_path / "ffrecord", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    shutil.copy(ROOT / "setup.py", tmp_path)
    return tmp_path


def told(clone: Path, code: str = CODE) -> str:
    """The last line of what Python says when it runs `code` in a clone; all of it comes from one exception."""
    done = subprocess.run([sys.executable, "-c", code], cwd=clone, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    return done.stderr.splitlines()[-1]


def build(clone: Path, *names: str, suffix: str = SUFFIX) -> None:
    """Put something in the place of compiled modules."""
    for name in names:
        (clone / "ffrecord" / f"{name}{suffix}").touch()


def test_the_list_is_that_of_the_sources() -> None:
    package = ROOT / "ffrecord"
    found = {str(path.relative_to(package).with_suffix("")) for path in package.rglob("*.pyx")}
    assert set(MODULES) == found | {"_cython_shared"}


@pytest.mark.parametrize(
    "code", [CODE, "from ffrecord import FileReader", "import ffrecord.torch", "import ffrecord._crc"]
)
def test_a_clone_says_what_to_run(clone: Path, code: str) -> None:
    assert told(clone, code) == (
        f"ImportError: ffrecord's compiled modules are missing from {clone}: run `python3 run.py digits` there "
        "and use its .venv/bin/python, or `pip install .` and then start Python in another directory"
    )


@pytest.mark.parametrize("code", [CODE, "from ffrecord import FileReader", "import ffrecord.torch"])
def test_without_the_packages_that_it_needs(clone: Path, code: str) -> None:
    build(clone, *MODULES)
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=clone, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: ffrecord needs msgspec and numpy and tqdm, which {sys.executable} does not have: "
        "run `pip install msgspec numpy tqdm`"
    )


def test_the_packages_that_it_needs_are_those_of_the_project() -> None:
    (line,) = re.findall(r"^dependencies = (.*)$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert tuple(re.findall(r'"(\w+)', line)) == NEEDED


def test_modules_for_another_python(clone: Path) -> None:
    build(clone, *MODULES, suffix=".cpython-39-x86_64-linux-gnu.so")
    words = (
        f"are for another Python (.cpython-39-x86_64-linux-gnu.so, this one is {SUFFIX}): run `python3 run.py digits`"
    )
    assert words in told(clone)


def test_modules_of_an_older_build(clone: Path) -> None:
    build(clone, "_crc", "_aio")
    words = f"{len(MODULES) - 2} of ffrecord's {len(MODULES)} compiled modules are missing from {clone}, _cython_shared"
    assert words in told(clone)


def test_a_folder_is_missing(clone: Path) -> None:
    shutil.rmtree(clone / "ffrecord" / "kernels")
    assert "compiled modules are missing from" in told(clone)


def test_an_installation_without_a_clone(clone: Path) -> None:
    (clone / "setup.py").unlink()
    assert told(clone).endswith(
        "install it again with this Python, by `pip install --force-reinstall .` in a clone of ffrecord"
    )


def test_a_compiler_behind_a_wrapper_is_as_good_as_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """ccache is such a wrapper."""
    monkeypatch.chdir(ROOT)
    find_obstacle = runpy.run_path("setup.py", run_name="setup")["find_obstacle"]
    assert find_obstacle(["cc", "-pthread"]) == find_obstacle(["env", "cc", "-pthread"]) == ""


@pytest.mark.parametrize(
    "change, words",
    [
        ("os.environ['CC'] = 'no-such-compiler -O2'", "a C compiler, no-such-compiler (Debian, Ubuntu: apt "),
        ("sysconfig.get_path = lambda name: '/nowhere'", "Python's headers, /nowhere/Python.h (Debian, Ubuntu: apt"),
        ("os.environ['CC'] = 'cc -nostdinc'", "the C library's headers (Debian, Ubuntu: apt install libc6-dev;"),
        ("os.environ['CC'] = 'false'", "a C compiler that works: `false` says 'status 1' (look at CC and CFLAGS)"),
        ("os.environ['CC'] = 'env no-such-cc'", "a C compiler that works: `env no-such-cc` says "),
    ],
)
def test_a_build_says_what_the_machine_lacks(tmp_path: Path, change: str, words: str) -> None:
    """In one line, before anything is made."""
    code = "import os, runpy, sys, sysconfig\nfrom setuptools.command import build_ext"
    arguments = ["setup.py", "build_ext", f"--build-lib={tmp_path}", f"--build-temp={tmp_path}"]
    code = f"{code}\nsys.argv = {arguments!r}\n{change}\nrunpy.run_path('setup.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("ffrecord")]
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert line.startswith(f"ffrecord is compiled here, and this machine lacks {words}")
    assert line.endswith("then run this again") and list(tmp_path.iterdir()) == []


def test_extras_name_packages_that_can_be_installed() -> None:
    """Those of pyproject.toml, without their versions."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read TOML")
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra: [re.split("[><=]", each)[0] for each in packages] for extra, packages in asked.items()} == EXTRAS
    assert install_command("jpeg") == "pip install simplejpeg"
    assert install_command("ray") == "pip install 'ray[data]' pyarrow pydantic"


def test_nothing_says_to_install_an_extra_of_what_is_not_released() -> None:
    """README.md alone has its own word for it."""
    places = [*(ROOT / "ffrecord").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    # "./ffrecord[...]" is a clone, which has them.
    assert [str(path) for path in places if re.search(r"(?<!\./)ffrecord\[[a-z]", path.read_text())] == []
