"""T16 (guarantee G3): direct reads on file systems that ask for another alignment of O_DIRECT than that of this one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ffrecord import FileWriter

# statx(2) as a file system with this alignment would answer it; offsets in struct statx as in ffrecord/system/linux.h.
PRELOAD = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

long syscall(long number, ...) {
    static long (*real)(long, ...);
    long a[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (!real) real = dlsym(RTLD_NEXT, "syscall");
    long result = real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (number == SYS_statx && result == 0) {
        unsigned char *answer = (unsigned char *)a[4];
        uint32_t mask, memory = atoi(getenv("MEMORY_ALIGNMENT")), offset = atoi(getenv("OFFSET_ALIGNMENT"));
        memcpy(&mask, answer, 4);
        mask = (mask | 0x2000) & ~0x20000u;
        memcpy(answer, &mask, 4), memcpy(answer + 152, &memory, 4), memcpy(answer + 156, &offset, 4);
    }
    return result;
}
"""
PROGRAM = """
import sys
from ffrecord import FileReader
with FileReader(sys.argv[1], io="direct") as reader:
    for _ in range(3):
        assert [bytes(record) for record in reader.read(range(40))] == [bytes([i]) * 300_000 for i in range(40)]
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler, cc")
    if os.environ.get("LD_PRELOAD"):
        pytest.skip("preloads something else already, such as a sanitizer")
    directory = tmp_path_factory.mktemp("alignment")
    (directory / "statx.c").write_text(PRELOAD)
    library = directory / "statx.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, directory / "statx.c", "-ldl"], check=True)
    with FileWriter(directory / "a.ffr", 40) as writer:
        for i in range(40):
            writer.write_one(bytes([i]) * 300_000)
    return library


@pytest.mark.parametrize(
    ("memory", "offset"),
    [
        *((512, offset) for offset in (0, 1, 512, 4096, 12288, 65536, 131072, 262144, 1 << 20, 1 << 31)),
        *((memory, 4096) for memory in (0, 4, 65536)),
    ],
)
def test_any_alignment_gives_the_same_bytes(preload: Path, memory: int, offset: int) -> None:
    variables = {"LD_PRELOAD": str(preload), "MEMORY_ALIGNMENT": str(memory), "OFFSET_ALIGNMENT": str(offset)}
    command = [sys.executable, "-c", PROGRAM, str(preload.with_name("a.ffr"))]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
