"""Entry point of `python -m ffrecord`: the command line."""

import sys

from ffrecord.cli import main

if __name__ == "__main__":
    sys.exit(main())
