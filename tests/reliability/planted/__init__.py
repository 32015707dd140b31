"""Small mistakes in our own code, each of which some test must notice; `python3 run.py planted` sees to it."""

from planted import (
    asking,
    engines,
    formats,
    inputs,
    lending,
    places,
    publishing,
    reading,
    strangers,
    surroundings,
    writing,
)
from planted.defect import Defect

DEFECTS: tuple[Defect, ...] = (
    *writing.DEFECTS,
    *publishing.DEFECTS,
    *reading.DEFECTS,
    *engines.DEFECTS,
    *asking.DEFECTS,
    *formats.DEFECTS,
    *inputs.DEFECTS,
    *places.DEFECTS,
    *strangers.DEFECTS,
    *lending.DEFECTS,
    *surroundings.DEFECTS,
)
