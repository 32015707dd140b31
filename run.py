"""Set up what a task needs in .venv, then run it: `python3 run.py --help` lists the tasks. Needs nothing but Python."""

import os
import sys

# Every Python can read this file, so that whoever starts it with an older one is told why it stops.
if sys.version_info < (3, 10):  # noqa: UP036
    sys.exit("run.py: this is Python {}.{}; run it with 3.10 or newer: python3.12 run.py".format(*sys.version_info[:2]))

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "tests", "project"))

if __name__ == "__main__":
    try:
        from run_tasks import main

        sys.exit(main())
    except KeyboardInterrupt:  # before it began, or once more while it ended
        print("run.py: interrupted")
        sys.exit(130)
