"""Files of an exported sample: their contents, and their names."""

import decimal
import io
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from ffrecord.errors import ArgumentError, ArgumentTypeError, FormatError
from ffrecord.fields.blobs import describe_json_change
from ffrecord.fields.images.image import PNG_MODES
from ffrecord.fields.images.image_header import image_format, read_image_header
from ffrecord.folders.safe_unpack import safe_parts
from ffrecord.sources.names import Names
from ffrecord.sources.registry import IMAGES
from ffrecord.sources.tar._tar import split_names
from ffrecord.system.values import as_bytes, describe, is_image, is_tensor

# Format of an image file → suffix of its name. Other bytes have the suffix BYTES.
SUFFIXES = {"JPEG": "jpg", "PNG": "png", "GIF": "gif", "WebP": "webp", "TIFF": "tif", "BMP": "bmp"}
BYTES, TEXT, NUMBER, JSON, ARRAY = "bin", "txt", "cls", "json", "npy"
# Other endings that fit a suffix. Bytes of unknown format may be any picture.
ENDINGS = {"jpg": ("jpeg", "jpe", "jfif"), "tif": ("tiff",), BYTES: tuple(end[1:] for end in IMAGES)}
TIFF_MODES = ("I", "F", "CMYK", "YCbCr", "LAB")


class Content(NamedTuple):
    """The content of a file.

    Attributes:
        data: its bytes.
        suffix: ending of its name, such as "jpg".
        kind: BYTES, TEXT, NUMBER, JSON or ARRAY. Columns of different kinds have different suffixes; pictures are
            BYTES.
    """

    data: bytes | memoryview
    suffix: str
    kind: str


def content_of(value: Any) -> Content:
    """Encode a value as a file, without loss.

    Raises:
        TypeError: no file holds values of this type.
        ValueError: no file holds this value.
    """
    if isinstance(value, bytes | bytearray | memoryview):
        return content_of_bytes(as_bytes(value))
    if isinstance(value, str):
        return Content(value.encode(errors="surrogateescape"), TEXT, TEXT)  # bytes that are no UTF-8 come back
    if isinstance(value, decimal.Decimal):
        # As text: JSON numbers would be read as floats.
        return Content(str(value).encode(), TEXT, TEXT)
    # Before the tests below, which all hold for masked arrays.
    check_unmasked(value)
    # Before tensors and arrays, as NumPy's ints become text that every program reads.
    if _is_int(value):
        return Content(str(int(value)).encode(), NUMBER, NUMBER)
    if is_tensor(value):
        value = _tensor_values(value)
    # Doubles and bools are JSON as they are; other NumPy scalars would lose their dtype.
    if isinstance(value, np.ndarray) or (
        isinstance(value, np.generic) and not isinstance(value, np.float64 | np.bool_)
    ):
        return Content(_encode_npy(np.asarray(value)), ARRAY, ARRAY)
    if is_image(value):
        return _encode_image(value)
    if isinstance(value, float) and not math.isfinite(value):
        return Content(_encode_npy(np.asarray(value)), ARRAY, ARRAY)  # JSON has no NaN and no infinity
    return Content(_encode_json(value), JSON, JSON)


def _tensor_values(tensor: Any) -> Any:
    """Return the items of a torch tensor on any device, also of a conjugated one, as an array.

    Raises:
        ValueError: they are not in memory as numbers: meta, nested, sparse.
    """
    try:
        return tensor.numpy(force=True)
    except RuntimeError as error:  # NotImplementedError is one
        raise ValueError(f"the items of {describe(tensor)} are not plain numbers in memory: {error}") from None


