"""T11 (guarantee G7): readers of other formats leave nothing behind, whether they open a file or refuse it."""

from importlib.util import find_spec
from pathlib import Path

import leaking
import pytest
from figures import Counted, counts

SOURCES = Path(__file__).parents[1] / "sources"
FORMATS = ["ffrecord", "packed folder", "zip", "zip, deflated", "tar", "tfrecord", "tfrecord, gzip", "recordio"]
FORMATS += ["lmdb"] if find_spec("lmdb") else []
FORMATS += ["image folder", "path list", "recordio, snappy", "tfrecord, examples", "torchrecord", "beton", "mds"]

# Files of the format whose `turn` it is, made or copied into the directory that is given.
MADE = f"""
sys.path.insert(0, {str(SOURCES)!r})
import every_format, pathlib, shutil, ffrecord
folder = pathlib.Path(sys.argv[1], turn)
folder.mkdir()
if turn in every_format.FORMATS:
    _, make, options = every_format.FORMATS[turn]
    path = make(folder)
else:
    _, name, options, _ = every_format.SEEDS[turn]
    path = folder / name
    copy = shutil.copytree if (every_format.GOLDEN / name).is_dir() else shutil.copy
    copy(every_format.GOLDEN / name, path)
    os.chmod(path, 0o755)
"""
OPENED = f"""{MADE}
def work():
    with ffrecord.open(path, **options) as store:
        for index in range(min(3, store.n)):
            store.read_one(index)
    store = ffrecord.open(path, **options)
    store.read(range(store.n))
"""
# Each file of the format in turn, damaged in these ways. What is not refused is read: that must not leak either.
REFUSED = f"""{MADE}
named = {{"format": options.get("format") or ffrecord.open(path, **options).format}}
gc.collect()
originals = [file for file in ([path] if path.is_file() else sorted(path.rglob("*"))) if file.is_file()]
DAMAGES = {{
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "head": lambda data: bytes(64) + data[64:],
    "end": lambda data: data[:-100] + bytes(min(100, len(data))),
    "ones": lambda data: b"\\xff" * len(data),
}}
damaged = []
for number, (damage, file) in enumerate(itertools.product(DAMAGES, originals[:3])):
    copy = folder / f"damaged{{number}}" / path.name
    copy.parent.mkdir()
    shutil.copytree(path, copy) if path.is_dir() else shutil.copy(path, copy)
    target = copy / file.relative_to(path) if path.is_dir() else copy
    target.write_bytes(DAMAGES[damage](file.read_bytes()))
    damaged.append(copy)
refusals = 0
def work():
    global refusals
    for copy in damaged:
        try:
            store = ffrecord.open(copy, **{{**options, **named}})
        except (FFRecordError, OSError, ValueError):
            refusals += 1
            continue
        with store, contextlib.suppress(FFRecordError, OSError, ValueError):
            store.read(range(store.n))
"""


@pytest.mark.timeout(600)
@counts(8, 400)
def test_opening(tmp_path: Path, count: int) -> None:
    leaking.run(OPENED, count, 200, tmp_path, turns=FORMATS, files=[tmp_path])


@pytest.mark.timeout(600)
@counts(8, 200)
def test_refusing(tmp_path: Path, count: int, counted: Counted) -> None:
    said = leaking.run(REFUSED, count, 1000, tmp_path, turns=FORMATS, files=[tmp_path], after="print(turn, refusals)")
    refusals = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in said.splitlines()}
    # Files in a folder are what they are.
    assert {format for format, number in refusals.items() if number == 0} <= {"image folder", "path list"}, refusals
    counted.add("failing opens without a leaked descriptor", sum(refusals.values()))
