"""The `ffrecord` command: look into datasets, check them, make them.

command_line.py    parses the arguments; turns errors into one line and an exit code
commands/          one module per command
terminal/          output for people or as JSON, error messages, exit codes
viewer/            the page of `ffrecord view`
sources.py         the argument PATH and checks of other arguments; sample_index.py: the argument INDEX
partial.py         datasets of which shards are missing or damaged
writing_options.py options of the commands that write datasets
leftovers.py       files that killed processes left beside an output
format_values.py   values as text and as JSON; samples printed
dataset_facts.py   facts about datasets; column_facts.py: about columns; sizes.py: about sizes of records
measure.py         how fast a store is read; plots.py: figures
"""

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return the exit code of the process.

    Args:
        argv: arguments without the program's name; sys.argv[1:] if None.
    """
    try:
        # Import only here, so that Ctrl-C during the imports is reported in one line, too.
        from ffrecord.cli import command_line

        return command_line.run(argv)
    except KeyboardInterrupt:
        import sys

        # CPython remembers an interrupt that has left code run by `exec`, as some imports do, and would end by SIGINT
        # whatever is returned here. Another `exec` clears that.
        exec("")
        sys.stderr.write("ffrecord: interrupted\n")
        return 130
