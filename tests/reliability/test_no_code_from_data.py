"""Surface (guarantees G5): No code that comes from data is run. What could run some is in one list, with its reason."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import children
import pytest

PACKAGE = Path(__file__).parents[2] / "ffrecord"
BUILTINS = {"eval", "exec", "compile", "execfile", "__import__", "input", "breakpoint"}
MODULES = {
    *("pickle", "marshal", "shelve", "copyreg", "dill", "cloudpickle", "joblib", "jsonpickle"),
    *("yaml", "runpy", "code", "codeop", "imp", "zipimport", "pty", "subprocess", "ctypes"),
}
# Functions of modules that are of use otherwise.
FUNCTIONS = {
    *("import_module", "find_spec", "exec_module", "load_module"),
    *("system", "popen", "startfile", "posix_spawn", "execv", "execve", "execvp", "fork_exec"),
    *("read_pickle", "load_library", "dlopen", "literal_eval", "ForkingPickler", "set_printoptions"),
}
# numpy's and torch's readers, which unpickle unless told not to.
READERS = {"numpy.load", "np.load", "np.lib.format.read_array", "torch.load", "np.core.records.fromfile"}

# (file, function or class, what) → why it runs nothing that is in a file.
ALLOWED = {
    ("__init__.py", "__getattr__", "import_module"): "modules of this package, by a table in it",
    ("sources/__init__.py", "__getattr__", "import_module"): "modules of this package, by a table in it",
    ("sources/opening.py", "_reader", "import_module"): "modules of this package, by a table of formats",
    ("remote/obstore_client.py", "_load_from", "exec_module"): "a copy of the library that is loaded",
    ("cli/__init__.py", "main", "exec"): "nothing, a literal",
    ("cli/command_line.py", "_report_interrupt", "exec"): "nothing, a literal",
    ("cli/commands/__init__.py", "command", "import_module"): "modules of this package, by a table of commands",
    (
        "system/requirements.py",
        "import_optional",
        "import_module",
    ): "names that callers have as literals, see below",
    ("format/folder_index.py", "", "pickle"): "dumps only: the index of a packed folder is what ffrecord 1.x wrote",
    ("sources/mds/encodings.py", "", "pickle"): "columns of encoding pkl, only with allow_pickle=True",
    (
        "dataset_writer/messages.py",
        "",
        "pickle",
    ): "samples, between processes of one program, in memory without a name",
    ("processes/process.py", "", "pickle"): "exceptions, between processes of one program",
    ("processes/failure_messages.py", "", "pickle"): "exceptions, between processes of one program",
    ("processes/pool.py", "WorkerPool", "ForkingPickler"): "dumps only: to find out which argument does not pickle",
    ("processes/pool.py", "_PickledArguments", "ForkingPickler"): "dumps only: what workers of one program get",
    ("processes/pool.py", "", "pickle"): "what workers get, between processes of one program",
    ("torch/transfer.py", "", "ForkingPickler"): "says how batches are sent to processes of one program",
    ("torch/transfer.py", "_load_tensor", "torch.load"): "a tensor of a process of this program, weights only",
    ("torch/loading/processes.py", "", "ForkingPickler"): "dumps only: what workers of one program get",
    ("system/atomic_directory.py", "", "ctypes"): "syncfs, of the C library that is loaded",
    ("system/named_calls.py", "_rename_to_free_name", "ctypes"): "renameat2, of the C library that is loaded",
    ("system/requirements.py", "_check_needed", "find_spec"): "names of packages, literals",
    ("inputs/passthrough.py", "tensors_of", "import_module"): "a module of this package, by a literal",
    ("torch/worker_queues.py", "", "pickle"): "batches and errors, between processes of one program",
    ("torch/worker_queues.py", "", "ForkingPickler"): "batches and errors, between processes of one program",
    ("torch/worker_queues.py", "Message", "ForkingPickler"): "what processes of one program send",
    (
        "torch/worker_queues.py",
        "_make_sendable",
        "ForkingPickler",
    ): "an error of this program, to see if it pickles",
    ("torch/shared_memory.py", "", "ctypes"): "calls of the C library that is loaded",
    ("processes/process.py", "", "ctypes"): "prctl, of the C library that is loaded",
    ("torch/images/nvimgcodec.py", "", "ctypes"): "a count of references, by Python itself",
}


def scopes(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Every node with the name of the function or class at the top that it is in, or ""."""
    for top in tree.body:
        name = getattr(top, "name", "") if isinstance(top, ast.FunctionDef | ast.ClassDef) else ""
        for node in ast.walk(top):
            yield name, node


