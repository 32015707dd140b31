from collections.abc import Iterable

class Slots:
    """The pieces of records of one size that columns are made of.

    Args:
        record_size: bytes of each record, >= 0.
        slots: (offset, size) of each piece, in the record, bytes; in any order, overlapping or not, not necessarily all
            of it.

    Raises:
        ArgumentError: `record_size` is negative, or a slot is not within the record.
        TypeError, ValueError: a slot is no pair of ints.
    """

    def __new__(cls, record_size: int, slots: Iterable[tuple[int, int]]) -> Slots: ...
    @property
    def record_size(self) -> int: ...
    @property
    def pieces(self) -> tuple[tuple[int, int], ...]: ...  # (offset, size), as given
    def __len__(self) -> int: ...
