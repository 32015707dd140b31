"""The C of resampling, compiled apart: under sanitizers, without a warning, and for a CPU that no kernel is for."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ffrecord.kernels._pictures import kernels

ROOT = Path(__file__).parents[2]
STRICT = ["-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize(
    ("options", "names"),
    [(SANITIZED, kernels()), (STRICT, kernels()), ([*STRICT, "-DGENERIC"], ("portable",))],
    ids=["sanitized", "strict", "generic"],
)
def test_kernels_agree(compiler: str, options: list[str], names: tuple[str, ...], tmp_path: Path) -> None:
    path = shutil.which(compiler)
    if path is None:
        pytest.skip(f"{compiler} is not installed")
    source, program = ROOT / "tests" / "resample_check.c", tmp_path / "check"
    command = [path, *options, "-ffp-contract=off", f"-I{ROOT}", str(source), "-o", str(program), "-lm"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tuple(done.stdout.split()) == names
