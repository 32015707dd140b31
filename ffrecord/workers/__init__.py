"""Processes that work under supervision.

channel.py     messages that arrive whole or not at all
heartbeats.py  what each worker is doing, readable after its death
interrupts.py  Ctrl-C and SIGTERM
process.py     a worker, from inside
crew.py        the parent's side: start, listen, end
"""
