"""Types of samples for type checkers: `FileReader[Picture]` returns pictures, and a plain `FileReader` returns Any.

A running program does not use them. Python's own TypeVar has defaults only since 3.13. Type checkers know the TypeVar
of typing_extensions even if that package is not installed.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Sample = TypeVar("Sample", default=Any)
    Sample_co = TypeVar("Sample_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Sample = TypeVar("Sample")
    Sample_co = TypeVar("Sample_co", covariant=True)

__all__ = ["UNTOLD", "Sample", "Sample_co"]

# The `__orig_class__` of a class. As a property without a setter, it keeps `FileReader[Picture](path)` from storing
# Picture in the reader: it would be pickled with the reader, and every process that unpickles would have to import it.
UNTOLD = property()
