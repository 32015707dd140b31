# Passes over the rows of a batch of examples: what happens to each row, and which thread does it.
#
# Threads take rows in turn. Once a row is bad nobody begins further ones, but all that were begun are done, so that the first
# bad row is the same however many threads there are.

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, malloc

from ffrecord.system._linux cimport ffr_fetch_add
from ffrecord.kernels._threads cimport THREADS_MOST, Task, submit, withdraw
from ffrecord.sources.tfrecord._wire cimport FFR_BYTES, ffr_fault, ffr_field, ffr_next_field, ffr_piece, ffr_refuse

import numpy as np


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

cdef enum:
    CHUNKS = 4                 # for each thread, so that all end at about the same time
    STEP = 1                   # the field of FeatureList


class Fault(Exception):

    def __init__(self, code, row, step, column, offset, found, expected):
        super().__init__(code, row, step, column, offset, found, expected)
        self.code, self.row, self.step, self.column = code, row, step, column
        self.offset, self.found, self.expected = offset, found, expected


cdef inline ffr_piece _record(const Pass* work, int64_t row) noexcept nogil:
    cdef ffr_piece record
    record.at, record.end = work.data + work.offsets[row], work.data + work.offsets[row + 1]
    return record


# Of examples: features of each record found, and measured or kept. Of rows that were measured: filled.
cdef int parse_row(Pass* work, Part* part, int64_t row) noexcept nogil:
    """First pass of features."""
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
    """First pass of the steps of a list, whose features are in the table."""
    return measure(work.columns, &work.table[row], row, &part.fault)


cdef int fill_row(Pass* work, Part* part, int64_t row) noexcept nogil:
    """Second pass of both."""
    cdef int c
    for c in range(work.count):
        if work.columns[c].size < 0:
            if fill(&work.columns[c], &work.table[row * work.kept + work.places[c]], row, &part.fault) < 0:
                part.column = c
                return -1
    return 0


# The next Feature of a FeatureList, its kind settled: 1; 0: there is none; -1 and a fault.
cdef int next_step(Feature* found, Feature* step, ffr_fault* fault) noexcept nogil:
    """The next Feature of a FeatureList, its kind settled: 1; 0: there is none; -1."""
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
            if field.number == VALUE and field.type == FFR_BYTES:    # a further piece of the value
                found.value = field.bytes


# Of lists: steps of each record counted; then gathered, and what has a fixed size checked. Of steps: measured.
cdef int count_steps(Pass* work, Part* part, int64_t row) noexcept nogil:
    """First pass of lists."""
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
    """Second pass of lists: the steps into the table of each."""
    cdef Feature step, found
    cdef int64_t at, end
    cdef int c
    for c in range(work.count):
        part.column = c
        found = work.table[row * work.count + c]
        at, end = work.starts[c][row], work.starts[c][row + 1]
        while found.value.at != NULL and at < end and next_step(&found, &step, &part.fault) > 0:
            # Before the memory of rows is taken, which a step of a few bytes must not decide about.
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
    """The work of one thread: rows in turn, until none is left or one is bad."""
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
                # Nobody begins anything further; what lies before this row has been begun, and will be done.
                ffr_fetch_add(&work.following, work.rows)
                break
            row += 1


cdef int _share(Pass* work, int threads, Part* parts, Feature* found) noexcept nogil:
    """Do a pass; which of the parts has the first bad row, or -1."""
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


# Do a pass with at most so many threads; the GIL is released. Raises Fault, of the first row that is bad. Column and starts
# are given of a pass over the steps of a list: which it is, and where each example's steps begin (an array).
cdef int run_pass(Pass* work, row_function run, int threads, int column=-1, starts=None) except -1:
    """Do a pass with at most so many threads; the GIL is released.

    Args:
        column, starts: of a pass over the steps of a list: which it is, and where each example's steps begin.
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
            raise MemoryError(f"{work.count} features for each of {threads} threads")
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
