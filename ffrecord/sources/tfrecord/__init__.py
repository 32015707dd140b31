"""TFRecord files and tf.train.Example: read, streamed, written.

reader.py             files in place, compressed ones too; index.py: their records
sequential.py         files from front to back, without an index
writer.py             a file
examples.py           Examples → columns; features that records show; sequence examples
examples_features.py  what to parse, and errors about it
examples_batch.py     input and output of the parsers
examples_encode.py    values or columns → Examples
_tfrecord.pyx         records of a file
_examples.pyx         batches of Examples: _example_columns.pxi, _example_entries.pxi, _example_passes.pxi,
                      _example_writing.pxi
"""
