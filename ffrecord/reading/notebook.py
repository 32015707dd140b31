"""HTML of samples for notebooks: a table with a row for each column. Its size is bounded, and all text is escaped."""

import base64
import html
import reprlib
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from ffrecord.errors import escape_unprintable, plural
from ffrecord.reading.indices import spread_indices
from ffrecord.reading.pictures import picture_of
from ffrecord.system.values import is_tensor

__all__ = ["BatchPreview", "samples_html", "show"]

SAMPLES = 3  # shown, of any dataset
ROWS = 24  # columns shown, of any sample
TEXT = 80  # characters of a value, a name or a type
TITLE = 300
PICTURES = 12
SIDE = 72  # pixels of the longer side of a picture
PICTURE_BYTES = 1 << 14  # of the file of a picture

STYLE = "font-family:monospace;white-space:nowrap;text-align:left;vertical-align:top"


class _ShortRepr(reprlib.Repr):
    """The form of values: short, and without work for what is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = TEXT
        self.maxlist = self.maxtuple = self.maxdict = 6
        self.maxlevel = 3

    def repr1(self, x: Any, level: int) -> str:
        # Not the values: an array may be large, and its `repr` would compute.
        kind = _array_kind(x)
        if kind:
            return kind
        if isinstance(x, bytes | bytearray | memoryview):
            return plural(len(x), "byte")
        return super().repr1(x, level)


_short = _ShortRepr()


class BatchPreview:
    """A batch, or a list of samples, that notebooks show as a table."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {_text(self._batch)}>"

    def _repr_html_(self) -> str:
        return _guard(lambda: _batch_html(self._batch), self)


def show(batch: Any) -> BatchPreview:
    """Return an object that a notebook shows as a table of the columns, with the first samples and their pictures.

    Args:
        batch: a batch of any loader: a dict, list or tuple of columns; or a list of samples.
    """
    return BatchPreview(batch)


def samples_html(
    owner: object, count: Callable[[], int], get: Callable[[int], Any], types: Callable[[], Mapping[str, str]]
) -> str:
    """Return a few samples of a dataset as a table. It never raises.

    Args:
        owner: the dataset, whose `repr` becomes the title.
        count: returns the number of samples.
        get: returns the sample at an index.
        types: returns the types of columns that are known, by name.
    """

    def build() -> str:
        found, notes = {}, []
        for index in spread_indices(count(), SAMPLES):
            try:
                found[str(index)] = _columns_of(get(index))
            except Exception as error:
                notes.append(f"sample {index} is not shown: {type(error).__name__}: {error}")
        declared = types()
        return _table(repr(owner), declared, lambda name: declared.get(name, ""), found, notes)

    return _guard(build, owner)


def _guard(build: Callable[[], str], owner: object) -> str:
    """Return what `build` returns; if it fails, the text of the owner."""
    try:
        return build()
    except Exception:  # a notebook would show a traceback in place of the object
        try:
            return f"<pre>{_escape(repr(owner), TITLE)}</pre>"
        except Exception:
            return f"<pre>{_escape(object.__repr__(owner), TITLE)}</pre>"


def _batch_html(batch: Any) -> str:
    if isinstance(batch, Mapping) or not _is_list_of_samples(batch):
        columns = _columns_of(batch)
        sized = {name: column for name, column in columns.items() if _is_sized(column)}
        size = max(map(len, sized.values()), default=0)
        shown = [name for name in islice(columns, ROWS) if name in sized]
        found = {
            str(i): {name: sized[name][i] for name in shown if i < len(sized[name])}
            for i in range(min(size, SAMPLES + 1))  # one more than of a dataset, as there is room for it
        }
        return _table(f"batch of {plural(size, 'sample')}", columns, lambda name: _text(columns[name]), found, [])
    found = {str(i): _columns_of(batch[i]) for i in range(min(len(batch), SAMPLES + 1))}
    return _table(f"{plural(len(batch), 'sample')}", (), lambda name: "", found, [])


def _is_list_of_samples(batch: Any) -> bool:
    """Tell whether a list or tuple holds samples; else it holds columns."""
    if not isinstance(batch, list | tuple) or not batch:
        return False
    # A list of arrays or lists is a batch; dicts, tuples and single values are samples.
    return not all(_is_array(each) or isinstance(each, list) for each in batch)


def _is_sized(column: Any) -> bool:
    if isinstance(column, list | tuple):
        return not hasattr(column, "_fields")  # a named tuple is a sample
    return _is_array(column) and column.ndim > 0


