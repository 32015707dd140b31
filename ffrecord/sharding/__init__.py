"""A dataset into shards.

layout.py          which sample lies in which shard, and where
shard_file.py      one shard: named, made, finished
shared_buffer.py   memory for records, used again and again
packing.py         what a worker does: samples to records, records to their places
finisher.py        a thread that waits for the disk
assembly.py        the parent's books: places given, shards complete
job.py             what to write, and with what
progress.py        the bar
foreman.py         the parent of a write with workers
engine.py          a whole job
selection.py       which samples, in which order
encoding.py        how samples become records
journal.py         what a part directory says about itself
publishing.py      files get their final names, or lose them again
part_directory.py  a directory that appears whole
verify.py          whether a shard is what it was
resume.py          what an interrupted write has finished
base.py            the dataset that shards are added to
"""
