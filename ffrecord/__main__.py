"""`python -m ffrecord`: the command line."""

import sys

from ffrecord.cli import main

sys.exit(main())
