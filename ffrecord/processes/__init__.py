"""Processes that work under supervision.

channel.py     messages that arrive whole or not at all
memory.py      memory that processes share
heartbeats.py  what each worker is doing, readable after its death
interrupts.py  Ctrl-C, SIGTERM and SIGHUP
process.py     a worker, from inside
verdicts.py    what the parent says of a worker that failed
crew.py        the parent's side: start, listen, end
alarm.py       the end of a worker interrupts the code of the user in the parent
"""
