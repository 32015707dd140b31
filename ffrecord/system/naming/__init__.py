"""What an error has to name: the argument, or the system call.

arguments.py    checks of arguments: words, iterables, paths
named_calls.py  system calls whose errors know their names
"""
