"""The `ffrecord` command: look into datasets, check them, make them.

command_line.py  arguments, and what becomes of errors
commands.py      which there are
options.py       which every command has
output.py        facts, tables and bars, for people or as JSON
tables.py        columns that fit into a terminal
messages.py      errors in one line
sources.py       the argument PATH
exits.py         exit codes
"""

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run a command line, and return what the process is to end with.

    Nothing is imported before, so that Ctrl-C at any instant is told in a line.

    Args:
        argv: without the name of the program; sys.argv[1:] if None.
    """
    try:
        from ffrecord.cli import command_line

        return command_line.run(argv)
    except KeyboardInterrupt:
        import sys

        exec("")  # Python would end by the signal if it was in such a piece of code that the interrupt was raised first
        sys.stderr.write("ffrecord: interrupted\n")
        return 130
