# cython: language_level=3, boundscheck=False, wraparound=False, autotestdict=False, auto_pickle=False
"""Frame headers of JPEG files, and resampling of a box of an image. Documented in _pictures.pyi."""

include "jpeg_frame.pxi"
include "resample.pxi"
