"""The options that every command has."""

import argparse


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options for output: --json, --quiet and --debug."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="facts as JSON, for programs")
    group.add_argument("--quiet", action="store_true", help="no progress bars, no remarks; only results and errors")
    group.add_argument("--debug", action="store_true", help="show where in the program an error came from")
