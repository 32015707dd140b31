"""Byte formats of the package. No module here opens a dataset.

ffr_layout.py    a `.ffr` file: header, tables, samples
extension.py     its extension block: schema and origin
manifest.py      `dataset.json`
journal.py       samples that a killed writer had flushed
leftovers.py     an interrupted write, as far as readers see it
folder_index.py  the index of a packed folder, whose pickle is read without running it
"""
