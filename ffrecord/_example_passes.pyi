class Fault(Exception):
    """What is wrong with an example.

    Attributes:
        code: 1 to 7 as in _wire.h; 11 absent, 12 another kind, 13 another count, 14 written to meanwhile.
        row: the example, in the batch.
        step: in the list of features, or -1.
        column: the feature, or -1.
        offset: in the example, bytes.
        found, expected: numbers, see where the codes are.
    """

    code: int
    row: int
    step: int
    column: int
    offset: int
    found: int
    expected: int

    def __init__(self, code: int, row: int, step: int, column: int, offset: int, found: int, expected: int) -> None: ...
