"""What the command ends with, for scripts to tell by."""

DONE = 0
BAD_NEWS = 1  # it was done, and the answer is that something is wrong
USAGE = 2  # arguments that mean nothing
FAILED = 3  # it could not be done
HUNG_UP = 129  # by SIGHUP: its terminal was closed
INTERRUPTED = 130  # by Ctrl-C, as shells say it
PIPE_CLOSED = 141  # whoever read the output went away
TERMINATED = 143  # by SIGTERM
