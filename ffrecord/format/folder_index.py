"""Index of a packed folder, which is its last record: a magic number and a pickled tree of names.

Unpickling executes calls that the bytes contain, so this module reads the pickle itself and cannot execute anything. It
accepts the few opcodes that a tree of `OrderedDict`, `str` and `int` needs, in any protocol from 0 to 5, and only in
the places where such a tree has them. It refuses everything else.
"""

import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Union

from ffrecord.errors import ArgumentError, FormatError, plural

Tree = OrderedDict[str, Union[int, "Tree"]]


def read_tree(data: bytes, start: int, files: int) -> Tree:
    """Read the tree whose pickle is `data[start:]`.

    Args:
        data: bytes that contain the pickle.
        start: offset of the pickle.
        files: the tree must contain the numbers 0 … files - 1, each once.

    Returns:
        Nested `OrderedDict` of any depth. Names are not empty, `.` or `..`, and contain no `/` and no NUL. Leaves are
        `int`. Time and memory are proportional to the size of `data`.

    Raises:
        FormatError: `data` contains no such tree.
    """
    return _Machine(data, start, files).run()


class _Token:
    """Object on the stack that is not part of the tree."""


_BOTTOM, _MARK, _CLASS, _NO_ARGUMENTS, _DIRECTORY = (_Token() for _ in range(5))
_CLASS_NAME = ["collections", "OrderedDict"]
_CLASS_LINES = b"collections\nOrderedDict\n"
_STR = frozenset({str})
_VALUES = frozenset({int, OrderedDict})
_NO_NAMES = frozenset({"", ".", ".."})
_STOP, _SHORT_TEXT, _MEMOIZE = 0x2E, 0x8C, 0x94
_SMALL_INTS = {0x4B: 1, 0x4D: 2, 0x4A: 4}  # opcode → bytes; the last is signed
_PROTOCOL_MAX = 5
_LONG_SIZE_MAX = 8  # bytes of an int


