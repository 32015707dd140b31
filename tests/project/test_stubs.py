"""The stubs of the compiled modules are those of the modules."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "ffrecord").rglob("*.pyx"))
# Of Cython, for other Cython modules; and a buffer's method that C types have in Python from 3.12 on only.
ALLOWED = [r"ffrecord\.[\w.]+\.__pyx_capi__", r"ffrecord\.kernels\._memory\.Mapping\.__buffer__"]

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("mypy") is None, reason="mypy is not installed: nothing checks the types"
    ),
    pytest.mark.skipif(
        sys.version_info < (3, 11), reason="numpy has types of its own kind in the last version for Python 3.10"
    ),
    pytest.mark.timeout(280),
]


def test_every_compiled_module_has_a_stub():
    assert [name for name in COMPILED if not (ROOT / (name.replace(".", "/") + ".pyi")).exists()] == []


@pytest.mark.long
def test_stubs(tmp_path):
    (tmp_path / "allowed").write_text("\n".join(ALLOWED))
    arguments = ["--ignore-disjoint-bases", "--ignore-unused-allowlist", "--allowlist", tmp_path / "allowed", *COMPILED]
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
