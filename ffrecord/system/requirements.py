"""Modules that may be missing: errors that say what to install or run.

`ffrecord/__init__.py` imports it before anything else, so it needs only Python.
"""

import os
import sys
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from typing import Any

# Packages that are always needed. pip installs them with ffrecord; a clone alone does not bring them.
NEEDED = ("msgspec", "numpy", "tqdm")

# All compiled modules, by their paths below the package. Each is checked: an older build may have left some of them.
MODULES = (
    "_aio",
    "_crc",
    "_cython_shared",
    "engine/_engine",
    "kernels/_memory",
    "kernels/_names",
    "kernels/_permutation",
    "kernels/_pictures",
    "kernels/_records",
    "kernels/_threads",
    "sources/tfrecord/_examples",
    "sources/_files",
    "sources/recordio/_recordio",
    "sources/tar/_tar",
    "sources/tfrecord/_tfrecord",
    "sources/zip/_zip",
    "system/_calls",
    "writing/_buffers",
)

# The packages of each extra of pyproject.toml. Messages name these packages: no package index has ffrecord itself, so
# users cannot install an extra by its name.
EXTRAS = {
    "torch": ["torch"],
    "image": ["pillow"],
    "jpeg": ["simplejpeg"],
    "nvimgcodec": ["nvidia-nvimgcodec-cu12[nvjpeg]"],
    "zstd": ["zstandard"],
    "snappy": ["cramjam"],
    "parquet": ["pyarrow"],
    "huggingface": ["datasets"],
    "xxhash": ["xxhash"],
    "fsspec": ["fsspec"],
    "remote": ["obstore"],
    "plot": ["matplotlib"],
    "ray": ["ray[data]", "pyarrow", "pydantic"],
}


def check(package: str) -> None:
    """Check that the compiled modules of a package, and the packages that it needs, exist, without importing any.

    Args:
        package: path of the package directory.

    Raises:
        ImportError: some are missing, or built for another Python. The message names the command to run.
    """
    missing = [name for name in MODULES if not _is_there(os.path.join(package, name))]
    if not missing:
        _check_needed()
        return
    root = os.path.dirname(package)
    foreign = _find_foreign_suffix(package, missing)
    if foreign:
        both = f"{foreign}, this one is {EXTENSION_SUFFIXES[0]}"
        what = f"ffrecord's compiled modules in {root} are for another Python ({both})"
    elif len(missing) == len(MODULES):
        what = f"ffrecord's compiled modules are missing from {root}"
    else:
        some = f"{missing[0]} among them"
        what = f"{len(missing)} of ffrecord's {len(MODULES)} compiled modules are missing from {root}, {some}"
    raise ImportError(f"{what}: {_remedy(root)}", name="ffrecord")


def _check_needed() -> None:
    """Check that this Python finds the packages of others that are always needed.

    Raises:
        ImportError: it lacks some. The message names the command that installs them.
    """
    lacking = [name for name in NEEDED if name not in sys.modules and find_spec(name) is None]
    if lacking:
        what = " and ".join(lacking)
        raise ImportError(
            f"ffrecord needs {what}, which {sys.executable} does not have: run `pip install {' '.join(lacking)}`",
            name=lacking[0],
        )


def _is_there(path: str) -> bool:
    """Tell whether this Python finds a compiled module at a path without its suffix."""
    return any(os.path.exists(path + suffix) for suffix in EXTENSION_SUFFIXES)


def _find_foreign_suffix(package: str, missing: list[str]) -> str | None:
    """Return the suffix of a missing module that was built for another Python; None if there is none."""
    for name in missing:
        directory, stem = os.path.split(os.path.join(package, name))
        there = os.listdir(directory) if os.path.isdir(directory) else []
        for file in there:
            if file.startswith(f"{stem}.") and file.endswith(".so"):
                return file.removeprefix(stem)
    return None


def _remedy(root: str) -> str:
    """Return the advice for a clone, or for an installed package."""
    if os.path.exists(os.path.join(root, "setup.py")):
        prepared = "run `python3 run.py digits` there and use its .venv/bin/python"
        return f"{prepared}, or `pip install .` and then start Python in another directory"
    return "install it again with this Python, by `pip install --force-reinstall .` in a clone of ffrecord"


@cache
def import_optional(name: str) -> Any:
    """Return the module `name`; None if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def install_command(extra: str) -> str:
    """Return the shell command that installs the packages of an extra."""
    import shlex  # needed for errors only

    return f"pip install {shlex.join(EXTRAS[extra])}"


def require(name: str, extra: str, purpose: str, needed: str | None = None) -> Any:
    """Return the module `name`.

    Args:
        name: full name of the module.
        extra: extra that contains it, or one of several suitable ones.
        purpose: subject of the message: the feature that needs the module.
        needed: text for the message instead of the package's name.

    Raises:
        ImportError: the module is not installed. The message names the command that installs it.
    """
    module = import_optional(name)
    if module is None:
        raise ImportError(f"{purpose} needs {needed or name.partition('.')[0]}: {install_command(extra)}", name=name)
    return module
