"""run.py: what it would do, without setting anything up."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run.py as a module, for a copy of the tree's top in a directory of its own."""
    spec = importlib.util.spec_from_file_location("run", ROOT / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("pyproject.toml", "setup.py", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "ffrecord").mkdir()
    for name in ("_fast.pyx", "_fast.pxd", "_kernel.c", "_fast.c", "reader.py"):
        (tmp_path / "ffrecord" / name).write_text("1")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "CONSTRAINTS", tmp_path / "constraints.txt")
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "STATE", tmp_path / ".venv" / "ready.json")
    monkeypatch.setattr(module, "PYTHON", Path(sys.executable))
    return module


@pytest.fixture
def steps(run, monkeypatch):
    """What `set_up` does, recorded instead of done."""
    done = []
    run.VENV.mkdir()
    monkeypatch.setattr(run, "check_machine", lambda: None)
    monkeypatch.setattr(run, "make_environment", lambda: done.append("make"))
    monkeypatch.setattr(run, "install", lambda: done.append("install"))
    monkeypatch.setattr(run, "imports", lambda *modules: True)
    return done


def test_first_run_makes_everything_and_the_next_nothing(run, steps):
    run.set_up()
    assert steps == ["make", "install"]
    run.set_up()
    assert steps == ["make", "install"]


@pytest.mark.parametrize(
    "file, expected",
    [
        ("ffrecord/_fast.pyx", ["install"]),
        ("ffrecord/_fast.pxd", ["install"]),
        ("ffrecord/_kernel.c", ["install"]),
        ("setup.py", ["install"]),
        ("pyproject.toml", ["install"]),
        ("constraints.txt", ["make", "install"]),
        ("ffrecord/_fast.c", []),
        ("ffrecord/reader.py", []),
    ],
)
def test_what_a_change_sets_off(run, steps, file, expected):
    run.set_up()
    steps.clear()
    path = run.ROOT / file
    path.write_text(path.read_text() + "\n# changed\n")
    run.set_up()
    assert steps == expected


def test_a_new_interpreter_gets_a_new_environment(run, steps, monkeypatch):
    run.set_up()
    steps.clear()
    monkeypatch.setattr(run.sys, "version", "4.0")
    run.set_up()
    assert steps == ["make", "install"]


def test_interrupted_set_up_begins_again(run, steps, monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "install", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.set_up()
    steps.clear()
    run.set_up()
    assert steps == ["make", "install"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '{"environment": 1}'])
def test_damaged_record_begins_again(run, steps, text):
    run.STATE.write_text(text)
    run.set_up()
    assert steps == ["make", "install"]
    assert json.loads(run.STATE.read_text()) == run.wanted()


def test_missing_compiled_modules_are_built_again(run, steps, monkeypatch):
    run.set_up()
    steps.clear()
    monkeypatch.setattr(run, "imports", lambda *modules: modules == ("pip",))
    run.set_up()
    assert steps == ["install"]


def test_names_all_that_is_missing(run, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    monkeypatch.setattr(run.sysconfig, "get_path", lambda name: "/nowhere")
    monkeypatch.setattr(run.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit, match=r"(?s)ensurepip.*python3-venv.*/nowhere/Python.h.*no-such-compiler"):
        run.check_machine()


def test_imports(run):
    run.VENV.mkdir()
    assert run.imports("json", "email.mime")
    assert not run.imports("json", "no_such_module")


def test_other_installations_do_not_mix_in(run, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("PIP_USER", "1")
    found = run.environment()
    assert "PYTHONPATH" not in found
    assert "PIP_USER" not in found
    assert found["PATH"].startswith(str(run.BIN))


def test_tasks(run, monkeypatch):
    monkeypatch.chdir(run.ROOT)
    python = str(run.PYTHON)
    (run.ROOT / "benchmarks").mkdir()
    bench = run.ROOT / "benchmarks" / "bench_crc.py"
    bench.touch()
    assert run.commands("digits", ["--epochs", "3"]) == [[python, f"{run.ROOT}/examples/digits.py", "--epochs", "3"]]
    assert run.commands("test", ["-k", "x"]) == [[python, "-m", "pytest", *run.PARALLEL, "-k", "x"]]
    assert run.commands("planted", ["-j", "2"]) == [[python, f"{run.ROOT}/tests/reliability/plant.py", "-j", "2"]]
    assert run.commands("bench", ["crc", "--smoke"]) == [[python, str(bench), "--smoke"]]
    bench.with_name("bench_read.py").touch()
    peers, read = run.commands("bench", ["read", "--smoke"])
    assert peers[1:3] == ["-m", "pip"] and peers[-4:] == ["--group", "bench", "--constraint", str(run.CONSTRAINTS)]
    assert read == [python, str(bench.with_name("bench_read.py")), "--smoke"]
    assert [command[0].rpartition("/")[2] for command in run.commands("lint", [])] == [
        *("ruff", "ruff", "mypy", "mypy", "basedpyright", "cython-lint")
    ]
    with pytest.raises(SystemExit, match=r"\{crc,read\}"):
        run.commands("bench", [])


def test_status_is_that_of_the_program(run):
    assert run.run([sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert run.run([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]) == 137


def test_every_example_is_a_task(run):
    examples = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert examples <= set(run.TASKS)
    assert {command[-1] for name in examples for command in run.commands(name, [])} == {
        str(run.ROOT / "examples" / f"{name}.py") for name in examples
    }
