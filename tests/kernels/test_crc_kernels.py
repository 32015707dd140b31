"""The C of the kernels, compiled apart: under sanitizers, for another CPU, and for one that no kernel is for."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ffrecord import _crc

ROOT = Path(__file__).parents[2]
CHECK = ROOT / "tests" / "crc_check.c"
STRICT = ["-O2", "-Wall", "-Wextra", "-Werror"]
SANITIZED = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
COMPILERS = ["gcc", "clang"]
CRC32C = "CRC-32C"  # an argument of the program


def need(program: str) -> str:
    """Its path; skips the test without it."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed")
    return path


def compile_check(compiler: str, directory: Path, *options: str) -> Path:
    program = directory / "check"
    include = f"-I{ROOT / 'ffrecord'}"
    command = [need(compiler), *options, include, str(CHECK), "-o", str(program), "-ldl", "-pthread"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return program


def kernels_checked(*command: object) -> list[str]:
    """Runs crc_check: the names of the kernels that it found right."""
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.split()


@pytest.mark.long
@pytest.mark.parametrize("compiler", COMPILERS)
def test_sanitizers_find_nothing(compiler: str, tmp_path: Path) -> None:
    program = compile_check(compiler, tmp_path, *SANITIZED)
    assert kernels_checked(program) == list(_crc.kernels())
    assert kernels_checked(program, CRC32C) == list(_crc.crc32c_kernels())


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimize", [[], ["-O3", "-march=native"]], ids=["O2", "native"])
def test_compiles_without_a_warning(compiler: str, optimize: list[str], tmp_path: Path) -> None:
    program = compile_check(compiler, tmp_path, *STRICT, "-pedantic", *optimize)
    assert kernels_checked(program)[-1] == kernels_checked(program, CRC32C)[-1] == "portable"


def test_other_architectures_have_portable(tmp_path: Path) -> None:
    program = compile_check("gcc", tmp_path, *STRICT, "-DGENERIC")
    names = kernels_checked(program)
    assert set(names) <= {"zlib", "portable"}
    assert names[-1] == "portable"
    assert kernels_checked(program, CRC32C) == ["portable"]


@pytest.mark.parametrize(("cpu", "names"), [("max", ["pmull", "armv8-crc", "portable"])])
def test_aarch64(cpu: str, names: list[str], tmp_path: Path) -> None:
    emulator = need("qemu-aarch64")
    # Static, so that the emulator needs no ARM libraries; glibc warns that dlopen will then find none, zlib neither.
    program = compile_check("aarch64-linux-gnu-gcc", tmp_path, "-O2", "-Wall", "-Wextra", "-static")
    assert kernels_checked(emulator, "-cpu", cpu, program) == names
    assert kernels_checked(emulator, "-cpu", cpu, program, CRC32C) == names