class _Machine:
    """Interpreter for one pickle.

    A directory is never fetched from the memo, so each one is on the stack once and gets one parent: the result is a
    tree.
    The values below decide which values may be pushed, so the size of stack and memo stays within a small multiple of
    the bytes read.
    """

    def __init__(self, data: bytes, start: int, files: int) -> None:
        self.data, self.start, self.pos, self.at = data, start, start, start
        self.stack: list[Any] = [_BOTTOM]
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        self.memo_at = -1  # position where PUT or MEMOIZE is allowed: right after a new string, class or directory
        self.seen = bytearray(files)
        self.left = files

    def run(self) -> Tree:
        """Read the pickle and return the tree; see `read_tree`."""
        try:
            while (opcode := self.data[self.pos]) != _STOP:
                self.at = self.pos
                self.pos += 1
                handler = _HANDLERS.get(opcode)
                if handler is None:
                    raise self.error("it is not an opcode of a tree of names")
                handler(self)
        except IndexError:
            raise self.error("the index is cut short") from None
        except UnicodeDecodeError as error:
            raise self.error(f"a name cannot be decoded: {error.reason}") from None
        self.at, self.pos = self.pos, self.pos + 1
        return self.finish()

    def finish(self) -> Tree:
        """Return the tree at STOP, after checking that the stack holds only that."""
        if len(self.stack) != 2 or type(self.stack[1]) is not OrderedDict:
            raise self.error("the index ends without one complete tree")
        if self.pos != len(self.data):
            raise self.error(f"{plural(len(self.data) - self.pos, 'byte')} after the tree, expected none")
        if self.left:
            raise self.error(f"the tree has {plural(len(self.seen) - self.left, 'file')}, expected {len(self.seen)}")
        tree: Tree = self.stack[1]
        return tree

    def error(self, what: str) -> FormatError:
        """Return an error that names the current opcode and its position."""
        opcode = f"opcode {self.data[self.at]:#04x} " if self.at < len(self.data) else ""
        return FormatError(f"{opcode}at byte {self.at} of its last sample: {what}")

    def expect(self, condition: bool) -> None:
        """Raise FormatError unless a condition for the current opcode holds."""
        if not condition:
            raise self.error("a tree of names does not have this opcode here")

    # Bytes

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes."""
        end = self.pos + size
        if end > len(self.data):
            raise self.error(f"{size} bytes are expected, {len(self.data) - self.pos} are left")
        part, self.pos = self.data[self.pos : end], end
        return part

    def number(self, size: int) -> int:
        """Return the next `size` bytes as an unsigned int."""
        return int.from_bytes(self.take(size), "little")

    def line(self, size_max: int) -> bytes:
        """Return the bytes up to the next newline, and skip the newline, which must be near."""
        end = self.data.find(b"\n", self.pos, self.pos + size_max + 1)
        if end < 0:
            raise self.error(f"the line does not end within {size_max} bytes")
        return self.take(end + 1 - self.pos)[:-1]

    def decimal(self, digits: bytes) -> int:
        """Return the number >= 0 of ASCII digits. Bools, written `00` and `01`, are refused."""
        if not digits.isdigit() or (len(digits) > 1 and digits[:1] == b"0"):
            raise self.error(f"a number is {digits!r}, expected a number >= 0")
        return int(digits)

    # Strings, ints and the memo

    def push_new(self, value: Any) -> None:
        """Push a value that the memo may store."""
        self.stack.append(value)
        self.memo_at = self.pos

    def push_text(self, text: bytes, encoding: str, errors: str) -> None:
        # The longest valid run of strings has three: a key, a module and the name of a class.
        self.expect(not _STR.issuperset(map(type, self.stack[-3:])))
        self.push_new(str(text, encoding, errors))

    def push_short_text(self) -> None:
        """Push a short string, or a whole run of (name, MEMOIZE, small int), of which most of an index consists."""
        data, stack, memo = self.data, self.stack, self.memo
        while True:
            end = self.pos + 1 + data[self.pos]
            size = _SMALL_INTS.get(data[end + 1]) if data[end] == _MEMOIZE else None
            if size is None:
                return self.push_sized_text(1)
            name = str(data[self.pos + 1 : end], "utf-8", "surrogatepass")
            memo[len(memo)] = name
            self.pos = end + 2 + size
            stack += name, int.from_bytes(data[end + 2 : self.pos], "little", signed=size == 4)
            if data[self.pos] != _SHORT_TEXT:
                return None
            self.pos += 1

    def push_sized_text(self, size_bytes: int) -> None:
        # os.listdir returns file names that are not UTF-8 with lone surrogates.
        self.push_text(self.take(self.number(size_bytes)), "utf-8", "surrogatepass")

    def push_text_line(self) -> None:
        self.push_text(self.line(len(self.data)), "raw-unicode-escape", "strict")

    def push_int(self, value: int) -> None:
        self.expect(type(self.stack[-1]) is str)
        self.stack.append(value)

    def push_signed(self, size: int) -> None:
        if size > _LONG_SIZE_MAX:
            raise self.error(f"the int has {size} bytes, expected at most {_LONG_SIZE_MAX}")
        self.push_int(int.from_bytes(self.take(size), "little", signed=True))

    def push_int_line(self, suffix: bytes) -> None:
        line = self.line(24)
        self.expect(line.endswith(suffix))
        self.push_int(self.decimal(line[: len(line) - len(suffix)]))

    def put(self, key: int) -> None:
        if self.at != self.memo_at:
            raise self.error("there is no object to remember")
        value = self.stack[-1]
        self.memo[key] = _DIRECTORY if type(value) is OrderedDict else value

    def get(self, key: int) -> None:
        value = self.memo.get(key)
        if value is _DIRECTORY:
            raise self.error("a directory is in two places")
        if value is None:
            raise self.error(f"object {key} was not stored before")
        self.stack.append(value)

    # The tree

    def push_class(self) -> None:
        """Push `collections OrderedDict`, given as text; no other name is accepted or looked up."""
        if not self.data.startswith(_CLASS_LINES, self.pos):
            raise self.error(f"the class is {self.data[self.pos : self.pos + 64]!r}, expected {_CLASS_LINES!r}")
        self.pos += len(_CLASS_LINES)
        self.push_new(_CLASS)

    def push_class_on_stack(self) -> None:
        names = self.stack[-2:]
        self.expect(_STR.issuperset(map(type, names)))
        if names != _CLASS_NAME:
            raise self.error(f"the class is {[name[:64] for name in names]}, expected {_CLASS_NAME}")
        del self.stack[-2:]
        self.push_new(_CLASS)

    def push_mark(self) -> None:
        self.expect(self.stack[-1] is _CLASS or type(self.stack[-1]) is OrderedDict)
        self.marks.append(len(self.stack))
        self.stack.append(_MARK)

    def push_no_arguments(self) -> None:
        self.expect(self.stack[-1] is _CLASS)
        self.stack.append(_NO_ARGUMENTS)

    def close_tuple(self) -> None:
        self.expect(self.stack[-1] is _MARK)
        self.marks.pop()
        self.stack.pop()
        self.push_no_arguments()

    def make_directory(self) -> None:
        self.expect(self.stack[-1] is _NO_ARGUMENTS)
        del self.stack[-2:]
        self.push_new(OrderedDict())

    def set_item(self) -> None:
        self.expect(len(self.stack) > 3)
        self.set_from(len(self.stack) - 2)

    def set_items(self) -> None:
        self.expect(bool(self.marks))
        mark = self.marks.pop()
        del self.stack[mark]
        self.set_from(mark)

    def set_from(self, at: int) -> None:
        """Move names and values, in turn, from position `at` of the stack into the directory below them."""
        directory, names, values = self.stack[at - 1], self.stack[at::2], self.stack[at + 1 :: 2]
        del self.stack[at:]
        self.expect(type(directory) is OrderedDict and len(names) == len(values))
        self.expect(_STR.issuperset(map(type, names)) and _VALUES.issuperset(map(type, values)))
        self.check_names(names)
        self.claim([value for value in values if type(value) is int])
        count = len(directory)
        directory.update(zip(names, values, strict=True))
        if len(directory) != count + len(names):
            raise self.error("a directory has a name twice")

    def check_names(self, names: list[str]) -> None:
        """Raise FormatError unless all names are valid in a directory."""
        joined = "\0".join(names)
        if "/" in joined or joined.count("\0") >= max(len(names), 1) or not _NO_NAMES.isdisjoint(names):
            bad = next(name for name in names if name in _NO_NAMES or "/" in name or "\0" in name)
            raise self.error(f"{bad[:64]!r} is not the name of a file")

    def claim(self, indices: list[int]) -> None:
        """Mark the samples at `indices` as named, each at most once."""
        seen, count = self.seen, len(self.seen)
        for index in indices:
            if not 0 <= index < count:
                raise self.error(f"sample is {index}, expected 0 <= index < {count}")
            if seen[index]:
                raise self.error(f"sample {index} has two names")
            seen[index] = 1
        self.left -= len(indices)

    # Framing

    def protocol(self) -> None:
        self.expect(self.at == self.start)
        version = self.number(1)
        if version > _PROTOCOL_MAX:
            raise self.error(f"the pickle protocol is {version}, expected at most {_PROTOCOL_MAX}")

    def frame(self) -> None:
        size = self.number(8)
        if size > len(self.data) - self.pos:
            raise self.error(f"the frame has {size} bytes, {len(self.data) - self.pos} are left")


_HANDLERS: dict[int, Callable[[_Machine], None]] = {
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
    # str
    _SHORT_TEXT: _Machine.push_short_text,
    ord("X"): lambda machine: machine.push_sized_text(4),
    0x8D: lambda machine: machine.push_sized_text(8),
    ord("V"): _Machine.push_text_line,
    # int
    ord("K"): lambda machine: machine.push_int(machine.number(1)),
    ord("M"): lambda machine: machine.push_int(machine.number(2)),
    ord("J"): lambda machine: machine.push_signed(4),
    0x8A: lambda machine: machine.push_signed(machine.number(1)),
    0x8B: lambda machine: machine.push_signed(machine.number(4)),
    ord("I"): lambda machine: machine.push_int_line(b""),
    ord("L"): lambda machine: machine.push_int_line(b"L"),
    # the memo
    _MEMOIZE: lambda machine: machine.put(len(machine.memo)),
    ord("q"): lambda machine: machine.put(machine.number(1)),
    ord("r"): lambda machine: machine.put(machine.number(4)),
    ord("p"): lambda machine: machine.put(machine.decimal(machine.line(20))),
    ord("h"): lambda machine: machine.get(machine.number(1)),
    ord("j"): lambda machine: machine.get(machine.number(4)),
    ord("g"): lambda machine: machine.get(machine.decimal(machine.line(20))),
    # OrderedDict() and its items
    ord("c"): _Machine.push_class,
    0x93: _Machine.push_class_on_stack,
    ord("("): _Machine.push_mark,
    ord(")"): _Machine.push_no_arguments,
    ord("t"): _Machine.close_tuple,
    ord("R"): _Machine.make_directory,
    ord("s"): _Machine.set_item,
    ord("u"): _Machine.set_items,
}


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
