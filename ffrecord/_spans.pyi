import numpy as np
import numpy.typing as npt

class Spans:
    """A table of spans, as the engine reads it: the arrays are kept, and nothing is copied.

    Attributes:
        n: records.
        scattered: whether they lie in another order than that of their numbers.
        jumping: whether reading them by their numbers is no reading in sequence.
    """

    def __new__(
        cls,
        offset_array: npt.NDArray[np.int64],
        size_array: npt.NDArray[np.int64],
        checksums: npt.NDArray[np.uint32] | None,
        kind: str | None,
    ) -> Spans: ...
    @property
    def n(self) -> int: ...
    @property
    def scattered(self) -> bool: ...
    @property
    def jumping(self) -> bool: ...
