"""Objects that can list the readers among their attributes."""

from typing import TYPE_CHECKING, Any, TypeVar

from ffrecord.reading.store import Store

__all__ = ["ReaderRegistry"]

T = TypeVar("T")


class ReaderRegistry:
    """Base of objects that can list the readers among their attributes, and the readers of registries among them.

    It needs no `__init__`: only the present values of attributes count. You may assign another reader or None, or
    delete an attribute. Readers inside lists and dicts are not found.
    """

    def ffreaders(self) -> list[Store]:
        """Return the readers: its own in the order they were assigned, then those of each registry among its
        attributes.
        """
        readers = list(_attributes_of(self, Store).values())  # type: ignore[type-abstract]
        for registry in _attributes_of(self, ReaderRegistry).values():
            readers += registry.ffreaders()
        return readers

    if not TYPE_CHECKING:  # else mypy would accept every name

        def __getattr__(self, name: str) -> Any:
            # ffrecord 1.x kept readers in these attributes. Programs may read them, or use the names for themselves.
            if name == "_readers":
                return _attributes_of(self, Store)
            if name == "_resitries":
                return _attributes_of(self, ReaderRegistry)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _attributes_of(owner: object, kind: type[T]) -> dict[str, T]:
    return {name: value for name, value in vars(owner).items() if isinstance(value, kind)}
