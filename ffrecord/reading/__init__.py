"""Record stores: reading of records by index, in batches, ahead and in sequence.

store.py          the base of all readers: batches, slices, iteration, `on_error`, pickling
record_reader.py  readers whose records lie in one piece, which the batch engine reads
python_engine.py  the engine of all others: their batches are read by Python
indices.py        indices that users pass, and slices
batch_forms.py    forms of a result: arrays, packed, columns
prefetch.py       batches that are read while the caller works
ffr_file.py       one open `.ffr` file; span_file.py: one of another format
shard_list.py     the files of a reader; paths.py finds them
partition.py      tasks for many processes
stats.py          statistics
notebook.py       samples as HTML for notebooks; pictures.py: the pictures among them
"""
