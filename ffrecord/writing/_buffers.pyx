# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Appending of samples through two buffers, and write-behind of pieces of a file. Documented in _buffers.pyi."""

include "append.pxi"
include "write_behind.pxi"
