"""The compiled modules; metadata is in pyproject.toml.

FFRECORD_COMPILED=1 says that they are in the tree already, as run.py has them for its editable installation.
FFRECORD_SANITIZE, FFRECORD_COVERAGE=1 and FFRECORD_FAULTS=1 are for tests. With the last, system calls go through a
table that is with the tests, and only the modules that make such calls are built.
"""

import os
import sys
from glob import glob

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

if not sys.platform.startswith("linux"):
    sys.exit(f"ffrecord is for Linux, not for {sys.platform}: run it in a Linux container, as docs/faq.md shows")

COVERAGE = bool(os.environ.get("FFRECORD_COVERAGE"))
SANITIZERS = os.environ.get("FFRECORD_SANITIZE")  # as -fsanitize has them: "address,undefined", "thread"
SANITIZE = [f"-fsanitize={SANITIZERS}", "-fno-omit-frame-pointer", "-g", "-O1"] if SANITIZERS else []
if "undefined" in (SANITIZERS or ""):
    # The address sanitizer reports it. The library for the other, beside it in one process, does not find its log.
    SANITIZE.append("-fsanitize-undefined-trap-on-error")

FAULTS = bool(os.environ.get("FFRECORD_FAULTS"))
TABLE = "tests/reliability"  # of calls that tests make fail
CALLS = ["ffrecord/_calls.h", *(glob(f"{TABLE}/*fault*.h") if FAULTS else [])]
LINUX = ["ffrecord/_linux.h", *CALLS]

ENGINE = [
    "_descriptors",
    "_ahead",
    "_windows",
    "_choice",
    "_plan",
    "_spans",
    "_columns",
    "_cached",
    "_copied",
    "_parallel",
    "_direct",
]
ENGINE += ["_mapped", "_reading", "_engine"]
EXAMPLES = ["_example_columns", "_example_entries", "_example_passes", "_example", "_example_writing"]


def extension(name: str, *sources: str, flags: list[str] | None = None, **more: object) -> Extension:
    """The module ffrecord.`name`, from its .pyx and further C `sources`."""
    macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
    if COVERAGE:
        macros.append(("CYTHON_TRACE_NOGIL", "1"))
    if FAULTS:
        macros.append(("FFRECORD_FAULTS", "1"))
    return Extension(
        f"ffrecord.{name}",
        [f"ffrecord/{name}.pyx", *sources],
        define_macros=macros,
        extra_compile_args=["-O0" if FAULTS else "-O2", "-ffp-contract=off", *(flags or []), *SANITIZE],
        extra_link_args=SANITIZE,
        **more,
    )


def faults() -> Extension:
    """The table itself."""
    sources = [f"{TABLE}/_faults.pyx", f"{TABLE}/fault_table.c"]
    return Extension("ffrecord._faults", sources, define_macros=[("FFRECORD_FAULTS", "1")], depends=CALLS)


EXTENSIONS = [
    extension("_calls", depends=CALLS),
    extension("_crc", "ffrecord/_crc_kernels.c", depends=sorted(glob("ffrecord/_crc_*.h")), libraries=["dl"]),
    extension("_aio", depends=LINUX),
    extension("_threads", depends=CALLS),
    extension("_records"),
    extension("_pieces", include_dirs=[numpy.get_include()]),
    extension("_tar", depends=LINUX),
    extension("_webdataset"),
    extension("_files", depends=LINUX),
    extension("_names"),
    extension("_recordio", depends=CALLS),
    extension("_tfrecord", depends=LINUX),
    extension("_snappy"),
    extension("_zip", depends=LINUX),
    extension("_jpeg_frame"),
    extension("_resample", depends=sorted(glob("ffrecord/_resample*.h"))),
    extension("_permutation", flags=["-O3"]),
    extension("_guard", depends=["ffrecord/_guard.h", *LINUX]),
    extension("_memory", depends=LINUX, include_dirs=[numpy.get_include()]),
    extension("_write_behind", depends=["ffrecord/_writing.h", *LINUX]),
    extension("_writing", depends=["ffrecord/_writing.h", *LINUX], include_dirs=[numpy.get_include()]),
    *(extension(name, depends=["ffrecord/_wire.h"], flags=["-O3"]) for name in EXAMPLES),
    *(extension(name, depends=["ffrecord/_requests.pxd", *LINUX]) for name in ENGINE),
]
if FAULTS:
    EXTENSIONS = [faults(), *(each for each in EXTENSIONS if CALLS[0] in each.depends)]
    for each in EXTENSIONS:
        each.include_dirs += ["ffrecord", TABLE]

if os.environ.get("FFRECORD_COMPILED"):
    EXTENSIONS = []

setup(
    ext_modules=cythonize(EXTENSIONS, compiler_directives={"language_level": 3, "linetrace": COVERAGE}),
    options={"build_ext": {"parallel": True}},
)
