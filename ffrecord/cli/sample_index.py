"""The argument INDEX of commands: an index, a slice or the name of a sample."""

import operator
from collections.abc import Callable, Iterator

from ffrecord.errors import ArgumentError, MissingNamesError, name_files
from ffrecord.reading.store import Store


def indices_of(store: Store, text: str, n: int) -> Iterator[int]:
    """Yield the indices, in [0, n), that an argument INDEX means.

    Args:
        store: the opened samples.
        text: an index, a slice or a name.
        n: number of samples of the dataset, of which `store` may be a part.

    Raises:
        ArgumentError: there is no such sample.
    """
    first, colon, last = text.partition(":")
    try:
        if colon:
            yield from range(n)[slice(*(int(each) if each else None for each in (first, last)))]
            return
        index = operator.index(int(text))
    except ValueError:
        yield _index_of_name(store, text)
        return
    if not -n <= index < n:
        raise ArgumentError(f"index is {index}, expected {-n} <= index < {n}: {name_files(store.fnames)}")
    yield index % n


def _index_of_name(store: Store, name: str) -> int:
    """Return the index of the record with this name; the last one if several have it."""
    try:
        names = store.keys()
    except MissingNamesError:
        wanted = "0, -1 or 3:7 (no steps)" if ":" in name else "0, -1 or 3:7"
        raise ArgumentError(
            f"{name!r} is not an index, such as {wanted}, and the format {store.format} has no names"
        ) from None
    find: Callable[[str], int] | None = getattr(names, "find", None)
    found = _last_index(list(names), name) if find is None else find(name)
    if found < 0:
        raise ArgumentError(f"{name!r} is neither an index nor the name of a record: {name_files(store.fnames)}")
    return int(found)


def _last_index(names: list[str], name: str) -> int:
    return len(names) - 1 - names[::-1].index(name) if name in names else -1
