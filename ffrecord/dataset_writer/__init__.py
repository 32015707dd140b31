"""A dataset into shards.

layout.py          which sample lies in which shard, and where
shard_file.py      one shard: named, made, moved, finished
spool.py           records that wait for their places on the disk
messages.py        what parent and workers tell each other
transport.py       how samples that the parent has get to a worker
runs.py            from a task to its samples
piece.py           records that wait for their places in memory
output.py          where a worker writes
packing.py         samples to records, records to their places
desk.py            what a worker does
finisher.py        a thread that waits for the disk
assembly.py        places given, shards complete
skipping.py        samples left out
books.py           the parent's books: all of this
sources.py         where samples come from
job.py             what to write, and with what
progress.py        the bar
foreman.py         the parent of a write with workers
engine.py          a whole job
selection.py       which samples, in which order
encoding.py        how samples become records
probing.py         a look at a few samples beforehand
ledger.py          what a part directory says about itself
publishing.py      files get their final names, or lose them again
part_directory.py  a directory that appears whole
target.py          where a dataset is written
remote_target.py   a URL as that
remote_base.py     what is at a URL before
objects.py         the objects below one
staging.py         where on this machine their shards are made
staged_part.py     the part directory of that, from which they go up
uploads.py         threads that send them
verify.py          whether a shard is what it was
resume.py          what an interrupted write has finished
base.py            the dataset that shards are added to
arguments.py       what users ask for, checked
options.py         what a writer was made for
writing.py         one call of a writer, from the lock to the publication
"""

from ffrecord.dataset_writer.writer import DatasetWriter, Summary

__all__ = ["DatasetWriter", "Summary"]
