"""run.py: what each task needs, what a change sets off, and what it says where the set-up cannot go on."""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import children
import pytest
import task_arguments
from _pytest import cacheprovider, stepwise

from ffrecord import _crc

ROOT = Path(__file__).parents[2]
OLD_NAMES = ("python2.7", *(f"python3.{minor}" for minor in (6, 7, 8, 9)))
OLD = [path for name in OLD_NAMES for path in [shutil.which(name)] if path and "shims" not in path]
OLD += sorted(map(str, Path.home().glob(".pyenv/versions/3.[6-9].*/bin/python3")))
OLD += sorted(map(str, Path.home().glob(".pyenv/versions/2.7.*/bin/python2")))

# A project of run.py's that is set up in seconds.
SMALL = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77", "cython>=3.1"]
build-backend = "setuptools.build_meta"
[project]
name = "ffrecord"
version = "1.0"
dependencies = ["iniconfig>=1"]
[project.optional-dependencies]
torch = ["pluggy>=1"]
[dependency-groups]
digits = ["six>=1"]
""",
    "constraints.txt": "pip==26.3\nsetuptools==84.2.1\ncython==3.3.1\nsix==1.17.0\n",
    "setup.py": """\
import os
from Cython.Build import cythonize
from setuptools import setup
setup(packages=["ffrecord"], ext_modules=[] if os.environ.get("FFRECORD_COMPILED") else cythonize("ffrecord/_one.pyx"))
""",
    "ffrecord/__init__.py": "from ffrecord._one import one",
    "ffrecord/_one.pyx": "one = 1",
    "examples/digits.py": "import ffrecord, six, pluggy, iniconfig; print('one is', ffrecord.one, six.__version__)",
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run.py as a module, for a small project of its own."""
    write_small(tmp_path)
    spec = importlib.util.spec_from_file_location("run_tasks", tmp_path / "tests" / "project" / "run_tasks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_small(directory):
    for name, text in SMALL.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    shutil.copy(ROOT / "run.py", directory)
    (directory / "tests" / "project").mkdir(parents=True)
    for name in ("run_tasks.py", "task_arguments.py", "interruptible.py"):
        shutil.copy(ROOT / "tests" / "project" / name, directory / "tests" / "project")


@pytest.fixture
def ours(run, monkeypatch):
    """run.py as a module, with the requirements of this project."""
    shutil.copy(ROOT / "pyproject.toml", run.ROOT)
    shutil.copy(ROOT / "constraints.txt", run.ROOT)
    return run


def started(directory, *arguments, python=sys.executable, **variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "VIRTUAL_ENV"))}
    return subprocess.Popen(
        [python, str(directory / "run.py"), *arguments],
        cwd=directory, env={**kept, **variables}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def ended(directory, *arguments, **variables):
    process = started(directory, *arguments, **variables)
    printed, _ = process.communicate(timeout=250)
    return process.returncode, printed


# No index answers there, and pip does not try again.
UNREACHABLE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_CONFIG_FILE": os.devnull}
NO_INDEX = "no package index could be reached"


# What tasks need


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 has no reader of TOML")
def test_reads_the_requirements_as_toml_does(ours):
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    package = project["project"]["dependencies"]
    found = ours.requirements()
    for name, asked in {**project["project"]["optional-dependencies"], **project["dependency-groups"]}.items():
        assert found[name] == [*package, *asked]
    assert found["build"] == [*project["build-system"]["requires"], *package]


def test_every_task_needs_what_there_is(ours):
    known = set(ours.requirements())
    assert {name for task in ours.TASKS.values() for name in task.needs} <= known
    assert {name for task in ("test", "bench") for name in ours.parts(task, ["-m", "long"])} <= known


def test_the_first_task_gets_little(ours):
    names = {ours.name_of(each) for part in ours.parts("digits", []) for each in ours.requirements()[part]}
    assert names == {"cython", "matplotlib", "msgspec", "numpy", "scikit-learn", "setuptools", "torch", "tqdm"}


def test_long_tests_and_comparisons_get_more(ours):
    assert "docs" not in ours.parts("test", ["-m", "not long"])
    for arguments in (["-m", "long"], ["-mlong"], ["-x", "-m", "long or not long"], ["-m=long"]):
        assert {"docs", "lint", "release"} <= set(ours.parts("test", arguments))
    assert "docs" not in ours.parts("test", ["-k", "long"])
    assert "bench" in ours.parts("bench", ["read", "--smoke"]) and "bench" not in ours.parts("bench", ["crc"])


def test_every_example_is_a_task(run):
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert examples <= set(run.TASKS)
    for name in examples:
        assert run.commands(name, ["--x"])[-1][2:] == [str(run.ROOT / "examples" / f"{name}.py"), "--x"]


def test_commands(run, monkeypatch):
    monkeypatch.chdir(run.ROOT)
    python = str(run.PYTHON)
    (run.ROOT / "benchmarks").mkdir()
    bench = run.ROOT / "benchmarks" / "bench_crc.py"
    bench.touch()
    again = ["env", "FFRECORD_TESTS_AGAIN=3"]
    assert run.commands("test", ["-k", "x"]) == [[*again, python, "-m", "pytest", *run.PARALLEL, "-k", "x"]]
    assert run.commands("planted", ["-j", "2"]) == [[python, f"{run.ROOT}/tests/reliability/plant.py", "-j", "2"]]
    assert run.commands("machines", []) == [[sys.executable, f"{run.ROOT}/tests/project/machines.py"]]
    assert run.commands("bench", ["crc", "--smoke"]) == [[python, str(bench), "--smoke"]]
    assert [command[0].rpartition("/")[2] for command in run.commands("lint", [])] == [
        *("ruff", "ruff", "mypy", "basedpyright", "cython-lint", "codespell")
    ]
    with pytest.raises(SystemExit, match=r"\{crc\}"):
        run.commands("bench", [])


def test_status_is_that_of_the_program(run):
    assert run.run([sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert run.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137


def test_other_installations_do_not_mix_in(run, monkeypatch):
    for name in ("PYTHONPATH", "PIP_USER", "PIP_TARGET"):
        monkeypatch.setenv(name, "1")
    found = run.environment()
    assert not {"PYTHONPATH", "PIP_USER", "PIP_TARGET"} & set(found)
    assert found["PATH"].startswith(str(run.BIN))


# What a change sets off


def test_sources_that_change_are_compiled(run):
    before = run.sources()
    (run.ROOT / "ffrecord" / "_one.c").write_text("made by Cython")
    (run.ROOT / "ffrecord" / "reader.py").write_text("one = 2")
    assert run.sources() == before
    for name in ("_one.pyx", "_one.pxd", "deeper/_two.pyx", "kernel.h", "_kernel.c"):
        path = run.ROOT / "ffrecord" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("two = 2")
        assert run.sources() != before, name
        before = run.sources()


def test_modules_of_another_python_do_not_count(run):
    (run.ROOT / "setup.py").write_text('SHARED = "ffrecord._cython_shared"')
    assert not run.has_all_modules()
    shutil.copy(_crc.__file__, run.ROOT / "ffrecord" / "_one.cpython-39-x86_64-linux-gnu.so")
    assert not run.has_all_modules()
    for name in ("_one", "_cython_shared"):
        assert not run.has_all_modules()
        compiled = run.ROOT / "ffrecord" / f"{name}{run.sysconfig.get_config_var('EXT_SUFFIX')}"
        shutil.copy(_crc.__file__, compiled)
    assert run.has_all_modules()
    for size in (compiled.stat().st_size - 1, 1000, 10, 0):  # Python would say that it is too short, in each run
        os.truncate(compiled, size)
        assert not run.has_all_modules()


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "3"])
def test_a_damaged_record_is_none(run, text):
    run.VENV.mkdir()
    run.STATE.write_text(text)
    assert run.load_state() == {}
    run.save_state({"python": "this"})
    assert run.load_state() == {"python": "this"}


def test_packages_that_are_there_in_part_are_installed_again(run):
    whole, part = (run.VENV / "lib" / "python3.11" / "site-packages" / f"{name}.dist-info" for name in ("a-1", "b-1"))
    for path in (whole, part):
        path.mkdir(parents=True)
    (whole / "RECORD").touch()
    run.mend("run this again")
    assert whole.exists() and not part.exists()


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda path: path.unlink(), "b.py is missing"),
        (lambda path: path.write_text("one ="), "b.py is cut short"),
        (lambda path: path.write_text("one = 1\nprint(one)\n"), ""),
    ],
    ids=["missing", "cut short", "longer"],
)
def test_damaged_packages_are_installed_again(run, capsys, damage, fault):
    packages = run.VENV / "lib" / "python3.11" / "site-packages"
    for name in ("a", "b"):
        about = packages / f"{name}-1.dist-info"
        about.mkdir(parents=True)
        (packages / f"{name}.py").write_text("one = 1\n")
        (about / "RECORD").write_text(
            f'{name}.py,sha256=x,8\n"{name}-1.dist-info/RECORD",,\n__pycache__/{name}.pyc,,\n'
        )
    run.save_state({"python": "this", "compiled": "1", "torch": "2"})
    run.mend("run this again")
    assert capsys.readouterr().out == "" and set(run.load_state()) == {"python", "compiled", "torch"}
    damage(packages / "b.py")
    run.mend("run this again")
    assert capsys.readouterr().out == (f"run.py: b in .venv is damaged, {fault}; run this again\n" if fault else "")
    left = ["a-1.dist-info"] if fault else ["a-1.dist-info", "b-1.dist-info"]
    assert sorted(path.name for path in packages.glob("*.dist-info")) == left
    assert ("torch" in run.load_state()) == (not fault)


