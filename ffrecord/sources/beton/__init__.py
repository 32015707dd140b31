""".beton files of FFCV, read in place.

reader.py  samples in place: where values are, and what they are
layout.py  header and field descriptors
"""
