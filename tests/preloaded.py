"""Run programs in forks of a process that has imported the large packages of others, which takes up to four seconds.

Nothing of ours is imported before, so that what a program lacks is missed. As a program this is that process.
"""

import atexit
import gc
import os
import runpy
import subprocess
import sys
import threading
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path

from forked import Forked, serve

# As for the tests themselves, see pyproject.toml: Python warns of a fork beside threads, which tests are about.
OF_OTHERS = (  # torchdata, Lightning and Ray call what will be taken away; Lightning goes on in its own directory
    "ignore:'set_vital' is deprecated:UserWarning",
    "ignore:`isinstance(treespec, LeafSpec)` is deprecated:FutureWarning",
    "ignore:Checkpoint directory:UserWarning",
    "ignore:`use_:DeprecationWarning",
)
IGNORED = ("ignore:This process:DeprecationWarning", *OF_OTHERS)
WARNINGS = ("-W", "error", *(word for each in IGNORED for word in ("-W", each)))
# Threads of torch that wait for each other turn, which on a busy machine takes most of the time.
VARIABLES = {"OMP_NUM_THREADS": "1", "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
LARGE = ("numpy", "torch", "torch.utils.data", "matplotlib.figure", "sklearn.datasets", "sklearn.model_selection")


@cache
def _forked() -> Forked:
    return Forked(Path(__file__), *WARNINGS, **VARIABLES)


def run_preloaded(
    program: Path, *arguments: str, directory: Path, timeout: float = 240
) -> "subprocess.CompletedProcess[str]":
    """Run a program in a process of its own, in `directory`, with warnings as errors."""
    if _forked().ended:
        _forked.cache_clear()
    given = [str(program), *arguments]
    return subprocess.CompletedProcess(given, *_forked().run_captured(given, str(directory), timeout))


def main() -> None:
    """Import, then run a program in each fork."""
    for name in LARGE:
        with suppress(ImportError):
            import_module(name)
    gc.freeze()  # its first round in a child would copy all pages
    sys.argv = serve(int(sys.argv[1]))
    os.environ.update(VARIABLES)
    sys.path[0] = os.path.dirname(sys.argv[0])
    code: object = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            raise
    # What Python does at the end, but for taking apart each module, which takes longer than many programs.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code))


if __name__ == "__main__":
    main()
