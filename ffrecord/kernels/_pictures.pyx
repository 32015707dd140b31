# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False
"""Pictures without a decoder: what a JPEG says of its pixels, and boxes resampled to another size; documented in _pictures.pyi."""

include "jpeg_frame.pxi"
include "resample.pxi"
