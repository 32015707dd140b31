"""Zip archives, read in place.

reader.py  members in place
index.py   the directory as arrays; _zip.pyx parses it
codecs.py  decompression in pieces
"""
