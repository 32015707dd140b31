# Passes over the rows of a batch of examples: the functions for a row, and the threads that run them.
#
# Threads take rows in turn. After a bad row no further ones are begun, but all rows that were begun are finished. So
# the first bad row is the same for any number of threads.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc

from ffrecord.system._linux cimport ffr_fetch_add
from ffrecord.kernels._threads cimport THREADS_MOST, Task, submit, withdraw
from ffrecord.sources.tfrecord._wire cimport FFR_BYTES, ffr_fault, ffr_field, ffr_next_field, ffr_piece, ffr_refuse

import numpy as np


# The function of a pass for each row. It returns 0, or -1 with a fault and its column.
ctypedef int (*row_function)(Pass* work, Part* part, int64_t row) noexcept nogil

cdef struct Pass:
    row_function run
    int64_t rows
    int64_t following              # first row that no thread has taken
    int64_t step                   # rows that a thread takes at once
    const unsigned char* data
    const int64_t* offsets         # offsets of records
    const Lookup* lookup
    Column* columns
    int count
    int* places                    # place of each column's feature in a row of the table; -1: not kept
    int kept                       # features in a row of the table
    Feature* table
    int64_t** starts               # for each list [rows + 1]: counts of steps, and then sums
    Feature** steps                # for each list a table of Features

cdef struct Part:
    Task task
    Pass* work
    Feature* found                 # features of one record
    Guesses guesses
    ffr_fault fault
    int64_t row                    # row of the fault
    int64_t step                   # step of the fault in a list, or -1
    int column

cdef enum:
    CHUNKS = 4                 # chunks of rows for each thread, so that all end at about the same time
    STEP = 1                   # field of FeatureList


class Fault(Exception):

    def __init__(self, code, row, step, column, offset, found, expected):
        super().__init__(code, row, step, column, offset, found, expected)
        self.code, self.row, self.step, self.column = code, row, step, column
        self.offset, self.found, self.expected = offset, found, expected


cdef inline ffr_piece _record(const Pass* work, int64_t row) noexcept nogil:
    cdef ffr_piece record
    record.at, record.end = work.data + work.offsets[row], work.data + work.offsets[row + 1]
    return record


# Functions for examples. `parse_row` finds the features of a record, and measures or keeps them; `fill_row` fills the
# rows.
cdef int parse_row(Pass* work, Part* part, int64_t row) noexcept nogil:
    """First pass over features."""
    cdef int c
    if locate(work.lookup, FEATURES, _record(work, row), part.found, &part.guesses, &part.fault) < 0:
        return -1
    for c in range(work.count):
        if measure(&work.columns[c], &part.found[c], row, &part.fault) < 0:
            part.column = c
            return -1
        if work.places[c] >= 0:
            work.table[row * work.kept + work.places[c]] = part.found[c]
    return 0


cdef int measure_step(Pass* work, Part* part, int64_t row) noexcept nogil:
    """First pass over the steps of a list, whose features are in the table."""
    return measure(work.columns, &work.table[row], row, &part.fault)


cdef int fill_row(Pass* work, Part* part, int64_t row) noexcept nogil:
    """Second pass over features and steps."""
    cdef int c
    for c in range(work.count):
        if work.columns[c].size < 0:
            if fill(&work.columns[c], &work.table[row * work.kept + work.places[c]], row, &part.fault) < 0:
                part.column = c
                return -1
    return 0


cdef int next_step(Feature* found, Feature* step, ffr_fault* fault) noexcept nogil:
    """Go to the next Feature of a FeatureList and settle its kind: 1; 0 if there is none; -1 and a fault."""
    cdef ffr_field field
    cdef int status
    while True:
        status = ffr_next_field(&found.value, &field, fault)
        if status < 0:
            return -1
        if status > 0 and field.number == STEP and field.type == FFR_BYTES:
            step.value = field.bytes
            step.entry.at = step.entry.end = field.bytes.end
            return 1 if settle_kind(step, fault) == 0 else -1
        if status == 0:
            status = ffr_next_field(&found.entry, &field, fault)
            if status <= 0:
                return status
            if field.number == VALUE and field.type == FFR_BYTES:    # another piece of the value
                found.value = field.bytes


