"""LMDB databases and TorchRecord, read in place.

reader.py       keys -> bytes
torchrecord.py  tensors of TorchRecord
index.py        the positions of records
tree.py         records in the order of their keys
pages.py        the layout of pages
"""
