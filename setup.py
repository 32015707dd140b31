"""The compiled modules; metadata is in pyproject.toml.

FFRECORD_COMPILED=1 says that they are in the tree already, as run.py has them for its editable installation.
FFRECORD_SANITIZE, FFRECORD_COVERAGE=1 and FFRECORD_FAULTS=1 are for tests. With the last, system calls go through a
table that is with the tests, and only the modules that make such calls are built.

The build prints a line for each module, which `pip install -v` shows.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from glob import glob
from itertools import takewhile
from threading import Lock

from setuptools import Command, Extension, setup

if not sys.platform.startswith("linux"):
    sys.exit(f"ffrecord is for Linux, not for {sys.platform}: run it in a Linux container, as docs/faq.md shows")

# pip asks for the metadata twice before it builds. That needs neither the modules nor Cython and numpy.
BUILDS = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install", "sdist"}
METADATA_ONLY = BUILDS.isdisjoint(sys.argv) and not {"dist_info", "egg_info"}.isdisjoint(sys.argv)

CPUS = len(os.sched_getaffinity(0))
COVERAGE = bool(os.environ.get("FFRECORD_COVERAGE"))
SANITIZERS = os.environ.get("FFRECORD_SANITIZE")  # as -fsanitize has them: "address,undefined", "thread"
SANITIZE = [f"-fsanitize={SANITIZERS}", "-fno-omit-frame-pointer", "-g", "-O1"] if SANITIZERS else []
if "undefined" in (SANITIZERS or ""):
    # The address sanitizer reports it. The library for the other, beside it in one process, does not find its log.
    SANITIZE.append("-fsanitize-undefined-trap-on-error")

FAULTS = bool(os.environ.get("FFRECORD_FAULTS"))
TABLE = "tests/reliability"  # of calls that tests make fail
CALLS = ["ffrecord/system/calls.h", *(glob(f"{TABLE}/*fault*.h") if FAULTS else [])]
LINUX = ["ffrecord/system/linux.h", *CALLS]

# What debuggers need is a quarter of the time and most of the size.
STRIP = [] if COVERAGE or SANITIZERS else ["-g0"]
STRIP_LINK = ["-Wl,-s"] if STRIP else []
# What Cython adds to every module that has typed memoryviews is in this one, once. No loop over data is in it.
SHARED = "ffrecord._cython_shared"


def extension(name: str, *sources: str, flags: list[str] | None = None, **more: object) -> Extension:
    """Return the module ffrecord.`name`, made from its .pyx and from further C `sources`."""
    macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
    if COVERAGE:
        macros.append(("CYTHON_TRACE_NOGIL", "1"))
    if FAULTS:
        macros.append(("FFRECORD_FAULTS", "1"))
    # -w: the C is Cython's, so nobody acts on its warnings, and looking for them is a tenth of the time.
    return Extension(
        f"ffrecord.{name}",
        sources=[*sources] if f"ffrecord.{name}" == SHARED else [f"ffrecord/{name.replace('.', '/')}.pyx", *sources],
        define_macros=macros,
        include_dirs=["."],
        extra_compile_args=["-O0" if FAULTS else "-O2", "-ffp-contract=off", "-w", *STRIP, *(flags or []), *SANITIZE],
        extra_link_args=[*STRIP_LINK, *SANITIZE],
        **more,
    )


def faults() -> Extension:
    """Return the table itself."""
    sources = [f"{TABLE}/_faults.pyx", f"{TABLE}/fault_table.c"]
    return Extension("ffrecord._faults", sources, define_macros=[("FFRECORD_FAULTS", "1")], depends=CALLS)


WITH_NUMPY = {"ffrecord.kernels._memory", "ffrecord.kernels._records", "ffrecord.writing._buffers"}
WAITING = [] if FAULTS else ["-O1"]  # for modules whose time goes into system calls
RESAMPLE = sorted(glob("ffrecord/kernels/resample*.h"))
EXTENSIONS = [
    extension("_cython_shared", "ffrecord/_cython_shared.c", flags=WAITING),
    extension(
        "_crc", "ffrecord/kernels/crc/kernels.c", depends=sorted(glob("ffrecord/kernels/crc/*.h")), libraries=["dl"]
    ),
    extension("_aio", depends=LINUX, flags=WAITING),
    extension("system._calls", depends=CALLS, flags=WAITING),
    extension("kernels._threads", depends=LINUX, flags=WAITING),
    extension("kernels._memory", depends=["ffrecord/kernels/guard.h", *LINUX]),
    extension("kernels._names"),
    extension("kernels._permutation", flags=["-O3"]),
    extension("kernels._pictures", depends=RESAMPLE),
    extension("kernels._records"),
    extension("engine._engine", depends=LINUX),
    extension("writing._buffers", depends=["ffrecord/writing/writing.h", *LINUX]),
    extension("sources.tfrecord._examples", depends=["ffrecord/sources/tfrecord/wire.h", LINUX[0]], flags=["-O3"]),
    extension("sources._files", depends=LINUX, flags=WAITING),
    extension("sources.recordio._recordio", depends=CALLS),
    extension("sources.tar._tar", depends=LINUX),
    extension("sources.tfrecord._tfrecord", depends=LINUX),
    extension("sources.zip._zip", depends=LINUX),
]
if FAULTS:
    EXTENSIONS = [faults(), EXTENSIONS[0], *(each for each in EXTENSIONS if CALLS[0] in each.depends)]
    for each in EXTENSIONS:
        each.include_dirs += [".", TABLE]


def find_obstacle(compiler: list[str]) -> str:
    """Return what this machine lacks for the build, and how to install it, or "".

    Args:
        compiler: command with its options. It may begin with a wrapper: `ccache gcc`.
    """
    if shutil.which(compiler[0]) is None:
        return f"a C compiler, {compiler[0]} (Debian, Ubuntu: apt install gcc libc6-dev; Fedora: dnf install gcc)"
    header = os.path.join(sysconfig.get_path("include"), "Python.h")
    if not os.path.exists(header):
        return (
            f"Python's headers, {header} (Debian, Ubuntu: apt install python3-dev; Fedora: dnf install python3-devel)"
        )
    probe = [*compiler, "-E", "-x", "c", "-o", os.devnull, "-"]
    done = subprocess.run(probe, input=b"#include <stdio.h>\n", capture_output=True, check=False)
    if done.returncode and b"stdio.h" in done.stderr:
        return "the C library's headers (Debian, Ubuntu: apt install libc6-dev; Fedora: dnf install glibc-devel)"
    if done.returncode:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or [f"status {done.returncode}"])[-1]
        shown = " ".join(takewhile(lambda word: not word.startswith("-"), compiler))
        return f"a C compiler that works: `{shown}` says {said!r} (look at CC and CFLAGS)"
    return ""


def build_command() -> type[Command]:
    """Return the command that builds the modules. With its base comes Cython's compiler."""
    from setuptools.command.build_ext import build_ext

    class Build(build_ext):
        """Build the modules, and say how far it is."""

        _lock = Lock()
        _begun = 0

        def build_extensions(self) -> None:
            """Make the C of all modules, as many at a time as there are CPUs; then compile them."""
            obstacle = find_obstacle(self.compiler.compiler)
            if obstacle:
                sys.exit(f"ffrecord is compiled here, and this machine lacks {obstacle}; then run this again")
            import numpy
            from Cython.Build import cythonize

            for ext in self.extensions:
                if ext.name in WITH_NUMPY:
                    ext.include_dirs.append(numpy.get_include())
            made = cythonize(
                self.extensions,
                nthreads=CPUS,
                compiler_directives={
                    "language_level": 3,
                    "freethreading_compatible": True,  # what the GIL guards elsewhere is guarded: see linux.h
                    "linetrace": COVERAGE,
                    "emit_code_comments": COVERAGE,
                },
                shared_utility_qualified_name=SHARED,
            )
            sources = {each.name: each.sources for each in made}
            self.extensions = [ext for ext in self.extensions if ext.name in sources]
            for ext in self.extensions:
                ext.sources = sources[ext.name]
            super().build_extensions()

        def build_extension(self, ext: Extension) -> None:
            """Compile one module."""
            with self._lock:
                self._begun += 1
                line = f"[{self._begun}/{len(self.extensions)}] {ext.name}"
            print(line, flush=True)
            super().build_extension(ext)

    return Build


if METADATA_ONLY or os.environ.get("FFRECORD_COMPILED"):
    EXTENSIONS = []

if __name__ == "__main__":
    setup(
        ext_modules=EXTENSIONS,
        cmdclass={"build_ext": build_command()} if EXTENSIONS else {},
        options={"build_ext": {"parallel": CPUS}},
    )
