"""Check the arguments of a task of run.py before anything is set up for it.

The programs that the tasks run check them, too, but can be started only after the set-up.
"""

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

# In the words of a usage line. N is an integer, S a number; a name in brackets stands for any number of those.
PROGRAMS = {
    "digits": "--out PATH --epochs N --workers N",
    "photographs": "--out PATH --crops N --batch N --rounds N --workers N",
    "ddp": "--out PATH --epochs N",
    "planted": "[NAME] -j N --jobs N --list --figures PATH",
    "fuzz": "[TARGET] --seconds S --executions N --jobs N --seed N --replay --plain --sanitized --keep --figures PATH "
    "--out PATH",
    "lint": "",
    "docs": "-d PATH --site-dir PATH -q --quiet -v --verbose",
    "bench": "[NAME] --smoke --rounds N --out PATH --data PATH --part NAME --writers PATH --dlio PATH --mean N "
    "--most-samples N --peers PATH --gil-python PATH --free-python PATH",
    "machines": "[NAME] --tests NAME --wheels PATH --keep",
    "release": "[VERSION] --here --out PATH",
}
# Of pytest and the plugins that come with it, and of tests/conftest.py; less those whose value may be left out.
PYTEST = (
    "--cache-clear --co --collect-in-virtualenv --collect-only --collectonly --continue-on-collection-errors "
    "--disable-plugin-autoload --disable-pytest-warnings --disable-warnings --doctest-continue-on-failure "
    "--doctest-ignore-import-errors --doctest-modules --exitfirst --failed-first --ff --fixtures --fixtures-per-test "
    "--force-short-summary --full-trace --fulltrace --funcargs --hypothesis-explain --hypothesis-show-statistics "
    "--keep-duplicates --keepduplicates --last-failed --lf --loadscope-reorder --looponfail --markers --new-first "
    "--nf --no-fold-skipped --no-header --no-loadscope-reorder --no-showlocals --no-summary --noconftest --pdb "
    "--pyargs --quick --quiet --runxfail --setup-only --setup-plan --setup-show --setuponly --setupplan --setupshow "
    "--showlocals --strict --stepwise --stepwise-reset --stepwise-skip --strict-config --strict-markers --sw "
    "--sw-reset --sw-skip --timeout-disable-debugger-detection --trace --trace-config --traceconfig --verbose "
    "--version --xfail-tb -V -d -f -l -q -s -v -x "
    "--assert WAY --basetemp PATH --capture WAY --code-highlight WAY --color WAY --confcutdir PATH --config-file PATH "
    "--deselect PATH --dist WAY --doctest-glob PATH --doctest-report WAY --durations S --durations-min S --figures "
    "PATH --hypothesis-profile NAME --hypothesis-seed NAME --hypothesis-verbosity WAY --ignore PATH --ignore-glob "
    "PATH --import-mode WAY --junit-prefix NAME --junit-xml PATH --junitprefix NAME --junitxml PATH "
    "--last-failed-no-failures WAY --lfnf WAY --log-auto-indent WAY --log-cli-date-format WAY --log-cli-format WAY "
    "--log-cli-level WAY --log-date-format WAY --log-disable NAME --log-file PATH --log-file-date-format WAY "
    "--log-file-format WAY --log-file-level WAY --log-file-mode WAY --log-format WAY --log-level WAY --max-warnings N "
    "--max-worker-restart N --maxfail N --maxprocesses N --maxschedchunk N --numprocesses N --override-ini NAME "
    "--pastebin WAY --pdbcls NAME --px NAME --pythonwarnings WAY --report-chars NAME --rootdir PATH --rsyncdir PATH "
    "--rsyncignore PATH --seed N --session-timeout S --show-capture WAY --tb WAY --testrunuid NAME --timeout S "
    "--timeout-method WAY --timeout_method WAY --tx NAME --verbosity N -W WAY -c PATH -k NAME -m NAME -n NAME -o NAME "
    "-p NAME -r NAME [PATH]"
)
OF_PYTEST = ("test", "sanitize")
KINDS = {"N": int, "S": float}


class WrongArgumentError(Exception):
    """A task does not take an argument. Its text is one line."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongArgumentError(message)


def check(root: Path, task: str, arguments: Sequence[str], own: bool) -> None:
    """Check the arguments of a task; those with -h or --help are for its program.

    Args:
        root: directory of the clone.
        task: its name.
        arguments: as given after the name.
        own: whether a pytest is installed, which knows its options itself.

    Raises:
        WrongArgumentError: with what the task takes.
    """
    if asks_for_help(arguments):
        return
    usage = PYTEST if task in OF_PYTEST else PROGRAMS[task]
    remedy = f"python3 run.py {task} --help lists them" if task in OF_PYTEST else f"it takes {usage or 'none'}"
    try:
        given, unknown = _parser(usage).parse_known_intermixed_args(arguments)
    except WrongArgumentError as error:
        raise WrongArgumentError(f"{task}: {error}; {remedy}") from None
    if unknown and not (own and task in OF_PYTEST):
        raise WrongArgumentError(f"{task} has no argument {unknown[0]}; {remedy}")
    if task in OF_PYTEST and not unknown and not given.pyargs:
        for path in given.places:
            if not (root / path.partition("::")[0]).exists():
                raise WrongArgumentError(f"{task}: there is no {path.partition('::')[0]} in {root}")
    if task == "bench" and given.places:
        _check_name(given.places[0], _benchmarks(root), task)
    if task == "release":
        for version in given.places:
            _check_name(version, re.findall(r'Python :: (3\.\d+)"', (root / "pyproject.toml").read_text()), task)
    if task == "planted":
        texts = "".join(path.read_text() for path in (root / "tests/reliability/planted").glob("*.py"))
        for name in given.places:
            _check_name(name, re.findall(r'"([\w-]+)"', texts), task, "--list has the names")


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Tell if -h or --help is among the arguments of a task."""
    return bool({"-h", "--help"} & set(arguments))


def usage_of(task: str) -> str:
    """Return what a task takes, as in a usage line."""
    return "[--quick] [-m long] [-k NAME] [PATH] ...; the others are pytest's" if task in OF_PYTEST else PROGRAMS[task]


def _benchmarks(root: Path) -> list[str]:
    """Return the names of the benchmarks."""
    return sorted(path.stem.removeprefix("bench_") for path in (root / "benchmarks").glob("bench_*.py"))


def _check_name(name: str, known: Sequence[str], task: str, remedy: str = "") -> None:
    """Check the name of what a task is to do."""
    if name not in known:
        raise WrongArgumentError(f"{task}: nothing is called {name}; {remedy or 'there are ' + ', '.join(known)}")


def _parser(usage: str) -> _Parser:
    """Return a parser of what a usage line names."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    words = usage.split()
    for word, following in zip(words, [*words, "-"][1:], strict=True):
        if word.startswith("["):
            parser.add_argument("places", nargs="*")
        elif word.startswith("-") and following[0] in "-[":
            parser.add_argument(word, action="count")
        elif word.startswith("-"):
            parser.add_argument(word, type=KINDS.get(following, str), action="append")
    return parser
