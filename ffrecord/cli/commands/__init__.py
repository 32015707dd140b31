"""The commands. Each is a module of `ffrecord.cli.commands` that is imported when it is used.

Its `arguments(parser)` adds the arguments. Its `run(given, out)` runs the command and returns one of `exit_codes`.
"""

import argparse
from importlib import import_module
from typing import Protocol, cast

from ffrecord.cli.terminal.output import Output

# name → (module, summary for --help)
COMMANDS = {
    "info": ("info", "what a dataset is: format, samples, shards, sizes, schema"),
    "ls": ("ls", "list the records: index, bytes, name; or the files"),
    "head": ("head", "show the first samples, decoded"),
    "get": ("get", "show samples by index or name, or write their bytes"),
    "verify": ("verify", "read everything, compare all checksums, name what is bad"),
    "stats": ("stats", "sizes of records and contents of columns, as numbers and as a figure"),
    "bench": ("bench", "how fast it is read here, beside what the machine could give"),
    "view": ("view", "a dataset in the browser, or as one page to show to others"),
    "write": ("write", "image folders, lists of files or numpy arrays to shards"),
    "convert": ("convert", "any format to shards of typed samples"),
    "export": ("export", "any format to zip, tar, WebDataset, TFRecord or a folder"),
    "merge": ("merge", "several datasets to one"),
    "split": ("split", "a dataset to several, by share or number"),
    "shuffle": ("shuffle", "the same samples in a random order"),
    "pack": ("pack", "a folder to one file"),
    "unpack": ("unpack", "a packed folder, zip or tar to files"),
    "recover": ("recover", "what a killed writer had flushed, as a file"),
    "completion": ("completion", "print what makes bash, zsh or fish complete this command"),
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
