"""The tests of sources have files of every format."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "sources"))
