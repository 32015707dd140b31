"""Small mistakes in our own code, each of which some test must notice; `python3 run.py planted` sees to it."""

from planted import asking, engines, formats, lending, places, publishing, reading, training, writing
from planted.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    *writing.DEFECTS,
    *publishing.DEFECTS,
    *reading.DEFECTS,
    *engines.DEFECTS,
    *asking.DEFECTS,
    *formats.DEFECTS,
    *places.DEFECTS,
    *lending.DEFECTS,
    *training.DEFECTS,
)