def _columns_of(sample: Any) -> dict[str, Any]:
    """Return a sample of any structure as column → value."""
    if isinstance(sample, Mapping):
        return {str(name): value for name, value in sample.items()}
    if isinstance(sample, tuple | list):
        names = getattr(sample, "_fields", range(len(sample)))
        return {str(name): value for name, value in zip(names, sample, strict=True)}
    return {"value": sample}


def _table(
    title: str,
    columns: Iterable[str],
    type_of: Callable[[str], str],
    samples: Mapping[str, Mapping[str, Any]],
    notes: list[str],
) -> str:
    """Return the table of some columns and samples; `type_of` is asked only for those columns that are shown."""
    # `dict` keeps the order of columns, and each once.
    names = list(dict.fromkeys([*columns, *(name for sample in samples.values() for name in sample)]))
    head = "".join(f'<th style="{STYLE}">{_escape(label, TEXT)}</th>' for label in ("column", "type", *samples))
    room = [PICTURES]  # in a list, so that `_cell` can count down
    rows = []
    for name in names[:ROWS]:
        values = [sample.get(name) for sample in samples.values()]
        kind = type_of(name) or next((_kind(sample[name]) for sample in samples.values() if name in sample), "")
        cells = [_escape(name, TEXT), _escape(kind, TEXT), *(_cell(value, room) for value in values)]
        rows.append("".join(f'<td style="{STYLE}">{cell}</td>' for cell in cells))
    if len(names) > ROWS:
        notes = [f"{len(names) - ROWS} more columns", *notes]
    below = "".join(f"<div>{_escape(note, TITLE)}</div>" for note in notes)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div><code>{_escape(title, TITLE)}</code><table><tr>{head}</tr>{body}</table>{below}</div>"


def _cell(value: Any, room: list[int]) -> str:
    """Return a value as HTML: a picture while there is room for one, else text."""
    if value is None:
        return ""
    try:
        picture = picture_of(_as_pixels(value), small=True, side=SIDE, size=PICTURE_BYTES) if room[0] else None
    except Exception:  # no picture after all
        picture = None
    text = _escape(_text(value), TEXT)
    # A thumbnail that did not shrink would make the notebook large.
    if picture is None or len(picture.data) > 2 * PICTURE_BYTES:
        return text
    room[0] -= 1
    data = base64.b64encode(picture.data).decode()
    return f'<img src="data:{picture.type};base64,{data}" title="{text}">'


def _as_pixels(value: Any) -> Any:
    """Return tensors as arrays, and floats as uint8 pixels from the least to the greatest value."""
    if _is_tensor(value):
        value = value.detach().cpu()
        value = value.float().numpy() if value.is_floating_point() else value.numpy()
    if isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.ndim == 3 and value.size:
        # Floats are scaled only for pictures, and from few pixels: enough for so small a one.
        step = max(1, max(value.shape) // (4 * SIDE))
        # Channels first or last, as torch and others have them.
        value = value[:, ::step, ::step] if value.shape[0] in (1, 3, 4) else value[::step, ::step]
        finite = value[np.isfinite(value)].astype(np.float64)
        low, high = (finite.min(), finite.max()) if finite.size else (0.0, 0.0)
        # Values that are not finite would make the whole picture black.
        shown = np.nan_to_num(value.astype(np.float64), nan=low, posinf=high, neginf=low)
        value = ((shown - low) * (255 / (high - low or 1))).astype(np.uint8)  # of equal values: no division by 0
    return value


def _kind(value: Any) -> str:
    return "" if value is None else _array_kind(value) or type(value).__name__


def _array_kind(value: Any) -> str:
    """Return dtype and shape of an array or tensor; "" for other values."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {list(value.shape)}"
    if _is_tensor(value):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return ""


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or _is_tensor(value)


def _is_tensor(value: Any) -> bool:
    return is_tensor(value) and not value.is_nested  # which has no shape


def _text(value: Any) -> str:
    """Return a value as one short line."""
    # Numbers read better without their dtype.
    if isinstance(value, np.generic) or (_is_array(value) and value.ndim == 0):
        value = value.item()
    try:
        return _short.repr(value)
    except Exception:  # some values have no repr
        return type(value).__name__


def _escape(text: str, most: int) -> str:
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    # Samples come from files of others: no HTML of theirs may run in the notebook.
    return html.escape(escape_unprintable(short))
