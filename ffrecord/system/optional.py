"""Third-party modules that are not required."""

import shlex
from functools import cache
from importlib import import_module
from typing import Any

# The packages of each extra of pyproject.toml. They are named to users, since an extra of a package that no index has
# cannot be installed by its name.
EXTRAS = {
    "torch": ["torch"],
    "image": ["pillow"],
    "jpeg": ["simplejpeg"],
    "zstd": ["zstandard"],
    "snappy": ["cramjam"],
    "parquet": ["pyarrow"],
    "huggingface": ["datasets"],
    "fsspec": ["fsspec"],
    "remote": ["obstore"],
    "plot": ["matplotlib"],
    "ray": ["ray[data]", "pyarrow", "pydantic"],
}


@cache
def optional(name: str) -> Any:
    """The module `name`, or None where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        return None


def install(extra: str) -> str:
    """Return the command that installs what an extra stands for, as any shell takes it."""
    return f"pip install {shlex.join(EXTRAS[extra])}"


def require(name: str, extra: str, purpose: str, needed: str | None = None) -> Any:
    """The module `name`.

    Args:
        extra: that brings it, or one of those that would do.
        purpose: what for.
        needed: what to say is needed, where it is not just this package.

    Raises:
        ImportError: not installed; says what to install.
    """
    module = optional(name)
    if module is None:
        raise ImportError(f"{purpose} needs {needed or name.partition('.')[0]}: {install(extra)}", name=name)
    return module