def test_packages_that_are_gone_are_installed_again(run, capsys):
    about = run.VENV / "lib" / "python3.11" / "site-packages" / "a-1.dist-info"
    about.mkdir(parents=True)
    (about / "RECORD").touch()
    run.save_state({"python": "this", "torch": "2", "packages": " ".join(run.installed_packages())})
    run.mend("run this again")
    assert capsys.readouterr().out == "" and "torch" in run.load_state()
    shutil.rmtree(about)
    run.mend("run this again")
    assert capsys.readouterr().out == "run.py: a is gone from .venv; run this again\n"
    assert run.load_state() == {"python": "this"}


def test_a_record_that_found_no_room_is_ours(run):
    run.VENV.mkdir()
    run.PART.touch()
    run.keep_others({})


# What it says


@pytest.mark.parametrize(
    "output, expected",
    [
        ("ERROR: No matching distribution found for pymdown-extensions==13.1\n", ["pymdown-extensions"]),
        (
            "Additionally, some packages in these conflicts have no matching distributions available for your "
            "environment:\n    numpy\n    scikit_learn\n\nTo fix this you could try to:\n",
            ["numpy", "scikit-learn"],
        ),
        ("ERROR: ResolutionImpossible", []),
    ],
)
def test_finds_what_cannot_be_had(run, output, expected):
    assert run.projects_not_found(output) == expected


