"""Index of a packed folder, which is its last record: a magic number and a pickled tree of names."""

import pickle
from collections.abc import Iterator

from ffrecord.errors import ArgumentError, FormatError
from ffrecord.format.folder_pickle import Tree, read_tree

MAGIC_BYTES = b"piouhjgbr"
INDEX_MAX = 256 << 20  # bytes, magic included; a larger index is neither read nor written
DEPTH_MAX = 2048  # levels; a path of PATH_MAX (4096) bytes has no more
PROTOCOL = 4  # 1.x writes it, and every Python since 3.4 reads it


def encode_index(structure: Tree, folder: str) -> bytes:
    """Encode the last record of a packed folder.

    Args:
        structure: maps each name to the sample index of a file, or to the tree of a directory.
        folder: path of the folder, for messages.

    Raises:
        ValueError (also an AssertionError): the tree is too deep for pickle, or takes more than `INDEX_MAX` bytes.
    """
    try:
        index = MAGIC_BYTES + pickle.dumps(structure, PROTOCOL)
    except RecursionError:
        raise ArgumentError(f"{folder}: its directories are nested too deeply to be pickled") from None
    if len(index) > INDEX_MAX:
        raise ArgumentError(f"{folder}: its index has {len(index)} bytes, expected at most {INDEX_MAX}")
    return index


def decode_index(record: bytes, files: int) -> Tree:
    """Decode the tree of a packed folder. Nothing in `record` is executed.

    Args:
        record: the last record of the file.
        files: number of records before it; the tree contains each of their indices once.

    Returns:
        A tree as returned by `read_tree`, at most `DEPTH_MAX` levels deep.

    Raises:
        FormatError: the record is no such index.
    """
    if record[: len(MAGIC_BYTES)] != MAGIC_BYTES:
        raise FormatError(f"its last sample starts with {record[: len(MAGIC_BYTES)]!r}, expected {MAGIC_BYTES!r}")
    tree = read_tree(record, len(MAGIC_BYTES), files)
    _check_depth(tree)
    return tree


def walk(tree: Tree) -> Iterator[tuple[str, int | Tree]]:
    """Yield (path below the root, sample index or tree) of every entry, depth first, a directory before its content."""
    way = [("", iter(tree.items()))]
    while way:
        prefix, children = way[-1]
        for name, child in children:
            yield prefix + name, child
            if not isinstance(child, int):
                way.append((f"{prefix}{name}/", iter(child.items())))
                break
        else:
            way.pop()


def _check_depth(tree: Tree) -> None:
    """Raise FormatError if `tree` has more than `DEPTH_MAX` levels."""
    level, depth = [tree], 0
    while level:
        depth += 1
        if depth > DEPTH_MAX:
            raise FormatError(f"its index has more than {DEPTH_MAX} levels of directories")
        level = [child for node in level for child in node.values() if not isinstance(child, int)]
