"""Datasets in object storage or behind HTTP. Imported only when a URL is given.

opening.py          a dataset by its URL
shard.py            one remote shard; tables.py parses and keeps its tables
engine.py           batches of remote records; ranges.py joins their requests
forecast.py         groups of records that a loop will read soon
pool.py             threads that wait for answers
storage.py          objects by URL, on clients of this process
retrying.py         the retry policy: how often, how long, with which waits
connecting.py       the client for a URL
client.py           the interface of a client
obstore_client.py   over obstore; obstore_options.py, obstore_errors.py, redirects.py help
fsspec_client.py    over fsspec; fsspec_errors.py helps
errors.py           the error for each answer, which decides whether a request is repeated
cache/              copies on a disk of this machine
"""
