"""What is distributed builds, installs and runs on its own: without this tree, and without torch."""

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SMOKE = """
import sys
import ffrecord

samples = [{"number": i, "text": str(i)} for i in range(100)]
ffrecord.DatasetWriter("written", num_workers=2).from_indexed_dataset(samples)
with ffrecord.FileReader("written") as reader:
    assert [ffrecord.fields.schema_of(reader).decode(record) for record in reader] == samples
assert sys.prefix in ffrecord.__file__ and "torch" not in sys.modules
try:
    import ffrecord.torch
except ImportError as error:
    assert "pip install ffrecord[torch]" in str(error)
else:
    raise SystemExit("imported without torch")
"""


def call(*command: object, cwd: Path = ROOT) -> None:
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tracked() -> set[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    return set(listed.stdout.split())


@pytest.mark.long
@pytest.mark.timeout(900)
def test_source_distribution_is_complete_and_builds(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone: nothing says which files belong to the source")
    clone, environment = tmp_path / "clone", tmp_path / "environment"
    call("git", "clone", "--quiet", ROOT, clone)
    call(sys.executable, "-m", "venv", environment)
    python = environment / "bin" / "python"
    call(python, "-m", "pip", "install", "--upgrade", "pip", "build")
    call(python, "-m", "build", "--sdist", "--outdir", tmp_path, clone)
    (archive,) = tmp_path.glob("ffrecord-*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert tracked() - names == {".gitignore"}
    assert {name for name in names if name.endswith((".c", ".so"))} == {n for n in tracked() if n.endswith(".c")}
    call(python, "-m", "pip", "install", archive)
    call(python, "-W", "error", "-c", SMOKE, cwd=tmp_path)


def test_every_package_has_type_hints():
    packages = {path.parent for path in (ROOT / "ffrecord").rglob("*.py")}
    assert all((package / "__init__.py").exists() for package in packages)
    assert (ROOT / "ffrecord" / "py.typed").exists()
    assert {path.stem for path in (ROOT / "ffrecord").glob("*.pyx")} == {
        path.stem for path in (ROOT / "ffrecord").glob("*.pyi")
    }
