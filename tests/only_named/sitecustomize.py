"""Run first by each Python that has this directory in PYTHONPATH: hide all packages but those in ONLY_NAMED."""

import importlib.metadata
import os
import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAMED = set(os.environ["ONLY_NAMED"].split())


def owners() -> dict[str, set[str]]:
    """Return the packages that each top-level module belongs to."""
    found: dict[str, set[str]] = {}
    for package in importlib.metadata.distributions():
        name = re.sub(r"[-_.]+", "-", package.metadata["Name"]).lower()
        for file in package.files or []:
            found.setdefault(file.parts[0].split(".")[0], set()).add(name)
    return found


OWNERS = owners()


class Hiding(PathFinder):
    """Finds modules as Python does, but for those of packages that are not named."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None and fullname in OWNERS and not OWNERS[fullname] & NAMED:
            return None
        return PathFinder.find_spec(fullname, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
