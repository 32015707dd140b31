from collections.abc import Iterable

class Keys:
    """The names of features, to be looked for.

    Args:
        names: as UTF-8, each once.

    Raises:
        ArgumentError: a name twice.
    """

    def __new__(cls, names: Iterable[bytes]) -> Keys: ...
    @property
    def names(self) -> tuple[bytes, ...]: ...
    def __len__(self) -> int: ...