@pytest.mark.parametrize(
    "output, expected",
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("fatal error: Python.h: No such file or directory", "apt install python3-dev"),
        ("gcc: fatal error: Killed signal terminated program cc1", "memory ran out"),
        ("ERROR: No matching distribution found for torch>=2.0", "torch is not available for Python 3"),
        (
            "WARNING: Retrying after NewConnectionError\nERROR: Could not find a version that fits "
            "torch==9 (from versions: 2.0, 2.1)\nERROR: No matching distribution found for torch==9",
            "torch is not available for Python 3",
        ),
        (
            "WARNING: Retrying after NewConnectionError\nERROR: Could not find a version that fits "
            "six (from versions: none)\nERROR: No matching distribution found for six",
            "no package index could be reached",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement setuptools>=77 (from versions: none)\n"
            "ERROR: No matching distribution found for setuptools>=77",
            "no package index could be reached",
        ),
        ("error: something else\nbye", "error: something else (all of it is in .venv/set-up.log"),
    ],
)
def test_says_what_to_do(run, output, expected):
    told = run.explain(output)
    assert expected.lower() in told.lower() and "\n" not in told


@pytest.mark.parametrize(
    "arguments, told",
    [
        ("release --help", r"usage: python3 run\.py release \[VERSION\] --here --out PATH\n\nbuild, check "),
        ("lint -h", r"usage: python3 run\.py lint \n\nrun ruff"),
        ("test -h", r"usage: python3 run\.py test \[--quick\] .* pytest's\n\nrun the tests"),
        ("machines --help", r"usage: run\.py machines "),
        ("bench", r"usage: python3 run\.py bench \{\} "),
    ],
)
def test_help_sets_nothing_up(run, arguments, told):
    """Not even while another run holds the lock."""
    shutil.copy(ROOT / "tests" / "project" / "machines.py", run.ROOT / "tests" / "project")
    shutil.copy(ROOT / "README.md", run.ROOT)
    with open(run.ROOT / "run.py") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status, printed = ended(run.ROOT, *arguments.split())
    assert re.match(told, printed) and status == (1 if arguments == "bench" else 0), printed
    assert not run.VENV.exists()


