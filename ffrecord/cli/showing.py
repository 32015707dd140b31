"""Samples of a store, printed one after the other."""

from collections.abc import Iterable
from typing import Any

from ffrecord.cli import exits
from ffrecord.cli.output import Output, cut
from ffrecord.cli.rest import Rest
from ffrecord.cli.shown import as_json, columns_of, in_words
from ffrecord.errors import FFRecordError


def show(rest: Rest, indices: Iterable[int], out: Output) -> int:
    """Print the samples at `indices`; BAD_NEWS if one cannot be read, which is said in its place."""
    code, found = exits.DONE, []
    for index in indices:
        place = index
        try:
            place = rest.place(index)
            columns = columns_of(rest.store.sample(place))
        except (FFRecordError, OSError) as error:
            if isinstance(error, IndexError):
                raise
            code, columns = exits.BAD_NEWS, {"error": rest.told(error, place)}
        if out.json:
            found.append({"index": index, **{name: as_json(value) for name, value in columns.items()}})
        else:
            _print(index, columns, out)
    if out.json:
        out.data(found)
    return code


def _print(index: int, columns: dict[str, Any], out: Output) -> None:
    out.line(f"[{index}]")
    left = max(map(len, columns), default=0)
    for name, value in columns.items():
        text = f"  {name:{left}}  {value if name == 'error' else in_words(value)}"
        out.line(cut(text, out.width) if out.tty else text)
