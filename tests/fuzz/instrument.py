"""Python code that tells the fuzzer where it comes by, and what it compares: rewritten as it is imported."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

PLACE, SAME, DIFFERENT = "__fuzz_place__", "__fuzz_same__", "__fuzz_different__"
TOKEN_SIZES = range(1, 33)


class _Marking(ast.NodeTransformer):
    """Puts a call at the start of each block, and before each later part of a condition."""

    def __init__(self, module: str) -> None:
        self.next = hash(module) & 0xFFFFFFFF0000

    def mark(self) -> ast.expr:
        self.next += 1
        return ast.Call(ast.Name(PLACE, ast.Load()), [ast.Constant(self.next)], [])

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if not isinstance(node, ast.Module | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                block = getattr(node, name, None)
                if isinstance(block, list) and block:
                    setattr(node, name, self._marked(block))
        if isinstance(node, ast.If) and not node.orelse:
            node.orelse = [ast.Expr(self.mark())]  # not to come by is a way, too
        return node

    def _marked(self, block: list[ast.stmt]) -> list[ast.stmt]:
        first = block[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        return [*block[:documented], ast.Expr(self.mark()), *block[documented:]]

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        later = [ast.BoolOp(ast.Or(), [self.mark(), each]) for each in node.values[1:]]
        return ast.BoolOp(node.op, [node.values[0], *later])

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        super().generic_visit(node)
        node.body = ast.BoolOp(ast.Or(), [self.mark(), node.body])
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        super().generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.NotEq):
            return node
        name = SAME if isinstance(node.ops[0], ast.Eq) else DIFFERENT
        return ast.Call(ast.Name(name, ast.Load()), [node.left, *node.comparators], [])

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return super().generic_visit(node)

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        node.body = [self.visit(each) for each in node.body]
        node.body = self._marked(node.body)
        return node


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        tree = _Marking(fullname).visit(ast.parse(self.get_data(path), path))
        return compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = frozenset(modules)

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path) if fullname in self._modules else None
        if spec is None or not (spec.origin or "").endswith(".py"):
            return None
        spec.loader = _Loader(fullname, str(spec.origin))
        return spec


def install(modules: Sequence[str], place: Any, same: Any, different: Any) -> None:
    """Rewrite these modules, none of which may be imported yet, when they are imported."""
    import builtins

    early = sorted(set(modules) & set(sys.modules))
    if early:
        raise RuntimeError(f"imported before they could be rewritten: {', '.join(early)}")
    for name, function in ((PLACE, place), (SAME, same), (DIFFERENT, different)):
        setattr(builtins, name, function)
    sys.meta_path.insert(0, _Finder(modules))


def tokens(paths: Sequence[Path]) -> list[bytes]:
    """What the code in these files may look for: its bytes and short strings, and its numbers as little-endian."""
    found: dict[bytes, None] = {}
    for path in paths:
        tree = ast.parse(path.read_text())
        for value in _constants(tree):
            found.update(dict.fromkeys(_encodings(value)))
    return [token for token in found if len(token) in TOKEN_SIZES]


def compiled_tokens(paths: Sequence[Path]) -> list[bytes]:
    """The same of Cython, as far as that can be seen without understanding it: literals of bytes."""
    found = [each for path in paths for each in re.findall(r'b"(?:[^"\\\\]|\\\\.)*"', path.read_text())]
    tokens = [ast.literal_eval(each) for each in dict.fromkeys(found)]
    return [token for token in tokens if len(token) in TOKEN_SIZES]


def _constants(tree: ast.AST) -> Iterator[Any]:
    messages = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in messages:
            yield node.value


def _encodings(value: object) -> list[bytes]:
    if isinstance(value, bytes):
        return [value]
    if isinstance(value, str) and value.isascii() and " " not in value:
        return [value.encode()]
    if type(value) is int and value > 255:
        return [value.to_bytes(size, order) for size in (2, 4, 8) if value < 1 << (8 * size) for order in _ORDERS]
    return []


_ORDERS: tuple[Any, ...] = ("little", "big")
