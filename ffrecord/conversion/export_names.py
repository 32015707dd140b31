"""Names for the files of a sample."""

from collections.abc import Mapping

from ffrecord.conversion.export_values import BYTES, Content, fits
from ffrecord.errors import FormatError
from ffrecord.folders.safe_unpack import safe_parts
from ffrecord.sources.names import Names
from ffrecord.sources.tar._tar import split_names

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
        self._in_names = frozenset(column for column, kind in self._kinds.items() if kinds.count(kind) > 1)
        self._suffixed = suffixed
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
        if not dots:
            base = _replace_dots(base)
        names = [f"{base}.{self._suffix(column, content)}" for column, content in contents.items()]
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
        head, _, suffix = last.rpartition(".")
        if not head or not suffix:
            head, suffix = last, content.suffix
        return _check_name(f"{folder}{slash}{_replace_dots(head)}.{suffix}", dots)

    def _base(self, name: str, contents: Mapping[str, Content]) -> str:
        # "a.jpg" with a picture and a label becomes "a.jpg" and "a.cls".
        dropped = self._ending is not None and _ending_of(name, contents) == self._ending
        return name.rpartition(".")[0] if dropped else name

    def _suffix(self, column: str, content: Content) -> str:
        if column == content.suffix or (self._suffixed and content.kind == BYTES):
            return _check_column(column, column)
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
    if "/".join(safe_parts(name)) != name:
        raise FormatError(f"{name!r} is not a valid name of a file below the directory")
    size = len(name.encode(errors="surrogateescape"))
    if size > NAME_MOST:
        raise FormatError(
            f"{name[:40]!r}… of {size} bytes is not a valid name of a file, expected at most {NAME_MOST} bytes"
        )
    if not dots:
        names = Names.of([name])
        if split_names(names.blob, names.offsets)[0][0] < 0:
            raise FormatError(f"{name!r} would not belong to any sample of a WebDataset")
    return name
