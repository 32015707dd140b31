"""What the files of a sample are called."""

from collections.abc import Mapping

from ffrecord.conversion.export_values import BYTES, Content, fits
from ffrecord.errors import FormatError
from ffrecord.folders.safe_unpack import safe_parts
from ffrecord.sources.names import Names
from ffrecord.sources.tar._tar import split_names

SHORTEST = 6  # digits of names that are numbers
NAME_MOST = 65_535  # bytes of a member's name


class Naming:
    """Names of files, as the first sample shows them. The same sample is called the same whatever the others are.

    Args:
        contents: those of the first sample, by column.
        name: its name.
        n: number of samples.
        suffixed: whether columns of bytes are called what names end in, as those of WebDataset.
    """

    def __init__(self, contents: Mapping[str, Content], name: str | None, n: int, suffixed: bool) -> None:
        self._kinds = {column: content.kind for column, content in contents.items()}
        kinds = list(self._kinds.values())
        self._in_names = frozenset(column for column, kind in self._kinds.items() if kinds.count(kind) > 1)
        self._suffixed = suffixed
        self._digits = max(SHORTEST, len(str(max(n - 1, 0))))
        # Only one end is ever dropped, so that names which differ in theirs stay apart.
        self._ending = None if name is None else _known_ending(name, contents)

    def of_columns(self, index: int, name: str | None, contents: Mapping[str, Content], dots: bool) -> list[str]:
        """A name for each column.

        Args:
            index: of the sample.
            name: its name.
            contents: column → content.
            dots: whether there may be dots before those of the columns.

        Raises:
            FormatError: a name that leads elsewhere, or that WebDataset does not read or tell from another; a column
                whose name cannot be part of that of a file.
        """
        base = f"{index:0{self._digits}}" if name is None else self._base(name, contents)
        if not dots:
            base = _without_dots(base)
        names = [f"{base}.{self._suffix(column, content)}" for column, content in contents.items()]
        if not dots and len({each.lower() for each in names}) < len(names):
            raise FormatError(f"sample {index}: {', '.join(names)}: WebDataset takes two of them for the same field")
        if dots and name is not None and self._ending is not None:
            # "b.png" among others called .jpg: the picture is "b.png", the label "b.png.cls". "B.JPEG" stays that.
            pairs = zip(names, contents.values(), strict=True)
            names = [name if each == f"{base}.{one.suffix}" and fits(name, one) else each for each, one in pairs]
        return [_checked(each, dots) for each in names]

    def of_bytes(self, name: str, content: Content, dots: bool) -> str:
        """The name of a sample that is only bytes.

        Raises:
            FormatError: as `of_columns`.
        """
        if dots:
            return _checked(name, dots)
        folder, slash, last = name.rpartition("/")
        head, _, suffix = last.rpartition(".")
        if not head or not suffix:
            head, suffix = last, content.suffix
        return _checked(f"{folder}{slash}{_without_dots(head)}.{suffix}", dots)

    def _base(self, name: str, contents: Mapping[str, Content]) -> str:
        # "a.jpg" with a picture and a label becomes "a.jpg" and "a.cls".
        dropped = self._ending is not None and _known_ending(name, contents) == self._ending
        return name.rpartition(".")[0] if dropped else name

    def _suffix(self, column: str, content: Content) -> str:
        if column == content.suffix or (self._suffixed and content.kind == BYTES):
            return _checked_column(column, column)
        said = column in self._in_names or self._kinds.get(column) != content.kind
        return _checked_column(column, f"{column}.{content.suffix}") if said else content.suffix


def key_of(name: str) -> str:
    """What WebDataset takes for the sample's key: a name up to the first dot of its last part."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.partition(".")[0]


def _known_ending(name: str, contents: Mapping[str, Content]) -> str | None:
    """What follows the last dot of a name, if a file of the sample will be called so."""
    head, _, tail = name.rpartition(".")
    return tail if head and any(fits(name, each) for each in contents.values()) else None


def _checked_column(column: str, suffix: str) -> str:
    """What a column makes the end of a name. A "/" would put the file elsewhere: in WebDataset, another sample."""
    if "/" in column or (column != suffix and column in ("", ".", "..")):
        raise FormatError(
            f"column {column!r} cannot be part of a file's name, as in NAME.{suffix}: expected one without '/', and of "
            "more than dots; call it otherwise"
        )
    return suffix


def _without_dots(name: str) -> str:
    folder, slash, last = name.rpartition("/")
    return folder + slash + last.replace(".", "_")


def _checked(name: str, dots: bool) -> str:
    if "/".join(safe_parts(name)) != name:
        raise FormatError(f"{name!r} is no name of a file below a directory")
    size = len(name.encode(errors="surrogateescape"))
    if size > NAME_MOST:
        raise FormatError(f"{name[:40]!r}…, {size} bytes, is no name of a file: expected at most {NAME_MOST}")
    if not dots:
        names = Names.of([name])
        if split_names(names.blob, names.offsets)[0][0] < 0:
            raise FormatError(f"{name!r} would be of no sample of a WebDataset")
    return name
