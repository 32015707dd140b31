"""What other readers make of the same bytes: where they and ours give something for a name or a number, it is the same.

Which bytes are refused may differ: ours is stricter about some, and more lenient about others.
"""

import contextlib
import io
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

MOST = 1 << 20  # bytes of a member that are compared
MEMBERS = 100


def agree(ours: "dict[str, bytes]", theirs: "dict[str, bytes]") -> None:
    """Raise AssertionError for a name in both that stands for different bytes."""
    for name in ours.keys() & theirs.keys():
        assert ours[name] == theirs[name], f"{name!r}: {len(ours[name])} bytes, another reader says {len(theirs[name])}"


def records(store: Any, names: Iterable[str], most: int) -> dict[str, bytes]:
    """By name, those that a store of ours gives, of names that are in it once; the first few."""
    from fuzz.targets import refused

    found = {}
    names = list(names)
    once = Counter(names)
    for index, name in enumerate(names[:most]):
        if once[name] == 1:
            with contextlib.suppress(*refused()):
                found[name] = bytes(store.read_one(index))
    return found


def of_ffr(data: bytes) -> list[bytes] | None:
    """The samples that the twin reads, None where it refuses the file."""
    import ffr_twin

    try:
        return ffr_twin.parse(data)
    except Exception:  # whatever it stumbles over
        return None


def of_zip(data: bytes) -> dict[str, bytes]:
    def members() -> Iterable[tuple[str, Callable[[], Any]]]:
        archive = zipfile.ZipFile(io.BytesIO(data))
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_LZMA:  # takes what memory the member says
                yield info.filename, lambda info=info: archive.open(info)

    return _read(members)


def of_tar(data: bytes) -> dict[str, bytes]:
    def members() -> Iterable[tuple[str, Callable[[], Any]]]:
        archive = tarfile.TarFile(fileobj=io.BytesIO(data))
        for info in islice(archive, MEMBERS):  # a negative size leads that reader back to where it was
            if info.isreg() and not info.issparse():
                yield info.name, lambda info=info: archive.extractfile(info)

    return _read(members)


def _read(members: Callable[[], Iterable[tuple[str, Callable[[], Any]]]]) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    seen: Counter[str] = Counter()
    with contextlib.suppress(Exception):  # whatever they stumble over; what came before counts
        for name, opened in members():
            seen[name] += 1
            with contextlib.suppress(Exception), opened() as file:
                content = file.read(MOST + 1)
                if len(content) <= MOST:
                    found[name] = content
    return {name: content for name, content in found.items() if seen[name] == 1}
