"""The modules of tests/sources, which make files of every format, and those of tests/conversion."""

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("sources", "conversion")]
