"""benchmarks/order_quality.py as a module, imported from its directory."""

import importlib
import sys

from documents import ROOT

PROGRAM = ROOT / "benchmarks" / "order_quality.py"

sys.path.insert(0, str(PROGRAM.parent))
try:
    quality = importlib.import_module(PROGRAM.stem)
finally:
    sys.path.remove(str(PROGRAM.parent))
