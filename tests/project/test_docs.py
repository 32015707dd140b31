"""What the documents say is so: their code runs, their bytes are those written, their links lead somewhere."""

import hashlib
import json
import re
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest
from documents import ROOT, Block, blocks, broken_links, documents, run_afresh, run_elsewhere

from ffrecord import DatasetWriter
from ffrecord.format import ffr_layout
from ffrecord.format.extension import Stored
from ffrecord.format.manifest import SIZE_MAX, Manifest, Shard

FORMAT = ROOT / "docs" / "format.md"
GOLDEN = ROOT / "tests" / "golden" / "ffrecord"
HEX_LINE = re.compile(r"([0-9a-f]{4})  ((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:  .*)?")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


WITH_CODE = [
    path
    for path in documents()
    if path != ROOT / "README.md" and any(block.language == "python" for block in blocks(path.read_text()))
]


# Programs of others, which it is preloaded into as well, may have their own ideas of memory: dd is out of it.
PROGRAMS = {"command.md", "tutorial.md", "repair.md"}
SLOW = {"ray.md", "fsdp.md", "many-gpus.md"}  # they start many processes
SHELL = pytest.mark.unsanitized("programs of others do not run under it")
# Packages of the group trainers, which everyday tests do not have, and those that not every Python has.
NEEDS = {
    "accelerate.md": ("accelerate",),
    "hugging-face.md": ("transformers", "accelerate"),
    "jax.md": ("jax", "grain"),
    "lightning.md": ("lightning",),
    "torchdata.md": ("torchdata",),
    "fields.md": ("zstandard",),
    "writing.md": ("zstandard",),
    "audio.md": ("zstandard",),
    "detection.md": ("skimage", "simplejpeg", "zstandard"),
    "lmdb.md": ("lmdb",),
    "ray.md": ("ray", "simplejpeg"),
    "own-field.md": ("zstandard",),
}


def marks(path: Path) -> list[pytest.MarkDecorator]:
    lacks = [name for name in NEEDS.get(path.name, ()) if find_spec(name) is None]
    absent = pytest.mark.skipif(bool(lacks), reason=f"needs {', '.join(lacks)}")
    return [absent, *([SHELL] if path.name in PROGRAMS else []), *([pytest.mark.long] if path.name in SLOW else [])]


MARKED = [pytest.param(path, marks=marks(path)) for path in WITH_CODE]


