"""Linux services, and what else needs nothing of this package.

_calls.pyx           system calls that Python lacks, with places for faults in tests
named_calls.py       the same as Python has them, with errors that name them
atomic_file.py       a file that appears whole or not at all; atomic_directory.py: a directory
locked_directory.py  a hidden directory that one process holds
access.py            modes, groups and access lists that a replacement keeps
untrusted.py         files and names that somebody else may have made
closing.py           objects with files: opened all or none, closed by `with`; the ends of all writers of one file
signals.py           Ctrl-C, SIGTERM and SIGHUP while a write runs
forks.py             what a forked child makes anew
threads.py           lists that threads work through
resources.py         memory, descriptors, CPUs
filesystems.py       absolute paths, kinds of file systems
urls.py              URLs, without their secrets
values.py            values that users pass: checks, descriptions for messages, bytes
sizes.py             sizes as text; braces.py: patterns
requirements.py      compiled modules and packages that may be missing
sample_types.py      type variables
"""
