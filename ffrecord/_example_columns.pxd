"""What parsers of examples use of _example_columns: a Feature, wherever it was found, as a row of a column."""

from libc.stdint cimport int64_t

from ffrecord._wire cimport ffr_fault, ffr_piece

# Kinds, by the number of the field of Feature that holds them. 0: none is set, which means the feature is absent.
cdef enum:
    BYTES_LIST = 1
    FLOAT_LIST = 2
    INT64_LIST = 3

cdef enum:
    INT64, FLOAT32, UINT8, STRING    # what a column holds; uint8: the bytes of a feature joined; string: one by one

# Further faults than those of the wire, with what `found` and `expected` are.
cdef enum:
    ABSENT = 11
    KIND                             # the two kinds
    COUNT                            # numbers of values; bytes of uint8
    CHANGED                          # the record was written to meanwhile: values counted, and found later

# Where the lists of one Feature are: from the first field of the last kind that is set, to the end of its map entry.
# As everywhere in protocol buffers, a message that comes in several pieces is their concatenation.
cdef struct Feature:
    int kind
    ffr_piece value                  # rest of a piece of the Feature
    ffr_piece entry                  # rest of the map entry, where more pieces may be; empty for a Feature of a list

cdef struct Column:
    int dtype
    int64_t size                     # values of each row (bytes of uint8); -1: any number
    const char* default              # of a row of numbers or bytes; NULL: none
    bint optional                    # absent is no error: it has a default, of whatever kind, or any number of values
    char* out                        # rows, or the values of all rows; rows of fixed size are only checked if it is NULL
    int64_t* offsets                 # [rows + 1] of any number of values
    int64_t* sizes                   # [rows + 1], likewise of the bytes of strings
    int64_t* value_offsets           # [values + 1] of strings: where each begins

# Find the last kind that is set in a Feature of which the value and entry are given. -1 and a fault: damaged.
cdef int settle_kind(Feature* feature, ffr_fault* fault) noexcept nogil

# First pass: rows of fixed size are made, but for strings; of others offsets[row + 1] is the number of values, and
# sizes[row + 1] of bytes. -1 and a fault: damaged, or not what the column asks for.
cdef int measure(const Column* column, const Feature* feature, int64_t row, ffr_fault* fault) noexcept nogil

# Second pass, once offsets and sizes are sums: rows of any size.
cdef int fill(const Column* column, const Feature* feature, int64_t row, ffr_fault* fault) noexcept nogil

# Values of a feature; of bytes also the sum of their sizes, if asked for. -1 and a fault: damaged.
cdef int64_t count_values(Feature feature, int64_t* size, ffr_fault* fault) noexcept nogil

# The values of a feature of bytes, added to a list.
cdef int append_strings(list strings, Feature feature, ffr_fault* fault) except? -1
