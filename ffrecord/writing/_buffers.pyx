# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""What writes files while its caller goes on: samples by way of two buffers, and pieces of a file; documented in _buffers.pyi."""

include "append.pxi"
include "write_behind.pxi"
