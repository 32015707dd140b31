"""The modules of tests/sources, which make files of every format."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "sources"))
