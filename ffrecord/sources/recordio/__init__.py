"""RecordIO files of the PaddlePaddle family: read and written.

reader.py      files in place, their chunks in one numbering
writer.py      a file, new or appended to
layout.py      the bytes of the three dialects
index.py       the chunks of a file
groups.py      chunks that were read together, and batches of their records
snappy.py      the forms of snappy
_recordio.pyx  the records of chunks; _snappy_blocks.pxi: blocks of snappy
"""
