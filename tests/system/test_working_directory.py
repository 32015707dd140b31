"""A working directory that was deleted: every error names the path, and says what to do."""

import shutil
from pathlib import Path

import children
import pytest

import ffrecord

CALLS = {
    "reader": "ffrecord.FileReader('a.ffr')",
    "directory": "ffrecord.FileReader('a')",
    "pattern": "ffrecord.FileReader('*.ffr')",
    "here": "ffrecord.FileReader('.')",
    "open": "ffrecord.open('a.zip')",
    "list of paths": "ffrecord.open('/there/list.txt', 'path list')",
    "writer": "ffrecord.FileWriter('a.ffr')",
    "dataset": "ffrecord.DatasetWriter('a', num_workers=0).from_indexed_dataset([b'x'])",
    "append": "ffrecord.DatasetWriter('a', mode='append', num_workers=0).from_indexed_dataset([b'x'])",
    "staging": "ffrecord.DatasetWriter('s3://bucket/a', staging='st', num_workers=0).from_indexed_dataset([b'x'])",
    "convert": "ffrecord.convert([b'x'], 'a', num_workers=0)",
    "export": "ffrecord.export('/there/data', 'a.zip')",
    "pack": "ffrecord.pack_folder('a', 'a.ffr')",
    "folder": "ffrecord.PackedFolder('a.ffr')",
    "recover": "ffrecord.recover('a.ffr')",
    "tasks": "ffrecord.tasks('a', 3)",
    "dump": "ffrecord.utils.dump([b'1'], 'a.ffr', 1)",
    "dump several": "ffrecord.utils.dump([b'1', b'2'], 'a', 2)",
    "unpack": "ffrecord.sources.unpack('a.zip', 'out')",
    "TFRecord": "ffrecord.sources.TFRecordWriter('a.tfrecord')",
    "members": "list(ffrecord.sources.iter_members('a.tar'))",
}
PROGRAM = """
import contextlib, os, ffrecord, ffrecord.sources, ffrecord.utils
with contextlib.suppress(ImportError):
    import obstore  # which Python 3.13.0 cannot import afterwards
os.mkdir({gone!r})
os.chdir({gone!r})
os.rmdir({gone!r})
calls = {calls!r}
for name, call in calls.items():
    try:
        eval(call)
    except (OSError, ValueError) as error:
        assert "the working directory of this process was removed; pass an absolute path" in str(error), (name, error)
        assert type(error).__module__ == "ffrecord.errors", (name, error)
        assert isinstance(error, ValueError) or error.filename, (name, error)
    else:
        raise AssertionError(name)
with ffrecord.FileReader({there!r}) as reader:  # an absolute path is all it takes
    assert reader.n == 1
assert ffrecord.DatasetWriter({there!r} + "2", num_workers=0, progress=False).from_indexed_dataset([b"x"]).samples == 1
"""


@pytest.fixture
def there(tmp_path: Path) -> Path:
    ffrecord.DatasetWriter(tmp_path / "data", num_workers=0, progress=False).from_indexed_dataset([b"x"])
    (tmp_path / "list.txt").write_text("a.jpg 1\n")
    return tmp_path


def test_every_call_names_its_path(there: Path) -> None:
    calls = {name: call.replace("/there", str(there)) for name, call in CALLS.items()}
    children.run(PROGRAM.format(gone=str(there / "gone"), calls=calls, there=str(there / "data")))
    assert sorted(path.name for path in there.iterdir()) == ["data", "data2", "list.txt"]


COMMANDS = ("info data", "verify data", "ls data", "view data --export o.html", "write data o", "convert /there/data o",
            "export /there/data o.zip", "merge /there/data /there/data -o o", "split /there/data a=0.5 b=0.5",
            "shuffle /there/data o", "pack data o.ffr", "unpack o.zip o", "recover o.ffr")  # fmt: skip


def test_every_command_names_its_path(there: Path) -> None:
    program = PROGRAM[: PROGRAM.index("calls")] + (
        "from ffrecord.cli import main\n"
        "import contextlib, io\n"
        "for command in {commands!r}:\n"
        "    told = io.StringIO()\n"
        "    with contextlib.redirect_stderr(told):\n"
        "        status = main(command.split())\n"
        "    name = next(word for word in command.split()[1:] if word[0] not in '/-').partition('=')[0]\n"
        "    begun = told.getvalue().partition('ffrecord ' + command.split()[0] + ': ')[2]\n"
        "    assert status == 3 and 'pass an absolute path' in begun and name in begun.split(':')[0], command\n"
    )
    commands = [command.replace("/there", str(there)) for command in COMMANDS]
    children.run(program.format(gone=str(there / "gone"), commands=commands))


@pytest.mark.parametrize("given", [[], (), "empty", "none*.ffr"])
def test_nothing_to_open(tmp_path: Path, given: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was given, and what is expected; the phrase that programs written for 1.x look for is kept."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    said = {"empty": "'empty' is a directory without one", "none*.ffr": r"no file matches 'none\*\.ffr'"}
    words = said[given] if isinstance(given, str) else f"the {type(given).__name__} is empty"
    with pytest.raises(ValueError, match=f"^At least one .ffr file as input is needed, and {words}.*; pass a file, "):
        ffrecord.FileReader(given)  # type: ignore[arg-type]
    shutil.rmtree(tmp_path / "empty")
