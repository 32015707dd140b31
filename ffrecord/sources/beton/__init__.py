""".beton files of FFCV, read in place.

reader.py  samples in place
layout.py  header and field descriptors
values.py  where values are, and what they are
"""