def _is_int(value: Any) -> bool:
    """Tell whether a value is a whole number. numpy counts durations among them, but a file would lose their unit."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def content_of_bytes(data: bytes | memoryview) -> Content:
    """Return bytes as a file. Known pictures get their suffix."""
    kind = image_format(data)
    # "BM" and a number begin other files, too: look at the sides.
    kind = None if kind == "BMP" and read_image_header(data) is None else kind
    return Content(data, SUFFIXES.get(kind or "", BYTES), BYTES)


def fits(name: str, content: Content) -> bool:
    """Tell whether a name has an ending of such contents, in upper or lower case."""
    end = name.rpartition(".")[2].lower()
    return end == content.suffix or end in ENDINGS.get(content.suffix, ())


def check_unmasked(value: Any) -> None:
    """Refuse masked arrays: a file would keep the values under the mask, but no mask.

    Raises:
        TypeError: the value is a masked array.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{describe(value)} is masked, and its mask would be lost: export its data and its mask as two columns"
        )


def _encode_npy(array: np.ndarray[Any, Any]) -> bytes:
    if array.dtype.hasobject:
        raise TypeError(
            f"{describe(array)} holds Python objects, which only a pickle could keep: export numbers or text"
        )
    out = io.BytesIO()
    # Never pickled: readers would have to run code of strangers.
    np.lib.format.write_array(out, array, allow_pickle=False)
    return out.getvalue()  # no copy; and with a view of its memory alive, the collector may report `out` as an error


def _encode_image(image: Any) -> Content:
    form = "PNG" if image.mode in PNG_MODES else "TIFF" if image.mode in TIFF_MODES else None
    if form is None:
        raise ArgumentError(f"{describe(image)}: neither PNG nor TIFF can keep this mode: convert the image")
    out = io.BytesIO()
    image.save(out, form)  # no quality is set: neither form loses a pixel
    return Content(out.getvalue(), {"PNG": "png", "TIFF": "tif"}[form], BYTES)


def _encode_json(value: Any) -> bytes:
    try:
        text = msgspec.json.encode(value, enc_hook=_to_builtin)
        same = bool(msgspec.json.decode(text) == value)
    except TypeError as error:
        raise ArgumentTypeError(f"{describe(value)} cannot be written as JSON: {error}") from None
    except (ValueError, OverflowError, RecursionError) as error:
        raise ArgumentError(f"{describe(value)} cannot be written as JSON: {error}") from None
    # JSON would silently change some values: tuples to lists, NaN to null, the key 1 to "1". `JSONField` refuses
    # them in the same way.
    if not same:
        what = describe_json_change(value, _to_builtin)
        raise ArgumentError(
            f"JSON would change {what}, expected dicts with str keys, lists, str, finite numbers, bools and None"
        )
    return text


def _to_builtin(value: Any) -> Any:
    if isinstance(value, np.integer | np.floating | np.bool_) and not isinstance(value, np.timedelta64):
        return value.item()
    raise TypeError(f"it contains {describe(value)}")


SHORTEST = 6  # least digits of names that are numbers
NAME_MOST = 65_535  # bytes of a member's name


