"""Small mistakes in our own code, each of which some test must notice; `python3 run.py planted` sees to it."""

from importlib import import_module
from pathlib import Path

from planted.defect import Defect

OTHERS = {"__init__", "defect", "tree", "trial"}
KINDS = sorted({path.stem for path in Path(__file__).parent.glob("*.py")} - OTHERS)

DEFECTS: tuple[Defect, ...] = tuple(each for kind in KINDS for each in import_module(f"planted.{kind}").DEFECTS)
