"""What went wrong, in one line."""

import ast
from errno import ENOENT
from pathlib import Path

import pytest

import ffrecord
from ffrecord.cli.terminal.messages import ADVICE, format_error
from ffrecord.errors import ArgumentError
from ffrecord.remote.errors import refused_error


def sentences():
    """All text in the package but that of the command, with "{}" for what is put in."""
    package = Path(ffrecord.__file__).parent
    for path in package.rglob("*.py"):
        if package / "cli" not in path.parents:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def test_all_that_is_said_otherwise_is_said_by_the_library():
    said = "\n".join(sentences()) + "\n"
    missing = [advice for advice in ADVICE if advice.partition(": No such file")[0] not in said]
    assert missing == []


@pytest.mark.parametrize("path", ["runs/resume=False/train", "resume=False/train", "runs/resume=False", "a/(max_size)"])
def test_paths_are_named_as_they_are(path):
    assert format_error(FileNotFoundError(ENOENT, "No such file or directory", path)).startswith(f"{path}: ")
    assert format_error(ArgumentError(f"{path}: there is something")) == f"{path}: there is something"


def test_advice_is_for_who_calls_the_command():
    assert format_error(ArgumentError("2 shards; resume=False discards them")) == "2 shards; --restart discards them"
    assert format_error(ArgumentError("at most 3; pass a larger max_size")) == "at most 3; use a larger --max-size"


def test_credentials_are_those_of_the_environment():
    said = format_error(refused_error("s3://a/b", "no credentials are given, and this machine has none to give"))
    assert said.startswith("s3://a/b: access denied: there are no credentials in the environment, and this machine has")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY for s3://" in said
    assert "storage_options" not in said


def test_arguments_are_options():
    assert format_error(ArgumentError("shard_size is 0, expected > 0")) == "--shard-size is 0, expected > 0"
    assert format_error(ArgumentError("num_shards=3 needs more")) == "--num-shards=3 needs more"
    assert format_error(ArgumentError("a/num_shards is there, my_num_shards is not")).startswith(
        "a/num_shards is there, my_num"
    )
    assert format_error(ArgumentError('pass format="path list"')) == "use --format 'path list'"