def suspicious(node: ast.AST) -> Iterator[str]:
    """What in a node could run code, by name."""
    if isinstance(node, ast.Import):
        yield from (part for alias in node.names for part in {alias.name.split(".")[0]} & MODULES)
    elif isinstance(node, ast.ImportFrom):
        yield from {(node.module or "").split(".")[0]} & MODULES
    elif isinstance(node, ast.Name):
        yield from {node.id} & (BUILTINS | FUNCTIONS)
    elif isinstance(node, ast.Attribute):
        yield from {node.attr} & FUNCTIONS
    if isinstance(node, ast.Call) and ast.unparse(node.func) in READERS:
        safe = any(each.arg == "allow_pickle" and ast.unparse(each.value) == "False" for each in node.keywords)
        yield from () if safe else (ast.unparse(node.func),)


def found_in(path: Path) -> set[tuple[str, str, str]]:
    name = path.relative_to(PACKAGE).as_posix()
    return {(name, scope, what) for scope, node in scopes(ast.parse(path.read_text())) for what in suspicious(node)}


def all_found() -> set[tuple[str, str, str]]:
    return set().union(*map(found_in, sorted(PACKAGE.rglob("*.py"))))


def is_allowed(found: tuple[str, str, str]) -> bool:
    file, _, what = found
    return found in ALLOWED or (file, "", what) in ALLOWED


def test_nothing_but_what_is_listed_could_run_code() -> None:
    assert {found for found in all_found() if not is_allowed(found)} == set()


def test_the_list_is_no_longer_than_it_must_be() -> None:
    found = all_found()
    unused = {entry for entry in ALLOWED if not any(entry in ((f, s, w), (f, "", w)) for f, s, w in found)}
    assert unused == set()


def test_what_only_dumps_never_loads() -> None:
    dumping = {file for (file, _, what), why in ALLOWED.items() if why.startswith("dumps only")}
    for file in dumping:
        assert not re.search(r"\b(loads?|Unpickler)\(", (PACKAGE / file).read_text()), file


@pytest.mark.parametrize("line", ["eval(x)", "import pickle", "from yaml import load", "os.system(x)", "np.load(x)"])
def test_the_look_is_not_blind(line: str) -> None:
    assert [what for _, node in scopes(ast.parse(f"def f(x):\n    {line}\n")) for what in suspicious(node)]


def test_optional_modules_are_named_by_literals() -> None:
    """No name of a module comes from a file."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("import_optional", "require"):
                inside = path.name == "requirements.py"
                assert inside or isinstance(node.args[0], ast.Constant), f"{path}:{node.lineno}"


def test_compiled_modules_import_nothing_that_runs_code() -> None:
    """Of `_calls` a test build alone has more: what the tests offer, by its name."""
    calls, modules = "|".join(sorted(BUILTINS | FUNCTIONS)), "|".join(sorted(MODULES))
    bad = re.compile(rf"\b({calls})\(|^\s*(import|from) +({modules})\b|\b({modules})\.")
    for path in sorted([*PACKAGE.rglob("*.pyx"), *PACKAGE.rglob("*.pxi")]):
        text = re.sub(r'"""(?:.|\n)*?"""|#.*|"[^"\n]*"', "", path.read_text())
        code = [line for line in text.splitlines() if bad.search(line)]
        if path.stem == "_calls":
            code = [line for line in code if "import_module" not in line]
        assert code == [], path


HOOKED = """
import itertools, sys, warnings
from pathlib import Path
import ffrecord
import every_format

EVENTS = ("pickle.", "exec", "compile", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.", "code.")
armed = None

def hook(event, arguments):
    if armed is not None and event.startswith(EVENTS):
        raise SystemExit(f"{event} {arguments} while {armed} was read")

sys.addaudithook(hook)
folder, cases = Path(sys.argv[1]), {}
for number, (name, (_, make, options)) in enumerate(every_format.FORMATS.items()):
    if name in every_format.LACKING:
        continue
    (folder / str(number)).mkdir()
    cases[name] = make(folder / str(number)), options
for name, (_, file, options, _) in every_format.SEEDS.items():
    cases[f"{name}, by others"] = every_format.GOLDEN / file, options
for name, (path, options) in cases.items():
    for armed in (None, name):  # first without, for what it imports
        with ffrecord.open(path, **options) as store:
            assert len([bytes(record) for record in store]) == len(list(store.samples(range(len(store))))) > 0
    armed = None
print(len(cases))
"""


def test_the_interpreter_sees_no_code_run(tmp_path: Path) -> None:
    """Of every format, under an audit hook, which Python calls before it runs anything or looks up a pickled name."""
    sources = Path(__file__).parents[1] / "sources"
    code = f"import sys\nsys.path.insert(0, {str(sources)!r})\n{HOOKED}"
    assert int(children.run(code, tmp_path)) > 10
