"""A module imports only from the rows above its own; torch only under `ffrecord/torch`, Ray under `ffrecord/ray`."""

import ast
import re
import sys
from pathlib import Path

import children
import pytest

PACKAGE = Path(__file__).parents[2] / "ffrecord"
ROWS = [
    {"errors", "_crc"},
    {"system"},
    {"_aio", "format", "kernels", "processes"},
    {"engine"},
    {"reading"},
    {"remote", "writing"},
    {"fields"},
    {"reader"},
    {"folders", "order"},
    {"sources"},
    {"inputs"},
    {"dataset_writer", "torch"},
    {"conversion", "ray"},
    {"fileio", "package", "utils", "cli"},
    {"__main__"},
]
DEPTH = {name: depth for depth, names in enumerate(ROWS) for name in names}
SOURCES = sorted(path for path in PACKAGE.rglob("*") if path.suffix in {".py", ".pyx", ".pxi", ".pxd"})
# Asked for by pyproject.toml; all else is optional, and imported where it is needed.
REQUIRED = {"ffrecord", "msgspec", "numpy", "tqdm"}


def python_imports(path: Path, nodes: list[ast.AST]) -> set[str]:
    """Full names of the modules imported, relative ones resolved; `from x import y` gives x.y."""
    inside = path.relative_to(PACKAGE).parts[:-1]
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = ["ffrecord", *inside[: len(inside) - node.level + 1]] if node.level else []
            stem += node.module.split(".") if node.module else []
            found += [".".join([*stem, alias.name]) for alias in node.names]
    return set(found)


def cython_imports(path: Path) -> set[str]:
    """The same for .pyx, .pxi and .pxd, which spell our modules in full."""
    return set(re.findall(r"^\s*(?:from|import|cimport)\s+(ffrecord\.\w+)", path.read_text(), re.MULTILINE))


def imports(path: Path) -> set[str]:
    """Wherever they are in the file, functions included."""
    if path.suffix == ".py":
        return python_imports(path, list(ast.walk(ast.parse(path.read_text()))))
    return cython_imports(path)


def ours(names: set[str], below: int = 1) -> set[str]:
    """The part at this depth below `ffrecord` of each module of ours."""
    return {name.split(".")[below] for name in names if name.startswith("ffrecord.") and name.count(".") >= below}


def module(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].split(".")[0]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_from_rows_above(path):
    own = module(path)
    if own == "__init__":
        return
    assert own in DEPTH, f"{own} has no row: give it one here and in docs/design.md"
    # A name no row has, such as a re-export of ffrecord itself, counts as the last row.
    wrong = {other for other in ours(imports(path)) - {own} if DEPTH.get(other, len(ROWS)) >= DEPTH[own]}
    assert not wrong, f"{own} is no lower than {wrong}"


def test_rows_have_no_names_of_the_past():
    assert {module(path) for path in SOURCES} - {"__init__"} == set(DEPTH)


FOLDERS = sorted(str(path.parent.relative_to(PACKAGE)) for path in PACKAGE.rglob("__init__.py"))


def below(folder: str) -> dict[str, set[str]]:
    """Return the modules of a folder, subfolders not included, each with those of them that it imports."""
    stem = ".".join(["ffrecord", *Path(folder).parts])
    graph = {}
    for path in (PACKAGE / folder).glob("*.py"):
        if path.name != "__init__.py":
            names = {name for name in imports(path) if name.startswith(f"{stem}.")}
            graph[path.stem] = ours(names, stem.count(".") + 1) - {path.stem}
    return graph


@pytest.mark.parametrize("package", FOLDERS)
def test_no_cycles_inside_a_folder(package):
    graph = below(package)
    while free := {name for name, needs in graph.items() if not needs & graph.keys()}:
        graph = {name: needs for name, needs in graph.items() if name not in free}
    assert not graph, f"these need each other: {graph}"


def top_level(path: Path) -> set[str]:
    """What is imported as soon as the module is: not in functions, not for type checkers only."""
    nodes: list[ast.AST] = list(ast.parse(path.read_text()).body)
    return {name.split(".")[0] for name in python_imports(path, nodes)}


@pytest.mark.parametrize(
    "path", [path for path in SOURCES if path.suffix == ".py"], ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_optional_packages_are_imported_where_they_are_needed(path):
    allowed = REQUIRED | set(sys.stdlib_module_names) | ({module(path)} & {"ray", "torch"})
    assert top_level(path) <= allowed


@pytest.mark.parametrize("package", ["ray", "torch"])
def test_is_imported_under_its_own_part_only(package):
    for path in SOURCES:
        names = {name.split(".")[0] for name in imports(path)} if path.suffix == ".py" else set()
        assert module(path) == package or package not in names, path


@pytest.mark.parametrize(
    "name", ["torch", "ray", "PIL", "simplejpeg", "pkg_resources", "multiprocessing.resource_tracker"]
)
def test_importing_the_package_leaves_alone(name):
    children.run(f"import sys\nfrom ffrecord import *\nassert {name!r} not in sys.modules")
