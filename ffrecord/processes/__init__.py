"""Worker processes under supervision.

shared_memory.py     memory that processes share
heartbeats.py        phase and sample of every worker, readable after its death
process.py           the life of a worker, from inside; messages that arrive whole or not at all
failure_messages.py  errors about failed workers
pool.py              the parent's side: start, listen, end; work in numbered parts
death_watch.py       interrupts user code in the parent when a worker ends
"""