# Functions for lists. `count_steps` counts the steps of each record; `gather_steps` collects them, and checks fixed
# sizes.
cdef int count_steps(Pass* work, Part* part, int64_t row) noexcept nogil:
    """First pass over lists."""
    cdef Feature step
    cdef int c
    if locate(work.lookup, FEATURE_LISTS, _record(work, row), part.found, &part.guesses, &part.fault) < 0:
        return -1
    for c in range(work.count):
        part.column = c
        work.table[row * work.count + c] = part.found[c]
        if part.found[c].value.at == NULL and not work.columns[c].optional:
            return ffr_refuse(&part.fault, ABSENT, NULL, 0, 0)
        while part.found[c].value.at != NULL and next_step(&part.found[c], &step, &part.fault) > 0:
            work.starts[c][row + 1] += 1
        if part.fault.code != 0:
            return -1
    part.column = -1
    return 0


cdef int gather_steps(Pass* work, Part* part, int64_t row) noexcept nogil:
    """Second pass over lists: put the steps into the table of each list."""
    cdef Feature step, found
    cdef int64_t at, end
    cdef int c
    for c in range(work.count):
        part.column = c
        found = work.table[row * work.count + c]
        at, end = work.starts[c][row], work.starts[c][row + 1]
        while found.value.at != NULL and at < end and next_step(&found, &step, &part.fault) > 0:
            # Check fixed sizes before the memory of rows is allocated: many steps of a few bytes must not make it
            # large.
            if work.columns[c].size >= 0 and measure(&work.columns[c], &step, 0, &part.fault) < 0:
                part.step = at - work.starts[c][row]
                return -1
            work.steps[c][at] = step
            at += 1
        if part.fault.code == 0 and at < end:
            return ffr_refuse(&part.fault, CHANGED, found.value.at, at - work.starts[c][row], end - work.starts[c][row])
        if part.fault.code != 0:
            return -1
    part.column = -1
    return 0


cdef void _take_rows(void* argument) noexcept nogil:
    """The work of one thread: take rows in turn, until none is left or one is bad."""
    cdef Part* part = <Part*> argument
    cdef Pass* work = part.work
    cdef int64_t row = 0, end = 0
    while part.fault.code == 0:
        row = ffr_fetch_add(&work.following, work.step)
        if row >= work.rows:
            break
        end = min(row + work.step, work.rows)
        while row < end:
            if work.run(work, part, row) < 0:
                part.row = row
                # No thread begins further rows. All rows before this one have been begun, and will be finished.
                ffr_fetch_add(&work.following, work.rows)
                break
            row += 1


cdef int _share(Pass* work, int threads, Part* parts, Feature* found) noexcept nogil:
    """Run a pass; return the part with the first bad row, or -1."""
    cdef int t, first = -1
    for t in range(threads):
        parts[t].work, parts[t].column, parts[t].step, parts[t].found = work, -1, -1, found + t * work.count
        forget(&parts[t].guesses)
        parts[t].task.run, parts[t].task.argument = _take_rows, &parts[t]
        if t > 0:
            submit(&parts[t].task, THREADS_MOST)
    _take_rows(&parts[0])
    for t in range(threads):
        if t > 0:
            withdraw(&parts[t].task)
        if parts[t].fault.code != 0 and (first < 0 or parts[t].row < parts[first].row):
            first = t
    return first


cdef int run_pass(Pass* work, row_function run, int threads, int column=-1, starts=None) except -1:
    """Run a pass with at most so many threads; the GIL is released. Raises Fault for the first bad row.

    Args:
        column, starts: for a pass over the steps of a list: its column, and the array of the starts of each example's
            steps.
    """
    cdef int first
    cdef int64_t row, step
    cdef Part* parts
    cdef Feature* found
    threads = max(1, min(threads, <int> THREADS_MOST))
    parts = <Part*> calloc(threads, sizeof(Part))
    found = <Feature*> malloc(max(threads * work.count, 1) * sizeof(Feature))
    try:
        if parts == NULL or found == NULL:
            raise MemoryError(f"out of memory: {work.count} features for each of {threads} threads")
        work.run, work.following = run, 0
        work.step = max(1, (work.rows + threads * CHUNKS - 1) // (threads * CHUNKS))
        with nogil:
            first = _share(work, threads, parts, found)
        if first < 0:
            return 0
        row, step = parts[first].row, parts[first].step
        if starts is not None:
            step, row = row, int(np.searchsorted(starts, row, "right")) - 1
            step -= starts[row]
        offset = 0
        if parts[first].fault.at != NULL:
            offset = parts[first].fault.at - (work.data + work.offsets[row])
        raise Fault(
            parts[first].fault.code, row, step, parts[first].column if starts is None else column, offset,
            parts[first].fault.found, parts[first].fault.expected,
        )
    finally:
        free(parts)
        free(found)
