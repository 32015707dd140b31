"""Optional third-party modules."""

import shlex
from functools import cache
from importlib import import_module
from typing import Any

# The packages of each extra of pyproject.toml. Messages name these packages: no package index has ffrecord itself, so
# users cannot install an extra by its name.
EXTRAS = {
    "torch": ["torch"],
    "image": ["pillow"],
    "jpeg": ["simplejpeg"],
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


@cache
def import_optional(name: str) -> Any:
    """Return the module `name`; None if it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def install_command(extra: str) -> str:
    """Return the shell command that installs the packages of an extra."""
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
