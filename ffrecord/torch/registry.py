"""Objects that know which readers they hold."""

from typing import TYPE_CHECKING, Any, TypeVar

from ffrecord.reading.store import Store

__all__ = ["ReaderRegistry"]

T = TypeVar("T")


class ReaderRegistry:
    """Base of objects that can list the readers among their attributes, and those of registries among them.

    It needs no `__init__`: what an attribute holds *now* is what counts, so assigning another reader or None, and
    deleting, do what they say. Readers inside lists and dicts are not looked for.
    """

    def ffreaders(self) -> list[Store]:
        """The readers held: one's own in the order they were assigned, then those of each registry held."""
        readers = list(_held(self, Store).values())  # type: ignore[type-abstract]
        for registry in _held(self, ReaderRegistry).values():
            readers += registry.ffreaders()
        return readers

    if not TYPE_CHECKING:  # or mypy would accept every name

        def __getattr__(self, name: str) -> Any:
            # Where ffrecord 1.x kept them, instead of in __dict__; programs may look, and may use the names themselves.
            if name == "_readers":
                return _held(self, Store)
            if name == "_resitries":
                return _held(self, ReaderRegistry)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _held(owner: object, kind: type[T]) -> dict[str, T]:
    return {name: value for name, value in vars(owner).items() if isinstance(value, kind)}
