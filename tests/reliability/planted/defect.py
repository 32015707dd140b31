"""What a planted defect is: a small change of our own code that some test must notice."""

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FAILURE, HANG, CRASH = "failure", "hang", "crash"  # what tells: a failed test, one that does not end, a signal


@dataclass(frozen=True)
class Defect:
    """One mistake, as somebody might make it.

    Attributes:
        name: in a few words, joined by hyphens.
        breaks: the guarantees that it takes away, of docs/guarantees.md.
        file: that it is in, below the root of the project.
        text: what is there now, exactly once.
        mistake: what is there instead.
        tests: files of tests, by their names, which are unique, or single ones as FILE::NAME, that should notice.
        sign: how they do.
        modules: compiled ones to build again, as "engine._engine", where `file` is a header that others include.
    """

    name: str
    breaks: str
    file: str
    text: str
    mistake: str
    tests: tuple[str, ...]
    sign: str = FAILURE
    modules: tuple[str, ...] = ()

    @property
    def compiled(self) -> tuple[str, ...]:
        """Names of the compiled modules to build again."""
        return self.modules or ((_module_of(self.file),) if self.file.endswith((".pyx", ".pxi")) else ())

    def planted(self, source: str) -> str:
        """The source with the mistake.

        Raises:
            ValueError: its text is not there exactly once.
        """
        count = source.count(self.text)
        if count != 1:
            raise ValueError(f"{self.name}: its text is in {self.file} {count} times, expected once")
        return source.replace(self.text, self.mistake)

    def complaints(self, root: Path) -> list[str]:
        """Why this entry is no longer true of the project at `root`."""
        found = []
        try:
            changed = self.planted((root / self.file).read_text())
            if self.file.endswith(".py"):
                ast.parse(changed)
        except (OSError, ValueError, SyntaxError) as error:
            found.append(f"{self.name}: {error}")
        found += [f"{self.name}: no compiled module {name}" for name in self.compiled if not _is_module(root, name)]
        found += [f"{self.name}: there is no test {test}" for test in self.tests if not _is_test(root, test)]
        return found


def _is_module(root: Path, name: str) -> bool:
    return (root / "ffrecord" / f"{name.replace('.', '/')}.pyx").is_file()


def _module_of(file: str) -> str:
    """The module that a file is, or is a part of: the only one beside it that includes it."""
    path = ROOT / file
    if path.suffix == ".pxi":
        (path,) = (each for each in path.parent.glob("*.pyx") if f'include "{path.name}"' in each.read_text())
    return ".".join(path.relative_to(ROOT / "ffrecord").with_suffix("").parts)


def _is_test(root: Path, test: str) -> bool:
    _, _, name = test.partition("::")
    path = path_of(root, test).partition("::")[0]
    return bool(path) and (not name or f"\ndef {name.partition('[')[0]}(" in (root / path).read_text())


def path_of(root: Path, test: str) -> str:
    """A test as pytest wants it, from `root`, wherever its file is below tests; empty if it is nowhere."""
    file, separator, name = test.partition("::")
    return next((f"{path.relative_to(root)}{separator}{name}" for path in (root / "tests").rglob(file)), "")
