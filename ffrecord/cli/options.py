"""The options that every command has."""

import argparse


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the options for output: --json, --quiet and --debug."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print facts as JSON, for programs")
    group.add_argument("--quiet", action="store_true", help="print only results and errors")
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")
