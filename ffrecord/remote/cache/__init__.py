"""The cache of remote shards on a disk of this machine.

cache.py     copies of shards, shared by all processes
cached.py    the cache as the engine of remote batches sees it; complete copies, read by the local engine
copy.py      one copy that is being filled, until it is complete
eviction.py  room: the least recently used copies go
listings.py  the last dataset.json of each dataset
files.py     safe opening, and marks of the records that are there
names.py     names of the files
"""
