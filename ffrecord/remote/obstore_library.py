"""obstore's compiled library, usable also in a process that was forked from one that used it."""

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
    """The library of one process. Its threads do not survive a fork: calls in the child would wait for them forever.

    Attributes:
        lock: held while the library is loaded.
        loaded: the library; None until the first use.
        forked: whether the library that Python has imported belongs to a parent process.
    """

    def __init__(self, forked: bool) -> None:
        self.lock = threading.Lock()
        self.loaded: Any = None
        self.forked = forked


_here = _LibraryProcess(forked=False)
_left_by_parents: list[_LibraryProcess] = []  # never freed: their destructors would wait for threads that are gone


def library() -> Any:
    """Return obstore's functions, with `_store`, in a copy that works in this process.

    Raises:
        ImportError: obstore is not installed; the message says what to install.
    """
    here = _here
    with here.lock:
        if here.loaded is None:
            package = require("obstore", "remote", "reading from object storage or HTTP")
            here.loaded = _load_copy(package._obstore.__file__) if here.forked else package._obstore
        return here.loaded


def _load_copy(path: str) -> Any:
    """Load the library again, with its own threads. The loader takes a file with another inode for another library."""
    try:
        with open(os.memfd_create("obstore"), "wb") as memory:
            return _load_from(path, memory)
    except (OSError, ImportError):  # some systems forbid to execute a file in memory
        with tempfile.NamedTemporaryFile(prefix="obstore") as file:
            return _load_from(path, file)


def _load_from(path: str, file: "IO[bytes]") -> Any:
    with open(path, "rb") as source:
        shutil.copyfileobj(source, file)
    file.flush()
    # The path contains the process number: the loader takes equal paths for one library, and the copies of parent
    # processes are still loaded.
    copy = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    loader = importlib.machinery.ExtensionFileLoader(NAME, copy)
    spec = importlib.util.spec_from_file_location(NAME, copy, loader=loader)
    if spec is None:
        raise ImportError(f"{copy} cannot be loaded", name=NAME)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _renew_after_fork() -> None:
    """Prepare a child for its own copy, if any parent has loaded the library."""
    global _here
    if NAME in sys.modules or _here.forked:
        _left_by_parents.append(_here)
        _here = _LibraryProcess(forked=True)
    else:
        _here = _LibraryProcess(forked=False)


call_in_children(_renew_after_fork)
