"""The command, for tests/forked.py."""

import atexit
import gc
import os
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path


def serve_command() -> None:
    """Import the command, then run it in each fork."""
    sys.path[0] = str(Path(__file__).parents[1])
    from forked import serve

    from ffrecord.cli import main
    from ffrecord.cli.commands import COMMANDS, command

    for name in COMMANDS:
        command(name)
    for name in ("numpy.random", "ffrecord.reader", "ffrecord.dataset_writer", "ffrecord.cli.viewer.endpoints"):
        import_module(name)
    with suppress(ImportError):
        for name in ("agg", "svg", "pdf"):
            import_module(f"matplotlib.backends.backend_{name}")
    gc.freeze()  # its first round in a child would copy all pages
    sys.argv = ["ffrecord", *serve(int(sys.argv[1]))]
    code = main()
    # What Python does at the end, but for taking apart each module, which takes longer than most commands.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    serve_command()
