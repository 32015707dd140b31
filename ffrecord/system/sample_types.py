"""What samples are, for type checkers: `FileReader[Picture]` gives pictures, and a bare `FileReader` anything.

Nothing looks at it when a program runs. Python's own TypeVar has a default from 3.13 on only, but checkers know that of
typing_extensions, whether it is installed or not.
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

# As `__orig_class__` of a class: `FileReader[Picture](path)` cannot tell the reader of Picture, which would be pickled
# with it, so that each process that is to open a file had to import it.
UNTOLD = property()
