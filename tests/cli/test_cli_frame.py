"""The frame of the command: help, versions, errors in one line, exit codes, pipes, Ctrl-C, narrow terminals."""

import errno
import io
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from importlib.metadata import version

import builders
import children
import numpy as np
import pytest
from cli_runs import COMMAND, forked, run, run_in_terminal

from ffrecord.cli.command_line import parse
from ffrecord.cli.commands import COMMANDS
from ffrecord.cli.terminal.messages import format_error
from ffrecord.cli.terminal.output import Output, format_size, make_printable, shorten_middle, truncate
from ffrecord.errors import MismatchError, MissingFileError, file_error


@pytest.fixture
def path(tmp_path):
    return builders.write_samples(tmp_path / "a.ffr", builders.small())


def test_without_a_command_it_says_which_there_are():
    ran = run()
    assert ran.code == 2
    assert all(name in ran.out for name in COMMANDS)


def test_version():
    assert run("--version") == (0, f"ffrecord {version('ffrecord')}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name):
    ran = run(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert COMMANDS[name][1].capitalize()[:20] in ran.out
    assert "--json" in ran.out


def test_help_is_quick_and_loads_little():
    code = "import sys; from ffrecord.cli import main; main(['--help']); sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nonsense"], 2, "invalid choice: 'nonsense'"),
        (["inof"], 2, "there is no command 'inof'; do you mean info?"),
        (["info"], 2, "required: PATH"),
        (["info", "--format", "nonsense", "x"], 2, "invalid choice: 'nonsense'"),
        (["info", ""], 2, "argument PATH: the path is empty"),
        (["export", "x", ""], 2, "argument OUT: the path is empty"),
        (["convert", "x", ""], 2, "argument OUT: the path is empty"),
        (["pack", "", "x.ffr"], 2, "argument FOLDER: the path is empty"),
        (["view", "x", "--export", ""], 2, "argument --export: the path is empty"),
        (["stats", "x", "--plot", ""], 2, "argument --plot: the path is empty"),
        (["bench", "x", "--plot", ""], 2, "argument --plot: the path is empty"),
        (["write", "x", "", "out"], 2, "argument SOURCE: the path is empty"),
        (["merge", "x", "--out", ""], 2, "argument -o/--out: the path is empty"),
        (["recover", ""], 2, "argument PATH: the path is empty"),
        (["get", "x", "1", "--out", "y"], 2, "unrecognized arguments: --out y; see ffrecord get --help"),
        (["--json", "info", "x"], 2, "ffrecord info: options come after info: --json; see ffrecord info --help"),
        (["--nonsense"], 2, "ffrecord: unrecognized arguments: --nonsense; see ffrecord --help"),
        (["info", "/nowhere/at.all"], 3, "/nowhere/at.all"),
        (["info", "/dev/null"], 3, "/dev/null"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, code, words):
    ran = run(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err
    assert ran.err.startswith("ffrecord")
    assert ran.err.count("\n") == 1
    assert "Traceback" not in ran.err


def test_debug_shows_where(tmp_path):
    ran = run("info", tmp_path / "no.ffr", "--debug")
    assert ran.code == 3
    assert "Traceback" in ran.err
    assert ran.err.splitlines()[-1].startswith("ffrecord info: ")


def test_names_of_files_move_no_cursor(tmp_path):
    ran = run("info", tmp_path / "a\n\x1b[2J\udcff.ffr")
    assert ran.code == 3
    assert "\x1b" not in ran.err
    assert ran.err.count("\n") == 1
    assert make_printable("a\x1b[0m\tb") == "a\\x1b[0m\\tb"


def test_a_reader_that_goes_away(path):
    process = subprocess.Popen([*COMMAND, "info", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_ctrl_c(tmp_path):
    fifo = tmp_path / "a.zip"
    os.mkfifo(fifo)
    code = """
import ffrecord.cli.commands.info as info, time
info.run = lambda given, out: print("ready", flush=True) or time.sleep(60)
from ffrecord.cli import main
raise SystemExit(main(["info", "x"]))
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "ffrecord info: interrupted\n")


def test_ctrl_c_in_a_callback():
    """Python drops an error of a callback; the command is interrupted nevertheless, once the callback has ended."""
    code = """
import ffrecord.cli.commands.info as info, signal, time, weakref

class Thing:
    pass

def run(given, out):
    for _ in range(2):  # the second time as the first
        thing = Thing()
        reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
        del thing
    time.sleep(60)

info.run = run
from ffrecord.cli import main
raise SystemExit(main(["info", "x"]))
"""
    ran = children.finished(code)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "ffrecord info: interrupted\n")


BEGINS = """
import os, sys
from ffrecord.cli import main
os.close(int(sys.argv.pop(1)))
sys.exit(main())
"""


def interrupted(after, arguments):
    """(code, stdout, stderr) of a command that got Ctrl-C so many seconds after it began, with all it has started."""
    ready, begun = os.pipe()  # Python's own start is over when the other end is closed: it has its own ways
    process = subprocess.Popen(
        # An import that is interrupted as it opens a file leaves that open: a warning of Python's own.
        [
            sys.executable,
            "-W",
            "error",
            "-W",
            "ignore::ResourceWarning",
            "-c",
            BEGINS,
            str(begun),
            *map(str, arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        pass_fds=[begun],
    )
    os.close(begun)
    assert os.read(ready, 1) == b""
    os.close(ready)
    try:
        out, err = process.communicate(timeout=after)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


@pytest.mark.parametrize("after", [0.02, 0.05, 0.1, 0.2, 0.4])
def test_ctrl_c_at_any_instant(path, after):
    code, out, err = interrupted(after, ["info", path])
    assert (code, err) in [(0, ""), (130, "ffrecord info: interrupted\n"), (130, "ffrecord: interrupted\n")]
    assert bool(out) == (code == 0)


# Command → its arguments: what it reads, in one directory, and what it makes, in another one.
LONG = {
    "stats": ["in/large.ffr"],
    "verify": ["in/large.ffr"],
    "bench": ["in/a.ffr", "--seconds", "0.2"],
    "view": ["in/a.ffr", "--export", "out/a.html"],
    "write": ["in/a.npy", "out/a"],
    "convert": ["in/a.ffr", "out/a"],
    "export": ["in/a.ffr", "out/a.zip"],
    "merge": ["in/a.ffr", "in/a.ffr", "--out", "out/a"],
    "split": ["in/a.ffr", "out/a=0.5", "out/b=rest"],
    "shuffle": ["in/a.ffr", "out/a"],
    "pack": ["in/folder", "out/a.ffr"],
    "unpack": ["in/a.zip", "out/a"],
    "recover": ["out/a.ffr"],
}
# What they do is small beside their imports, which test_ctrl_c_at_any_instant and test_cli_interrupted_imports.py have;
# the first, third and fourth look at a few samples, `ls` writes line after line, `completion` prints a text.
SHORT = ["info", "ls", "head", "get", "completion"]


def test_each_command_is_interrupted_or_short():
    assert sorted([*LONG, *SHORT]) == sorted(COMMANDS)


WRITTEN = """
import os, signal, sys
from ffrecord import FileWriter
writer = FileWriter(sys.argv[1])
for _ in range(100):
    writer.write_many([bytes(int(sys.argv[2]))] * 10_000)
writer.flush()
if sys.argv[3] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
writer.close()
"""


@pytest.fixture(scope="module")
def much(tmp_path_factory):
    """The directory "in" of LONG."""
    path = tmp_path_factory.mktemp("much")
    builders.write_samples(path / "a.ffr", [bytes(100)] * 100_000)
    np.save(path / "a.npy", np.zeros((100_000, 1), np.uint8))
    (path / "folder").mkdir()
    with zipfile.ZipFile(path / "a.zip", "w") as archive:
        for number in range(5000):
            (path / "folder" / str(number)).write_bytes(bytes(100))
            archive.writestr(str(number), bytes(100))
    (path / "nothing").mkdir()
    (path / "killed").mkdir()
    assert children.finished(WRITTEN, path / "large.ffr", 300, "closed").returncode == 0
    assert children.finished(WRITTEN, path / "killed" / "a.ffr", 20, "killed").returncode == -signal.SIGKILL
    yield path
    shutil.rmtree(path)


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_ctrl_c_in_any_command(much, tmp_path, name):
    (tmp_path / "in").symlink_to(much)
    for after in np.linspace(0.02, 1.8, 12):
        shutil.copytree(much / ("killed" if name == "recover" else "nothing"), tmp_path / "out")
        places = [re.sub("^(in|out)/", rf"{tmp_path}/\1/", each) for each in LONG[name]]
        code, _, err = interrupted(after, [name, *places])
        assert code in (0, 130), err
        assert err.count("\n") <= 1, err
        assert bool(err) == (code == 130), err
        assert "Traceback" not in err
        shutil.rmtree(tmp_path / "out")


def test_a_narrow_terminal(path):
    shards, bench = (
        run_in_terminal(*arguments, "--quiet", columns=40).out.splitlines()
        for arguments in (["ls", path, "--shards"], ["bench", path, "--only", "cached", "--seconds", "0.05"])
    )
    assert max(map(len, [*run_in_terminal("info", path, columns=40).out.splitlines(), *shards, *bench])) <= 40
    assert shards[0].split() == ["file", "samples", "bytes"]
    assert re.fullmatch(r"/.+….+a\.ffr +8 +296", shards[1])
    assert bench[0] == "cached"
    rate, time = r"\d[\d.e+]* [kMGTPE]?B/s", r"\d[\d.e+-]* ms"
    wanted = [r"samples/s: \d[\d,]*", f"read: {rate}", f"limit here: {rate}", f"batch, median: {time}", f"99 %: {time}"]
    assert all(re.fullmatch(each, line) for each, line in zip(wanted, bench[1:6], strict=True)), bench
    assert bench[7].startswith("cached: ")


def test_a_table_fits_into_any_terminal(monkeypatch):
    """As it is; without the middles of its names; or row by row: its numbers stay whole."""
    monkeypatch.setattr(Output, "tty", True)
    rows = [("data/train/part-00000.ffr", 1_234_567), ("data/train/part-00001.ffr", 30)]
    for columns in range(18, 50):
        monkeypatch.setenv("COLUMNS", str(columns))
        Output(stream=(said := io.StringIO())).table(["file", "samples"], rows, shorten="file")
        lines = said.getvalue().splitlines()
        assert max(map(len, lines)) <= columns
        numbers = [line.split()[-1] for line in lines if line.endswith(("1,234,567", " 30"))]
        assert numbers == ["1,234,567", "30"]
        assert (lines[0].split() == ["file", "samples"]) == (columns >= 16 + 2 + 9)
        assert ("…" in said.getvalue()) == (27 <= columns < 36)


def test_without_middle():
    assert [shorten_middle("abcdefgh", width) for width in (8, 7, 4, 1)] == ["abcdefgh", "ab…efgh", "a…gh", "…"]


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_in_a_narrow_terminal(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    with pytest.raises(SystemExit, match="0"):
        parse([*name.split(), "--help"])
    _, _, after_usage = capsys.readouterr().out.partition("\n\n")
    assert after_usage
    assert [line for line in after_usage.splitlines() if len(line) > 40 and " " in line.strip()] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_fit_into_a_usual_terminal(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        parse([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("  ffrecord ")]
    assert not [
        line for line in lines if line.startswith("      ") and lines[lines.index(line) - 1].startswith("  ffrecord ")
    ]


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1234, "1.23 kB"),
        (999_499, "999 kB"),
        (999_500, "1 MB"),
        (10**18, "1 EB"),
        (10**22, "1e+04 EB"),
    ],
)
def test_bytes_in_words(size, words):
    assert format_size(size) == words


def test_cut():
    assert [truncate("abcdef", width) for width in (6, 5, 1)] == ["abcdef", "abcd…", "…"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_command(shell):
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert all(name in ran.out for name in COMMANDS)


def test_bash_completes_with_it(tmp_path):
    (tmp_path / "data.ffr").touch()
    script = tmp_path / "script"
    script.write_text(run("completion", "bash").out)
    ask = 'source "$1"; COMP_WORDS=("${@:3}"); COMP_CWORD=$2; _ffrecord; printf "%s\\n" "${COMPREPLY[@]}"'

    def complete(*words: str) -> list[str]:
        command = ["bash", "-c", ask, "bash", str(script), str(len(words) - 1), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()

    assert complete("ffrecord", "inf") == ["info"]
    assert complete("ffrecord", "info", "da") == ["data.ffr"]
    assert complete("ffrecord", "info", "--js") == ["--json"]
    assert complete("ffrecord", "--v") == ["--version"]
    assert complete("ffrecord", "head", "-n") == ["-n"]
    assert complete("ffrecord", "bench", "data.ffr", "--only", "co") == ["cold"]
    assert complete("ffrecord", "completion", "") == ["bash", "zsh", "fish"]
    # One of two words.
    assert complete("ffrecord", "info", "--format", "image") == ["image", "folder"]


def test_json_is_one_document(path):
    assert json.loads(run("info", path, "--json").out)["samples"] == 8


@pytest.mark.parametrize("arguments", [["info"], ["verify", "--json"], ["--version"], ["--help"], ["info", "--help"]])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "2>&-"])
def test_closed_streams(path, closed, arguments):
    command = ["bash", "-c", f'"$@" {closed}', "bash", *COMMAND, *arguments]
    done = subprocess.run([*command, *([path] if arguments[0] in COMMANDS else [])], capture_output=True, check=False)
    said = "ffrecord info" if arguments[0] == "info" else "ffrecord verify" if arguments[0] == "verify" else "ffrecord"
    assert done.returncode == (0 if closed == "2>&-" else 3)
    assert bool(done.stdout) == (closed == "2>&-")
    assert done.stderr.decode() == (f"{said}: standard output: Bad file descriptor\n" if closed == ">&-" else "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("asked", ["--version", "--help"])
def test_what_the_command_itself_says_must_get_out(asked, unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    ours, its = os.pipe()
    os.close(ours)
    with open("/dev/full", "w") as full, open(its, "w") as broken:
        for stream, wanted in (
            (full, (3, b"ffrecord: standard output: No space left on device\n")),
            (broken, (141, b"")),
        ):
            done = subprocess.run(
                [*COMMAND, asked], stdout=stream, stderr=subprocess.PIPE, env=environment, check=False
            )
            assert (done.returncode, done.stderr) == wanted


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_what_ends_it_leaves_nothing_and_is_told(tmp_path, name, code):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one", b"1")
        archive.writestr("two", b"2")
    program = """
import os, signal, sys
from ffrecord.folders import safe_unpack
from ffrecord.cli import main

write = safe_unpack._write

def ended(*arguments):
    write(*arguments)
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])

safe_unpack._write = ended
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
sys.exit(main(["unpack", *sys.argv[2:]]))
"""
    command = [sys.executable, "-c", program, name, tmp_path / "a.zip", tmp_path / "out"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", f"ffrecord unpack: ended by {name}\n")
    assert os.listdir(tmp_path) == ["a.zip"]


@pytest.mark.parametrize(
    "arguments", [["info"], ["info", "--json"], ["ls"], ["head"], ["get", "1", "--raw"], ["stats"], ["verify"]]
)
def test_a_full_standard_output(path, arguments):
    name, *more = arguments
    ran = run(name, path, *more, into="/dev/full")
    assert ran.code == 3
    assert ran.err.startswith(f"ffrecord {name}: standard output: No space left on device")
    assert ran.err.count("\n") == 1


def test_what_is_done_is_said_where_standard_output_is_full(path, tmp_path):
    ran = run("convert", path, tmp_path / "out", into="/dev/full")
    full = "standard output: No space left on device"
    assert (ran.code, ran.err) == (3, f"ffrecord convert: {full}; everything was written\n")
    assert (tmp_path / "out" / "dataset.json").exists()
    assert run("--version", into="/dev/full") == (3, "", f"ffrecord: {full}\n")


def test_a_full_standard_error(tmp_path):
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, "info", tmp_path / "no"], stderr=full, check=False)
    assert done.returncode == 3


def test_errors_say_each_thing_once():
    error = file_error(errno.ENOSPC, "a/b.ffr: 3 samples could not be written", "a/b.ffr")
    assert format_error(error) == "a/b.ffr: 3 samples could not be written: No space left on device"
    assert format_error(file_error(errno.EEXIST, "a is not empty", "a")) == "a is not empty"
    assert format_error(MissingFileError(errno.ENOENT, "a does not exist", "a")) == "a does not exist"
    assert (
        format_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "a"))
        == "a: No such file or directory"
    )
    assert format_error(OSError("port 1 is in use")) == "port 1 is in use"
    assert format_error(KeyError("x")) == "KeyError: 'x'"


def test_of_many_differences_the_first_are_said():
    found = [f"{name} was 1, is 2" for name in "abcde"]
    error = MismatchError(f"x: {'; '.join(found)}. Ask for the same, or pass resume=False to discard them", found)
    assert format_error(error) == (
        "x: a was 1, is 2; b was 1, is 2; c was 1, is 2; and 2 more. Ask for the same, or use --restart to discard them"
    )


def test_of_samples_it_is_said_that_they_differ_if_nothing_else_does():
    looked = "samples looked at: 8 of the 8 that were compared differ, the first is sample 0"
    for found, said in ([["seed was 1, is 2", looked], "seed was 1, is 2"], [[looked], looked]):
        assert format_error(MismatchError(f"x: {'; '.join(found)}. Ask", found)) == f"x: {said}. Ask"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root to give up its rights")
def test_what_may_not_be_looked_at_is_not_missing(path):
    os.chmod(os.path.dirname(path), 0)
    try:
        command = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *COMMAND, "info", path]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    finally:
        os.chmod(os.path.dirname(path), 0o700)
    assert (done.returncode, done.stderr) == (3, f"ffrecord info: {path}: Permission denied\n")


def test_facts_are_wrapped_where_a_terminal_ends(monkeypatch):
    said = io.StringIO()
    out = Output(stream=said)
    monkeypatch.setattr(Output, "tty", True)
    monkeypatch.setenv("COLUMNS", "20")
    out.facts({"name": "some words that are too many"})
    assert said.getvalue().splitlines() == ["name  some words", "      that are too", "      many"]


def test_what_json_has_no_numbers_for(capsys):
    Output(json=True).data({"a": [float("nan"), -math.inf], "b": (1.5, math.inf)})
    assert json.loads(capsys.readouterr().out) == {"a": ["NaN", "-Infinity"], "b": [1.5, "Infinity"]}


@pytest.mark.parametrize("name", ["stats", "bench"])
def test_a_missing_extra_is_named_before_anything_is_done(path, tmp_path, name):
    code = "import sys; sys.modules['matplotlib'] = None; from ffrecord.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, name, path, "--plot", tmp_path / "a.svg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert "pip install matplotlib" in done.stderr


def test_a_run_that_takes_too_long_is_not_taken_for_a_later_one(path, tmp_path):
    before = forked()._process
    with pytest.raises(TimeoutError):
        run("view", path, "--no-open", timeout=0.5)
    assert before.returncode == -signal.SIGKILL
    assert (run("info", tmp_path / "nobody").code, run("--version").code) == (3, 0)
