"""Fields of a user's own module: through worker processes, and where that module was not imported."""

import subprocess
import sys
from pathlib import Path

import pytest

MODULE = """
from dataclasses import dataclass
from typing import Any, ClassVar

from ffrecord.errors import FormatError
from ffrecord.fields import Field, register


@register
@dataclass(frozen=True)
class WordsField(Field):
    kind: ClassVar[str] = "acme.words"
    separator: str = " "

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, list):
            raise TypeError(f"{value!r}, expected a list of words")
        return self.separator.join(value).encode()

    def decode(self, data: memoryview) -> Any:
        try:
            return str(data, "utf-8").split(self.separator)
        except UnicodeDecodeError as error:
            raise FormatError(f"not words: {error}") from None


class Sentences:
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> Any:
        return {"id": index, "words": ["word"] * (index % 3) + [str(index)]}
"""

WRITE = """
import sys
import acme
from ffrecord import DatasetWriter
from ffrecord.fields import IntField

if __name__ == "__main__":
    fields = {"id": IntField(), "words": acme.WordsField("|")}
    writer = DatasetWriter("set", fields, num_workers=2, start_method=sys.argv[1])
    writer.from_indexed_dataset(acme.Sentences(), chunksize=7)
"""

READ = """
import acme
from ffrecord import FileReader
from ffrecord.fields import schema_of

with FileReader("set") as reader:
    schema = schema_of(reader)
    samples = schema.decode_batch(*reader.read_packed(range(reader.n)))
assert schema.fields["words"] == acme.WordsField("|")
assert samples == [acme.Sentences()[i] for i in range(50)], samples
"""

READ_WITHOUT = """
from ffrecord import FileReader, FormatError
from ffrecord.fields import schema_of

with FileReader("set") as reader:
    try:
        schema_of(reader)
    except FormatError as error:
        print(error)
    assert bytes(reader.read_one(49)) == b"\\x31" + bytes(7) + b"\\x07" + bytes(7) + b"word|49"
"""


def run(directory: Path, program: str, *arguments: str) -> str:
    (directory / "program.py").write_text(program)
    command = [sys.executable, "-W", "error", "program.py", *arguments]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_import_its_module(tmp_path: Path, method: str) -> None:
    (tmp_path / "acme.py").write_text(MODULE)
    run(tmp_path, WRITE, method)
    run(tmp_path, READ)
    (tmp_path / "acme.py").unlink()
    message = run(tmp_path, READ_WITHOUT)
    assert "set/" in message and "schema: words: field kind 'acme.words' is unknown here; import the module" in message
    assert "ffrecord.fields.register" in message and "FileReader reads the records as bytes" in message
