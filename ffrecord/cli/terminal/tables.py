"""Tables for people, which are no wider than a terminal, and in which no number is cut."""

from collections.abc import Iterable, Sequence

GAP = 2  # spaces between columns
TEXT_LEAST = 16  # characters of a text without its middle: of fewer nobody can tell what it was


def aligned(cells: Sequence[Sequence[str]], width: int | None, shorten: int | None) -> list[str] | None:
    """The lines of a table, numbers to the right; None if it does not fit.

    Args:
        cells: rows, of which the first one is the names of the columns.
        width: of the terminal; None where there is none.
        shorten: a column of texts that may lose their middles, so that it fits; None if there is none.
    """
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    over = 0 if width is None else sum(widths) + GAP * (len(widths) - 1) - width
    if over > 0:
        if shorten is None or widths[shorten] - over < TEXT_LEAST:
            return None
        widths[shorten] -= over
    numbers = [_are_numbers(column[1:]) for column in zip(*cells, strict=True)]
    return [_line(row, widths, numbers) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int], numbers: Sequence[bool]) -> str:
    parts = (without_middle(cell, width) for cell, width in zip(row, widths, strict=True))
    told = (f"{p:>{w}}" if right else f"{p:{w}}" for p, w, right in zip(parts, widths, numbers, strict=True))
    return (" " * GAP).join(told).rstrip()


def _are_numbers(cells: Iterable[str]) -> bool:
    return all(cell.replace(",", "").replace(".", "").lstrip("-").isdigit() or cell == "-" for cell in cells)


def without_middle(text: str, width: int) -> str:
    """Both ends of a text that is too long, and an ellipsis: of a path the end says most."""
    if len(text) <= width:
        return text
    left = (width - 1) // 3
    return f"{text[:left]}…{text[len(text) - (width - 1 - left) :]}"