@pytest.mark.parametrize("path", MARKED, ids=name)
def test_code_runs(path, tmp_path):
    done = run_elsewhere(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("path", MARKED, ids=name)
def test_code_runs_where_nothing_was_imported_before(path, tmp_path):
    done = run_afresh(path, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", documents(), ids=name)
def test_links_lead_somewhere(path):
    assert broken_links(path) == []


def test_documents_are_found():
    assert {"README.md", "CHANGELOG.md", "docs/format.md"} <= {name(path) for path in documents()}


# The format


def hexdumps() -> dict[str, bytes]:
    """File name → the bytes that docs/format.md says it has."""
    return {block.title: parse(block) for block in blocks(FORMAT.read_text()) if block.language == "hexdump"}


def parse(block: Block) -> bytes:
    data = b""
    for line in block.text.splitlines():
        found = HEX_LINE.fullmatch(line)
        assert found, f"not a line of a hexdump: {line}"
        assert int(found[1], 16) == len(data), f"wrong offset: {line}"
        data += bytes.fromhex(found[2])
    return data


def test_hexdumps_are_the_files_written(tmp_path):
    done = run_elsewhere(FORMAT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    dumps = hexdumps()
    assert set(dumps) == {"five.ffr", "typed.ffr"}
    assert {file: (tmp_path / file).read_bytes() for file in dumps} == dumps


@pytest.fixture
def reader_of_the_page():
    """The function `records` of docs/format.md."""
    (found,) = [block.text for block in blocks(FORMAT.read_text()) if "def records" in block.text]
    names: dict[str, object] = {}
    exec(found, names)
    return names["records"]


GOLDEN_FILES = json.loads((GOLDEN / "manifest.json").read_text())


@pytest.mark.parametrize(
    "file", [file for file, facts in GOLDEN_FILES.items() if "sha256" in facts and file.endswith(".ffr")]
)
def test_reader_of_the_page_reads_golden_files(reader_of_the_page, file):
    records = list(reader_of_the_page(GOLDEN / file))
    assert [hashlib.sha256(record).hexdigest() for record in records] == GOLDEN_FILES[file]["sha256"]


@pytest.mark.parametrize("at, message", [(4, "do not fit|damaged"), (12, "tables"), (32, "tables"), (81, "sample 4")])
def test_reader_of_the_page_refuses_damage(reader_of_the_page, tmp_path, at, message):
    damaged = bytearray(hexdumps()["five.ffr"])
    damaged[at] ^= 0x40
    (tmp_path / "damaged.ffr").write_bytes(damaged)
    with pytest.raises(ValueError, match=message):
        list(reader_of_the_page(tmp_path / "damaged.ffr"))


def table(heading: str, first: str) -> list[list[str]]:
    """The cells of the table in docs/format.md that is below `heading` and begins with the column `first`."""
    section = FORMAT.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = section.split(f"| {first} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_table_of_the_block():
    sizes = [struct.calcsize("<" + code) for code in re.findall(r"\d*[a-zA-Z]", ffr_layout.BLOCK.format)]
    offsets = [sum(sizes[:i]) for i in range(len(sizes))]
    rows = table("Bytes of an extension block", "offset in the block")
    assert [row[:2] for row in rows[: len(sizes)]] == [[str(a), str(b)] for a, b in zip(offsets, sizes, strict=True)]
    assert rows[len(sizes)][0] == str(ffr_layout.BLOCK.size)
    assert f"`{ffr_layout.BLOCK_MAGIC.hex(' ').upper()}`" in rows[0][3]
    assert f"{ffr_layout.BLOCK_MAX >> 20} MiB" in rows[3][3]
    assert f"{ffr_layout.PAYLOAD_MAX >> 20} MiB" in rows[4][3]


def test_table_of_the_payload():
    rows = table("Bytes of an extension block", "key of the payload")
    assert tuple(row[0].strip("`") for row in rows) == Stored.__struct_fields__


def test_table_of_the_manifest():
    rows = table("A directory of files", "key of `dataset.json`")
    assert tuple(row[0].strip("`") for row in rows) == Manifest.__struct_fields__
    assert all(f'"{field}"' in rows[2][1] for field in Shard.__struct_fields__)
    assert f"at most {SIZE_MAX >> 20} MiB" in FORMAT.read_text()


def test_fingerprint_as_described(tmp_path):
    directory = tmp_path / "dataset"
    DatasetWriter(directory, num_workers=0, samples_per_shard=2).from_indexed_dataset([1, 2, 3])
    found = json.loads((directory / "dataset.json").read_text())
    facts = [[[shard["samples"], shard["size"], shard["crc"]] for shard in found["shards"]], found["schema"]]
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == found["fingerprint"]


# The documents' own tools


def test_blocks_say_where_they_are():
    text = "a\n```python\nx = 1\n```\n\n```hexdump f.ffr\n0000  00\n```\n"
    assert list(blocks(text)) == [Block("python", "", 3, "x = 1\n"), Block("hexdump", "f.ffr", 7, "0000  00\n")]


def test_a_block_with_a_title_is_a_file(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "```python other.py\nx = 1\n```\n```python\nimport runpy\nassert runpy.run_path('other.py')['x'] == 1\n```\n"
    )
    done = run_elsewhere(path, tmp_path)
    assert done.returncode == 0, done.stderr


def test_failing_code_fails_the_document(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# Page\n```python\nx = 1\n\nraise KeyError(x)\n```\n")
    done = run_elsewhere(path, tmp_path)
    assert done.returncode != 0
    assert f'"{path}", line 5' in done.stderr


def test_wrong_output_fails_the_document(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("```python\nx = 1\n```\n```python\n>>> x\n2\n```\n")
    done = run_elsewhere(path, tmp_path)
    assert "the block at line 5 prints something else" in done.stderr


def test_broken_links_are_found(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# A page: *mine*\n[a](#a-page-mine) [b](other.md) [c](#nowhere) [d](https://example.org)\n")
    assert broken_links(path) == ["other.md", "#nowhere"]