class Naming:
    """Names of files, in a form that the first sample decides. The name of a sample does not depend on later samples.

    Args:
        contents: column → content of the first sample.
        name: name of the first sample; None if it has none.
        n: number of samples.
        suffixed: whether names end in the names of byte columns, as in a WebDataset.
    """

    def __init__(self, contents: Mapping[str, Content], name: str | None, n: int, suffixed: bool) -> None:
        self._kinds = {column: content.kind for column, content in contents.items()}
        kinds = list(self._kinds.values())
        # Two columns of one kind would have the same suffix, so they are told apart by their names.
        self._in_names = frozenset(column for column, kind in self._kinds.items() if kinds.count(kind) > 1)
        self._suffixed = suffixed
        # All names have one length, so that they sort as their numbers do.
        self._digits = max(SHORTEST, len(str(max(n - 1, 0))))
        # Only this one ending is ever dropped from names, so that names with different endings stay different.
        self._ending = None if name is None else _ending_of(name, contents)

    def names_of_columns(self, index: int, name: str | None, contents: Mapping[str, Content], dots: bool) -> list[str]:
        """Return a file name for each column of a sample.

        Args:
            index: index of the sample.
            name: name of the sample; None if it has none.
            contents: column → content.
            dots: whether names may have dots before the suffix of the column.

        Raises:
            FormatError: a name leads out of the directory, or WebDataset would not read it or would take it for
                another; or the name of a column cannot be part of a file's name.
        """
        base = f"{index:0{self._digits}}" if name is None else self._base(name, contents)
        # WebDataset splits at the first dot, which must be the one before the suffix.
        if not dots:
            base = _replace_dots(base)
        names = [f"{base}.{self._suffix(column, content)}" for column, content in contents.items()]
        # In lower case, as WebDataset compares.
        if not dots and len({each.lower() for each in names}) < len(names):
            raise FormatError(
                f"sample {index}: of the files {', '.join(names)}, WebDataset takes two for the same field: rename a "
                "column"
            )
        if dots and name is not None and self._ending is not None:
            # Keep the sample's own ending if it fits: a sample "b.png" among .jpg samples has the picture "b.png" and
            # the label "b.png.cls", and "B.JPEG" keeps its spelling.
            pairs = zip(names, contents.values(), strict=True)
            names = [name if each == f"{base}.{one.suffix}" and fits(name, one) else each for each, one in pairs]
        return [_check_name(each, dots) for each in names]

    def name_of_bytes(self, name: str, content: Content, dots: bool) -> str:
        """Return the file name of a sample that is only bytes.

        Raises:
            FormatError: see `names_of_columns`.
        """
        if dots:
            return _check_name(name, dots)
        folder, slash, last = name.rpartition("/")
        # The last dot only, as the suffix of a file.
        head, _, suffix = last.rpartition(".")
        if not head or not suffix:
            head, suffix = last, content.suffix  # a name of dots or without any has no suffix yet
        return _check_name(f"{folder}{slash}{_replace_dots(head)}.{suffix}", dots)

    def _base(self, name: str, contents: Mapping[str, Content]) -> str:
        # "a.jpg" with a picture and a label becomes "a.jpg" and "a.cls".
        dropped = self._ending is not None and _ending_of(name, contents) == self._ending
        return name.rpartition(".")[0] if dropped else name

    def _suffix(self, column: str, content: Content) -> str:
        if column == content.suffix or (self._suffixed and content.kind == BYTES):
            return _check_column(column, column)
        # The first sample decides the form; a value of another kind names its column, or two files would look alike.
        said = column in self._in_names or self._kinds.get(column) != content.kind
        return _check_column(column, f"{column}.{content.suffix}") if said else content.suffix


def key_of(name: str) -> str:
    """Return the key that WebDataset takes from a name: everything up to the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _ending_of(name: str, contents: Mapping[str, Content]) -> str | None:
    """Return the ending of a name after its last dot, if a file of the sample will have it; else None."""
    head, _, tail = name.rpartition(".")
    return tail if head and any(fits(name, each) for each in contents.values()) else None


def _check_column(column: str, suffix: str) -> str:
    """Check that a column may be part of a file's name, and return the suffix.

    With a "/" in it the file would be elsewhere; in a WebDataset it would be part of another sample.
    """
    if "/" in column or (column != suffix and column in ("", ".", "..")):
        raise FormatError(
            f"column {column!r} cannot be part of a file's name, as in NAME.{suffix}: rename it, without '/' and not "
            "only dots"
        )
    return suffix


def _replace_dots(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.replace(".", "_")


def _check_name(name: str, dots: bool) -> str:
    # `safe_parts` drops "." and refuses "..", so anything else than the name itself is no plain path.
    if "/".join(safe_parts(name)) != name:
        raise FormatError(f"{name!r} is not a valid name of a file below the directory")
    # Bytes count, and names from other systems may not be UTF-8.
    size = len(name.encode(errors="surrogateescape"))
    if size > NAME_MOST:
        raise FormatError(
            f"{name[:40]!r}… of {size} bytes is not a valid name of a file, expected at most {NAME_MOST} bytes"
        )
    if not dots:
        # The reader of this package decides what belongs to a sample.
        names = Names.of([name])
        if split_names(names.blob, names.offsets)[0][0] < 0:
            raise FormatError(f"{name!r} would not belong to any sample of a WebDataset")
    return name
