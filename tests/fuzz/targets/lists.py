"""Lists of paths, and patterns with braces."""

from collections.abc import Iterator
from pathlib import Path

from fuzz.targets import Run, Scratch, Target, drain


def _prepare_list(scratch: Scratch) -> Run:
    from ffrecord.sources import PathListReader

    files = [scratch.file(f"list{suffix}") for suffix in (".txt", ".csv")]
    root = str(scratch.folder)

    def run(data: memoryview) -> None:
        """The first byte: which kind of list, and whether it has labels."""
        if data:
            path = files[data[0] % 2].put(data[1:])
            drain(PathListReader(path, root=root, labels=not data[0] & 2))

    return run


def _prepare_braces(scratch: Scratch) -> Run:
    from ffrecord.system.braces import NAMES_MOST, expand_braces

    def run(data: memoryview) -> None:
        assert len(expand_braces(bytes(data).decode(errors="surrogateescape"))) <= NAMES_MOST

    return run


def _list_seeds(folder: Path) -> Iterator[bytes]:
    yield b"\0a.jpg 1\nb c.jpg 2\n\nd.jpg\t-3\n"
    yield b'\1path,label\n"a,b.jpg",cat\nc.jpg,dog\n'
    yield b"\2a.jpg\nb.jpg\n"
    yield b"\3\xef\xbb\xbfpath\r\na.jpg\r\n"
    yield b"\1filename,x,label\na,1,2\n"


def _brace_seeds(folder: Path) -> Iterator[bytes]:
    yield b"a-{000..012}.tar"
    yield b"{x,y{1..3..2}}/{a..e}.tar"
    yield b"{9..-3..3}{{}{,}"


TARGETS = [
    Target(
        "path_list",
        _prepare_list,
        _list_seeds,
        ("ffrecord.sources.images.path_list",),
        accepted=("ArgumentError",),  # some paths with a label, and others without
        size_most=1 << 9,
    ),
    Target(
        "braces", _prepare_braces, _brace_seeds, ("ffrecord.system.braces",), accepted=("ArgumentError",), size_most=64
    ),
]
