"""Computations without policy, in C and Cython.

_memory.pyx       memory of batches, a pool of it, and mappings; guard.pxi, guard.h: safe from SIGBUS; arrays.pxi: loops
_threads.pyx      threads that run tasks of the engine, and never touch Python
_permutation.pyx  keyed permutations, position by position
_names.pyx        sorting and searching of names
_records.pyx      records of consecutive samples; pieces.pxi: copied from pieces
_pictures.pyx     JPEG headers (jpeg_frame.pxi) and resampling (resample.pxi, resample.h)
crc/              CRC-32 and CRC-32C, by CPU
"""
