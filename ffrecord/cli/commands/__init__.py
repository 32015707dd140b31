"""The commands. Each is a module of `ffrecord.cli.commands` that is imported when it is used.

Its `arguments(parser)` adds the arguments. Its `run(given, out)` runs the command and returns one of `exit_codes`.
"""

import argparse
from importlib import import_module
from typing import Protocol, cast

from ffrecord.cli.terminal.output import Output

# name → (module, summary for --help)
COMMANDS = {
    "info": ("info", "show the facts of a dataset: format, samples, shards, sizes, schema"),
    "ls": ("ls", "list the records with index, bytes and name; or the files"),
    "head": ("head", "show the first samples, decoded"),
    "get": ("get", "show samples by index or name, or write their bytes"),
    "verify": ("verify", "read everything, compare all checksums, and name damaged samples"),
    "stats": ("stats", "show sizes of records and contents of columns, as numbers or as a figure"),
    "bench": ("bench", "measure how fast a dataset is read here, beside the limit of this machine"),
    "view": ("view", "show a dataset in the browser, or save it as one page"),
    "write": ("write", "write image folders, lists of files or numpy arrays to shards"),
    "convert": ("convert", "convert any format to shards of typed samples"),
    "export": ("export", "export any format to zip, tar, WebDataset, TFRecord or a folder"),
    "merge": ("merge", "merge several datasets into one"),
    "split": ("split", "split a dataset into several, by share or number"),
    "shuffle": ("shuffle", "write the same samples in a random order"),
    "pack": ("pack", "pack a folder into one file"),
    "unpack": ("unpack", "unpack the files of a packed folder, zip or tar"),
    "recover": ("recover", "make a file of the samples that a killed writer had flushed"),
    "completion": ("completion", "print the script that makes bash, zsh or fish complete this command"),
}


class Command(Protocol):
    """The interface of a command's module."""

    def arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments, description and examples to a parser."""

    def run(self, given: argparse.Namespace, out: Output) -> int:  # pyright: ignore[reportReturnType]  # a protocol's
        """Run the command and return one of `exit_codes`."""


def command(name: str) -> Command:
    """Import the module of a command."""
    return cast(Command, import_module(f"ffrecord.cli.commands.{COMMANDS[name][0]}"))


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options for output: --json, --quiet and --debug."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print facts as JSON, for programs")
    group.add_argument("--quiet", action="store_true", help="print only results and errors")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
