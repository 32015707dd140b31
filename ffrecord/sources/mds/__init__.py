"""MDS datasets of MosaicML Streaming, read in place.

reader.py     samples in place
index.py      index.json and the heads of shards
encodings.py  encodings of columns
unpacked.py   compressed shards, decompressed once
"""
