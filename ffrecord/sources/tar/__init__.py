"""Tar archives and WebDataset, read in place or streamed.

reader.py             archives in place; index.py: their members
stream.py             members in one pass, also of compressed archives
webdataset.py         members with one key as samples
webdataset_fields.py  values of these members
_tar.pyx              headers; _webdataset_names.pxi: names as keys and fields
"""
