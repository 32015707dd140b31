"""Exit codes of the command, for scripts."""

DONE = 0
BAD_NEWS = 1  # done, and the result is that something is wrong
USAGE = 2  # wrong arguments
FAILED = 3  # it could not be done
HUNG_UP = 129  # by SIGHUP: its terminal was closed
INTERRUPTED = 130  # by Ctrl-C: 128 + SIGINT, as shells do
PIPE_CLOSED = 141  # the reader of the output has closed the pipe
TERMINATED = 143  # by SIGTERM