def test_without_an_index_it_names_the_variable(run, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setattr(run.Pip, "_try", lambda *arguments, **variables: "ERROR: ResolutionImpossible")
    with pytest.raises(run.SetUpError, match=r"PIP_NO_INDEX is set, .* unset it"):
        run.Pip(0).install(["six"])


def test_lacking_a_compiler_it_stops_before_it_begins(run):
    status, printed = ended(run.ROOT, "digits", CC="no-such-compiler -O2")
    assert status == 1 and printed.count("\n") == 1
    assert "no-such-compiler" in printed and "apt install gcc" in printed and "run this again" in printed
    assert not run.VENV.exists()


def test_names_all_that_is_missing(run, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    monkeypatch.setattr(run.sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(run.SetUpError, match=r"(?s)ensurepip.*python3-venv.*/nowhere/Python.h.*no-such-compiler"):
        run.check_machine()


@pytest.mark.skipif(not OLD, reason="no Python older than 3.10 is here")
@pytest.mark.parametrize("python", OLD, ids=lambda path: re.search(r"[23]\.\d+", path)[0])
def test_an_old_python_is_told_so(run, python):
    status, printed = ended(run.ROOT, "digits", python=python)
    assert status == 1
    assert re.fullmatch(r"run.py: this is Python (3\.[6-9]|2\.7); run it with 3\.10 or newer: .*\n", printed)


@pytest.mark.skipif(not any("2.7" not in path for path in OLD), reason="no Python 3 older than 3.10 is here")
@pytest.mark.parametrize("python", [path for path in OLD if "2.7" not in path], ids=lambda path: Path(path).parts[-3])
def test_an_old_python_that_imports_is_told_so(python):
    done = subprocess.run([python, "-c", "import ffrecord"], cwd=ROOT, capture_output=True, text=True)
    said = r"ImportError: ffrecord needs Python 3\.10 or newer, and this is 3\.[6-9]"
    assert re.fullmatch(said, done.stderr.splitlines()[-1])


def test_supported_pythons_are_those_of_the_package(run):
    versions = re.findall(r'"Programming Language :: Python :: 3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    assert [run.OLDEST[1], run.NEWEST[1]] == [min(map(int, versions)), max(map(int, versions))]


def test_a_python_that_is_too_new_is_told_and_tried(run, monkeypatch, capsys):
    monkeypatch.setattr(run, "NEWEST", (3, 9))
    monkeypatch.setattr(run, "check_machine", lambda: None)
    monkeypatch.setattr(run, "make_environment", lambda lock: run.VENV.mkdir())

    def fail(*arguments, **variables):
        raise run.SetUpError("tried")

    monkeypatch.setattr(run.Pip, "_try", fail)
    with pytest.raises(run.SetUpError, match="tried"):
        run.set_up(("build",), run.TASKS["digits"], 0)
    this = run.format_version(sys.version_info[:2])
    assert f"Python {this} is newer than the tested versions, up to 3.9; continuing" in capsys.readouterr().out


def test_the_newest_python_is_not_advised_to_itself(run, monkeypatch):
    output = "ERROR: No matching distribution found for ray"
    minor = sys.version_info[1]
    for newest, last in ((minor + 1, minor + 1), (minor, minor - 1)):
        monkeypatch.setattr(run, "NEWEST", (3, newest))
        assert run.explain(output).endswith(f"run this with another Python, 3.10 to 3.{last}")


@pytest.mark.parametrize(
    "arguments, told",
    [
        ("test --nonsense", "test has no argument --nonsense"),
        ("sanitize --nonsense", "sanitize has no argument --nonsense"),
        ("test tests/nothing.py::test_it", "test: there is no tests/nothing.py in "),
        ("test -k", "test: argument -k: expected one argument"),
        ("digits --epochs three", "digits: argument --epochs: invalid int value: 'three'; it takes --out PATH"),
        ("ddp 3", "ddp has no argument 3; it takes --out PATH --epochs N"),
        ("lint ffrecord", "lint has no argument ffrecord; it takes none"),
        ("fuzz --second 3", "fuzz has no argument --second"),
        ("bench nothing", "bench: nothing is called nothing; there are"),
        ("planted nothing", "planted: nothing is called nothing; --list has the names"),
        ("release nothing", "release: nothing is called nothing; there are"),
    ],
)
def test_wrong_arguments_are_told_before_anything_is_set_up(run, arguments, told):
    status, printed = ended(run.ROOT, *arguments.split())
    assert status == 2 and printed.startswith(f"run.py: {told}") and printed.count("\n") == 1
    assert not run.VENV.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        *("digits", "digits --epochs=3 --out x", "planted -j 2 --list", "test -k slice -x -n 0 run.py -rs -vv"),
        *("test -mlong run.py::test --durations=5 --quick", "bench crc --smoke --mean 3 --mean 4", "test --pyargs a.b"),
        *("release 3.12 3.13 --here", "digits --help", "sanitize run.py -m long --figures x"),
    ],
)
def test_right_arguments_are_taken(ours, arguments):
    run = ours
    (run.ROOT / "benchmarks").mkdir()
    (run.ROOT / "benchmarks" / "bench_crc.py").touch()
    task, *given = arguments.split()
    run.check(run.ROOT, task, given, False)
    if task == "test":
        run.check(run.ROOT, task, [*given, "--of-a-plugin"], True)


@pytest.mark.parametrize("task", sorted(task_arguments.PROGRAMS))
def test_arguments_are_those_of_the_programs(run, task):
    known = set(re.findall(r"(?<!\S)(--?[\w-]+)", task_arguments.PROGRAMS[task]))
    places = {"planted": ["tests/reliability/plant.py"], "fuzz": ["tests/fuzz/fuzz.py"]}
    places |= {task: [f"examples/{task}.py"] for task in run.EXAMPLES}
    places |= {task: [f"tests/project/{task}.py"] for task in ("machines", "release")}
    places["bench"] = [
        str(path) for path in [*(ROOT / "benchmarks").glob("bench_*.py"), ROOT / "benchmarks/harness.py"]
    ]
    texts = "".join((ROOT / place).read_text() for place in places.get(task, ()))
    added = re.findall(r'\badd(?:_argument)?\(\s*"(-[\w-]+)"(?:, "(-[\w-]+)")?', texts)
    if task not in ("docs", "lint"):
        assert known == {name for names in added for name in names if name}
    assert set(task_arguments.PROGRAMS) | {"test", "sanitize"} == set(run.TASKS)


def test_arguments_of_pytest_are_its_own(request):
    """All of them, and each that takes a value here takes one there."""
    here = {name: action.nargs == 0 for action in task_arguments._parser(task_arguments.PYTEST)._actions
            for name in action.option_strings}  # fmt: skip
    there = options_of(request.config._parser, here)
    if not request.config.pluginmanager.has_plugin("cacheprovider"):
        parser = pytest.Parser(_ispytest=True)
        cacheprovider.pytest_addoption(parser)
        stepwise.pytest_addoption(parser)
        there |= options_of(parser, here)
    assert len(here) > 100 and here == there


def options_of(parser, known):
    """The options of a parser of pytest, and whether each takes no value; less help and plugins that are not ours."""
    groups = [group for group in [parser._anonymous, *parser._groups] if known.keys() & set(names_in(group.options))]
    parts = [option for group in groups for option in group.options]
    ours = set(names_in(parts)) - {"-h", "--help"}
    actions = [action for action in parser.optparser._actions if action.nargs != "?"]
    return {name: action.nargs == 0 for action in actions for name in action.option_strings if name in ours}


def names_in(options):
    return [name for option in options for name in option.names()]


@pytest.mark.parametrize(
    "left",
    ["nothing", *(pytest.param(left, marks=pytest.mark.long) for left in ("a link", "an environment without pip"))],
)
def test_without_an_index_it_says_so_whatever_was_left(run, left):
    """And what was left of an earlier run is no reason for anything else."""
    if left == "a link":
        run.VENV.symlink_to("/nowhere")
    elif left != "nothing":
        run.BIN.mkdir(parents=True)
        (run.VENV / "ready.json").write_text('{"python": "another"}')
        run.PYTHON.symlink_to(sys.executable)
    status, printed = ended(run.ROOT, "digits", **UNREACHABLE)
    assert status == 1
    assert NO_INDEX in printed.splitlines()[-1] and "Traceback" not in printed
    assert "http://127.0.0.1:9" in run.LOG.read_text()


def test_what_others_need_and_cannot_have_is_left_out(run, monkeypatch):
    """Where one of several requirements has nothing for this Python, or needs such a one, the others are installed."""
    tried, lacking = [], {"b": "No matching distribution found for a\n", "a": "No matching distribution found for a\n"}

    def attempt(pip, *asked, **variables):
        tried.append(asked)
        wrong = [lacking[name] for name in asked if name in lacking]
        return wrong[0] if wrong else None

    monkeypatch.setattr(run.Pip, "_try", attempt)
    pip = run.Pip(0)
    pip.install(["a", "b", "c"], spare=True)
    assert tried[-1] == ("c",) and pip.pins == run.pins()
    with pytest.raises(run.SetUpError, match="a is not available for Python"):
        pip.install(["a", "c"])


def test_pins_of_other_pythons_do_not_count(run):
    assert run.pin_applies("a==1") and run.pin_applies('a==1; python_version >= "3.10"')
    assert not run.pin_applies('a==1; python_version >= "3.10" and python_version < "3.10"')
    assert not run.pin_applies('a==1; python_full_version < "3.9.5"')


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_the_program_clean_up(run, number):
    program = """
import time
try:
    print("up", flush=True)
    time.sleep(60)
finally:
    time.sleep(1)
    print("clean", flush=True)
"""
    if number == signal.SIGTERM:
        program = f"import signal, sys; signal.signal(15, lambda *_: sys.exit(1))\n{program}"
    code = f"import sys; sys.path.insert(0, {str(run.ROOT / 'tests' / 'project')!r}); import run_tasks as run\n" + (
        f"import signal; signal.signal(15, lambda *_: sys.exit(143))\nrun.run([sys.executable, '-c', {program!r}])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
    assert "clean" in process.communicate(timeout=30)[0]


def test_ctrl_c_before_it_begins_is_one_line(run):
    (run.ROOT / "tests" / "project" / "task_arguments.py").write_text("raise KeyboardInterrupt")
    assert ended(run.ROOT, "digits") == (130, "run.py: interrupted\n")


@pytest.mark.parametrize("place", ["import", "worker"])
def test_ctrl_c_in_an_example_is_no_traceback(run, place):
    """Neither of the program nor of its processes, which look for its functions by its name."""
    (run.ROOT / "examples" / "beside.py").write_text(
        f"import time\nif {place == 'import'}: print('up', flush=True); time.sleep(60)\n"
    )
    (run.ROOT / "examples" / "digits.py").write_text("""
import multiprocessing, sys, time
import beside
def work(number):
    print("up", *sys.argv[1:], flush=True)
    time.sleep(60)
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(work, [1])
""")
    command = [sys.executable, *run.commands("digits", ["x"])[0][1:]]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout.readline() == ("up\n" if place == "import" else "up x\n")
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", None) and process.returncode == 130


def test_a_directory_of_somebody_else_stays(run):
    run.VENV.mkdir()
    (run.VENV / "precious").write_text("mine")
    status, printed = ended(run.ROOT, "digits")
    assert status == 1 and "is not a virtual environment: move it away" in printed
    assert (run.VENV / "precious").read_text() == "mine"


def test_an_environment_of_somebody_else_stays(run):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(run.VENV)], check=True)
    (run.VENV / "precious").write_text("mine")
    status, printed = ended(run.ROOT, "digits")
    assert status == 1 and "was not made by run.py: move it away" in printed and printed.count("\n") == 1
    assert (run.VENV / "precious").read_text() == "mine"


def of_another_python(run, **steps):
    """Leave a .venv of run.py's that another Python made: here it is a script that starts this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(run.VENV)], check=True)
    (run.VENV / "precious").write_text("mine")
    run.PYTHON.unlink()
    other = run.ROOT / "python3.99"
    other.write_text(f"#!/bin/sh\nexec {sys.executable} -c ''\n")
    other.chmod(0o755)
    run.PYTHON.symlink_to(other)
    run.save_state({"python": "another", **steps})
    return other


def test_an_environment_of_another_python_stays(run):
    other = of_another_python(run, installed="1")
    status, printed = ended(run.ROOT, "digits")
    assert status == 1 and f"is of another Python, {other}; this is {sys.version.split()[0]}: run this with" in printed
    assert printed.count("\n") == 1 and (run.VENV / "precious").read_text() == "mine"


@pytest.mark.long
def test_one_that_is_half_made_or_no_python_any_more_does_not(run):
    of_another_python(run)
    status, printed = ended(run.ROOT, "digits", **UNREACHABLE)
    assert status == 1 and "in place of the old one" in printed and not (run.VENV / "precious").exists()


def test_one_that_is_half_removed_is_still_ours(run, monkeypatch):
    """Interrupted while the old one is removed, the next run goes on with that."""
    of_another_python(run)
    (run.VENV / "share").mkdir()
    before = run.load_state()

    def interrupt(path, **_):
        for name in ("ready.json", "set-up.log"):
            (path / name).unlink(missing_ok=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run.shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run.make_environment(0)
    assert run.load_state() == before
    run.keep_others(before)
    (run.VENV / "ready.json").unlink()
    with pytest.raises(run.SetUpError, match="was not made by run"):
        run.keep_others({})


def test_the_python_below_is_no_environment(run):
    run.BIN.mkdir(parents=True)
    base = getattr(sys, "_base_executable", sys.executable)
    run.PYTHON.symlink_to(base)
    assert not run.can_import("json")


def test_two_at_once_wait_for_each_other(run):
    with open(run.ROOT / "run.py", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        process = started(run.ROOT, "digits", **UNREACHABLE)
        assert process.stdout.readline().startswith("run.py: waiting for another run.py in this")
    printed, _ = process.communicate(timeout=250)
    assert process.returncode == 1 and NO_INDEX in printed


@pytest.mark.parametrize("task", ["machines", "release"])
def test_two_that_make_machines_wait_for_each_other(run, task, monkeypatch, capsys):
    """Each makes out/machines anew, so one at a time; other tasks run meanwhile."""
    held = []

    def command(words):
        for name in ("run.py", "tests/project/run_tasks.py"):
            with open(run.ROOT / name, "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    held.append(name)
        return 0

    monkeypatch.chdir(run.ROOT)
    monkeypatch.setattr(run, "run", command)
    monkeypatch.setattr(run, "set_up", lambda *needed: None)
    monkeypatch.setattr(run.signal, "signal", lambda *given: None)
    monkeypatch.setattr(sys, "argv", ["run.py", task])
    assert run.main() == 0 and held == ["tests/project/run_tasks.py"]


def test_ctrl_c_ends_it_and_all_it_started(run):
    process = started(run.ROOT, "digits", **UNREACHABLE)
    assert process.stdout.readline().startswith("run.py: making")
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and printed.endswith("the next run goes on after the last step that is done\n")
    with open(run.ROOT / "run.py", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it any more


# Set up for real, from a package index


def real(directory, *arguments):
    process = subprocess.run(
        [sys.executable, str(directory / "run.py"), *arguments], text=True, capture_output=True, check=False
    )
    return process.returncode, process.stdout + process.stderr


def reachable():
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet", "--dest", os.devnull, "six"]
    return "Temporary failure" not in subprocess.run(command, capture_output=True, text=True, check=False).stderr


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sets_up_once_and_goes_on_after_any_interruption(run):
    """Interrupted at one moment after the other, by Ctrl-C and by kill -9; the last run finds all done or does it."""
    if not reachable():
        pytest.skip("no package index can be reached")
    status, printed = real(run.ROOT, "digits")
    assert status == 0 and "one is 1 1.17.0" in printed, printed
    state = run.STATE.read_text()
    status, printed = real(run.ROOT, "digits")
    assert (status, printed, run.STATE.read_text()) == (0, "one is 1 1.17.0\n", state)
    for turn in range(12):
        shutil.rmtree(run.VENV)
        process = started(run.ROOT, "digits", **{name: os.environ[name] for name in os.environ if "PIP_" in name})
        time.sleep(0.5 + turn)
        process.send_signal(signal.SIGINT if turn % 2 else signal.SIGKILL)
        printed, _ = process.communicate(timeout=60)
        assert process.returncode in (0, 130, -signal.SIGKILL), printed
        status, printed = real(run.ROOT, "digits")
        assert status == 0 and printed.endswith("one is 1 1.17.0\n"), printed


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_damaged_package_is_one_line_and_mended(run):
    """The task would end with a traceback of the import."""
    if not reachable():
        pytest.skip("no package index can be reached")
    assert real(run.ROOT, "digits")[0] == 0
    (six,) = run.VENV.glob("lib/python*/site-packages/six.py")
    six.write_bytes(six.read_bytes()[:1000])
    status, printed = real(run.ROOT, "digits")
    assert status == 0 and printed.endswith("one is 1 1.17.0\n") and "Traceback" not in printed, printed
    assert printed.startswith("run.py: six in .venv is damaged, six.py is cut short; installing it anew\n"), printed


@pytest.mark.long
@pytest.mark.timeout(300)
def test_goes_on_without_a_pin_that_cannot_be_had(run):
    if not reachable():
        pytest.skip("no package index can be reached")
    text = run.CONSTRAINTS.read_text().replace("six==1.17.0", "six==99.0\npluggy==99.1")
    run.CONSTRAINTS.write_text(text)
    status, printed = real(run.ROOT, "digits")
    assert status == 0 and "one is 1 1." in printed, printed
    for name in ("six", "pluggy"):
        assert f"the version of {name} in constraints.txt is not available for this Python" in printed


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_full_disk_is_told_of_and_the_next_run_goes_on(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    try:
        write_small(disk)
        status, printed = real(disk, "digits")
        assert status == 1 and "the disk is full" in printed.splitlines()[-1].lower(), printed
        subprocess.run(["mount", "-o", "remount,size=400m", str(disk)], check=True)
        status, printed = real(disk, "digits")
        assert status == 0 and "one is 1" in printed, printed
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_slow_files_exist():
    lines = (ROOT / "tests" / "slow.txt").read_text().splitlines()[2:]
    assert len(lines) > 50 and [line for line in lines if not (ROOT / "tests" / line).exists()] == []


def test_states_are_json(run):
    run.VENV.mkdir()
    run.save_state({"python": run.interpreter()})
    assert json.loads(run.STATE.read_text()) == {"python": run.interpreter()}


def test_a_reader_who_leaves_gets_no_traceback():
    receiver, sender = os.pipe()
    os.close(receiver)  # as `| head` does after its last line
    try:
        done = subprocess.run(
            [sys.executable, str(ROOT / "run.py"), "bench", "nonsense"], stdout=sender, stderr=subprocess.PIPE
        )
    finally:
        os.close(sender)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_directories_of_killed_runs_are_removed(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f"ffrecord-tests-{ended.pid}-abc", f"ffrecord-tests-{os.getpid()}-abc", "ffrecord-tests-abc", "others-1-a"]
    for name in names:
        (tmp_path / name / "inner").mkdir(parents=True)
    children.remove_left_directories(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(names[1:])
