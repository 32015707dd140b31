"""nginx, for the time of a benchmark, as the tests run it: ranges of files over loopback, each answer after a while."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "remote"))

from nginx_server import Nginx, missing, serving

__all__ = ["Nginx", "missing", "serving"]
