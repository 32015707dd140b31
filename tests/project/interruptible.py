"""Run a program that ends without a traceback after Ctrl-C: `python interruptible.py PROGRAM [ARGUMENT ...]`."""

import os
import runpy
import signal
import sys

if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")  # also where its processes look for it
    except KeyboardInterrupt:  # in an import, too; run.py says it
        sys.exit(128 + signal.SIGINT)
