"""What parsers of examples use of _example_entries: the entries of a map from names to features, by name."""

from libc.stdint cimport int64_t, uint64_t

from ffrecord._example_columns cimport Feature
from ffrecord._wire cimport ffr_fault, ffr_piece

cdef enum:
    FEATURES = 1               # the field of Example that is asked for; also the context of SequenceExample
    FEATURE_LISTS = 2          # of SequenceExample

cdef enum:
    GUESSES = 64

cdef struct Name:
    const char* start
    int64_t size

# Which name stood where in the last record: most files have the same ones in the same order.
cdef struct Guesses:
    int[GUESSES] names

# What is looked for. Borrowed from Keys, so that no object is touched without the GIL.
cdef struct Lookup:
    Name* names
    int* slots                 # index + 1 of a name, by its hash; 0: none
    uint64_t mask
    int count

cdef class Keys:
    cdef readonly tuple names
    cdef Lookup lookup

# For each name, where its entry's value is, in `found` [count]; kind and value are 0 and NULL where there is none. Kinds
# are settled for FEATURES only. -1 and a fault: damaged.
cdef int locate(const Lookup* lookup, int outer, ffr_piece message, Feature* found, Guesses* guesses, ffr_fault* fault) noexcept nogil

# Nothing is known of other records yet.
cdef void forget(Guesses* guesses) noexcept nogil

# The next map entry of field `outer` of a message: 1, and its key and where its value is, of a kind not settled; 0: there
# is none; -1 and a fault. `group`: rest of the map, empty to begin with.
cdef int next_entry(int outer, ffr_piece* message, ffr_piece* group, ffr_piece* key, Feature* found, ffr_fault* fault) noexcept nogil
