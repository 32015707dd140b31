"""obstore's compiled library, in a process that may have been forked from one that used it."""

import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
from typing import IO, Any

from ffrecord.system.forks import call_in_children
from ffrecord.system.optional import require

NAME = "obstore._obstore"


class _LibraryProcess:
    """What one process has of it; its threads do not survive a fork, and calls would wait for them for ever.

    Attributes:
        lock: of loading.
        loaded: the library, once it was asked for.
        forked: whether the one that may be here already is that of a parent.
    """

    def __init__(self, forked: bool) -> None:
        self.lock = threading.Lock()
        self.loaded: Any = None
        self.forked = forked


_here = _LibraryProcess(forked=False)
_left_by_parents: list[_LibraryProcess] = []  # never freed: whatever ends them would wait, too


def library() -> Any:
    """obstore's functions, with `_store`: such that work in this process.

    Raises:
        ImportError: it is not installed; says what to install.
    """
    here = _here
    with here.lock:
        if here.loaded is None:
            package = require("obstore", "remote", "reading from object storage or HTTP")
            here.loaded = _second(package._obstore.__file__) if here.forked else package._obstore
        return here.loaded


def _second(path: str) -> Any:
    """The library once more, with threads of its own: for the loader, a file of another inode is another library."""
    try:
        with open(os.memfd_create("obstore"), "wb") as memory:
            return _loaded_from(path, memory)
    except (OSError, ImportError):  # some systems let nothing in memory be executed
        with tempfile.NamedTemporaryFile(prefix="obstore") as file:
            return _loaded_from(path, file)


def _loaded_from(path: str, file: "IO[bytes]") -> Any:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file)
    file.flush()
    # With the number of the process: the loader takes one name for one library, and those of parents are still here.
    copy = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    loader = importlib.machinery.ExtensionFileLoader(NAME, copy)
    spec = importlib.util.spec_from_file_location(NAME, copy, loader=loader)
    if spec is None:
        raise ImportError(f"{copy} cannot be loaded", name=NAME)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _forked() -> None:
    """In a child: whoever used the library in the parent, and whatever for."""
    global _here
    if NAME in sys.modules or _here.forked:
        _left_by_parents.append(_here)
        _here = _LibraryProcess(forked=True)
    else:
        _here = _LibraryProcess(forked=False)


call_in_children(_forked)
