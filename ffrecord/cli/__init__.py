"""The `ffrecord` command: look into datasets, check them, make them.

command_line.py    parses the arguments; turns errors into one line and an exit code
commands/          one module per command
terminal/          output for people or as JSON, error messages, exit codes
viewer/            the page of `ffrecord view`
options.py         options of every command
sources.py         the argument PATH and checks of other arguments
partial.py         datasets of which shards are missing or damaged
writing_options.py options of the commands that write datasets
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
