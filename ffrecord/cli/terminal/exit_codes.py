"""Exit codes of the command, for scripts, and warnings that decide them."""

import logging

DONE = 0
BAD_NEWS = 1  # done, and the result is that something is wrong
USAGE = 2  # wrong arguments
FAILED = 3  # it could not be done
HUNG_UP = 129  # by SIGHUP: its terminal was closed
INTERRUPTED = 130  # by Ctrl-C: 128 + SIGINT, as shells do
PIPE_CLOSED = 141  # the reader of the output has closed the pipe
TERMINATED = 143  # by SIGTERM


class DamageNotice(logging.Filter):
    """Context manager that notes warnings of damage in the log: a command that was warned ends with BAD_NEWS.

    Attributes:
        messages: the texts of these warnings.
    """

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Note a warning of damage. All records pass."""
        if hasattr(record, "damage"):
            self.messages.append(record.getMessage())
        return True

    def __enter__(self) -> "DamageNotice":
        logging.getLogger("ffrecord").addFilter(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("ffrecord").removeFilter(self)
