"""What _example uses of _example_passes: a look at each row of a batch, by several threads."""

from libc.stdint cimport int64_t

from ffrecord._example_columns cimport Column, Feature
from ffrecord._example_entries cimport Guesses, Lookup
from ffrecord._threads cimport Task
from ffrecord._wire cimport ffr_fault, ffr_piece

# What a pass does with each row: 0, or -1, a fault and the column it is in.
ctypedef int (*row_function)(Pass* work, Part* part, int64_t row) noexcept nogil

cdef struct Pass:
    row_function run
    int64_t rows
    int64_t following              # first row not taken
    int64_t step                   # rows taken at once
    const unsigned char* data
    const int64_t* offsets         # of records
    const Lookup* lookup
    Column* columns
    int count
    int* places                    # of columns whose features are kept, in a row of the table; -1: not kept
    int kept                       # features in such a row
    Feature* table
    int64_t** starts               # of lists: [rows + 1], counts of steps, and then sums
    Feature** steps                # of lists: a table of Features each

cdef struct Part:
    Task task
    Pass* work
    Feature* found                 # of one record
    Guesses guesses
    ffr_fault fault
    int64_t row                    # the fault's
    int64_t step                   # likewise, in a list, or -1
    int column

# Do a pass with at most so many threads; the GIL is released. Raises Fault, of the first row that is bad. Column and starts
# are given of a pass over the steps of a list: which it is, and where each example's steps begin (an array).
cdef int run_pass(Pass* work, row_function run, int threads, int column=*, starts=*) except -1

# Of examples: features of each record found, and measured or kept. Of rows that were measured: filled.
cdef int parse_row(Pass* work, Part* part, int64_t row) noexcept nogil
cdef int fill_row(Pass* work, Part* part, int64_t row) noexcept nogil

# Of lists: steps of each record counted; then gathered, and what has a fixed size checked. Of steps: measured.
cdef int count_steps(Pass* work, Part* part, int64_t row) noexcept nogil
cdef int gather_steps(Pass* work, Part* part, int64_t row) noexcept nogil
cdef int measure_step(Pass* work, Part* part, int64_t row) noexcept nogil

# The next Feature of a FeatureList, its kind settled: 1; 0: there is none; -1 and a fault.
cdef int next_step(Feature* found, Feature* step, ffr_fault* fault) noexcept nogil
