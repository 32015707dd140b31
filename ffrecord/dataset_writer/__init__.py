"""Write a dataset into many shards with many processes.

The modules, from the call to the disk:

writer.py          the public class, and its calls
options.py         arguments of a writer, checked
target.py          the directory or URL that is written, and the shards that it holds already
transaction.py     one call of a writer, from the lock to the publication
resume.py          shards that an interrupted write has finished
sample_sources.py  sources of samples, their order, and their division into tasks
encoding.py        functions that make records of samples
coordinator.py     the loop that hands out tasks and chunk places
messages.py        messages between the coordinator and its workers, and items on their way
worker.py          the loop of a worker
tasks.py           samples of a task
encoder.py         chunks of records that wait for their places, and are written there; the spill file
shard_tracker.py   the job of a write, places of chunks, and complete shards
layout.py          arithmetic: shard and offset of every sample
shards.py          one shard: created, finished, verified
part_directory.py  the hidden directory in which shards are made
write_log.py       the log in that directory
publish.py         renames to the final names, and back
progress.py        the progress bar
dump.py            `dump` of ffrecord 1.x
remote/            datasets written to a URL
"""

from ffrecord.dataset_writer.writer import DatasetWriter, Summary

__all__ = ["DatasetWriter", "Summary"]
