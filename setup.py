"""The compiled modules. FFRECORD_SANITIZE=1 and FFRECORD_COVERAGE=1 are for tests; metadata is in pyproject.toml."""

import os
from glob import glob

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

COVERAGE = bool(os.environ.get("FFRECORD_COVERAGE"))
SANITIZE = ["-fsanitize=address,undefined", "-fno-omit-frame-pointer"] if os.environ.get("FFRECORD_SANITIZE") else []

ENGINE = [
    "_descriptors",
    "_ahead",
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
    return Extension(
        f"ffrecord.{name}",
        [f"ffrecord/{name}.pyx", *sources],
        define_macros=macros,
        extra_compile_args=["-O2", "-ffp-contract=off", *(flags or []), *SANITIZE],
        extra_link_args=SANITIZE,
        **more,
    )


setup(
    ext_modules=cythonize(
        [
            extension("_crc", "ffrecord/_crc_kernels.c", depends=sorted(glob("ffrecord/_crc_*.h")), libraries=["dl"]),
            extension("_aio", depends=["ffrecord/_linux.h"]),
            extension("_threads"),
            extension("_records"),
            extension("_tar", depends=["ffrecord/_linux.h"]),
            extension("_webdataset"),
            extension("_files", depends=["ffrecord/_linux.h"]),
            extension("_names"),
            extension("_recordio"),
            extension("_tfrecord", depends=["ffrecord/_linux.h"]),
            extension("_snappy"),
            extension("_zip", depends=["ffrecord/_linux.h"]),
            extension("_resample", depends=sorted(glob("ffrecord/_resample*.h"))),
            extension("_permutation", flags=["-O3"]),
            extension("_guard", depends=["ffrecord/_guard.h", "ffrecord/_linux.h"]),
            extension("_memory", depends=["ffrecord/_linux.h"], include_dirs=[numpy.get_include()]),
            extension(
                "_writing", depends=["ffrecord/_linux.h", "ffrecord/_writing.h"], include_dirs=[numpy.get_include()]
            ),
            *(extension(name, depends=["ffrecord/_wire.h"], flags=["-O3"]) for name in EXAMPLES),
            *(extension(name, depends=["ffrecord/_linux.h", "ffrecord/_requests.pxd"]) for name in ENGINE),
        ],
        compiler_directives={"language_level": 3, "linetrace": COVERAGE},
    ),
    options={"build_ext": {"parallel": True}},
)
