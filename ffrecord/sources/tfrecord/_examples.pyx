# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, autotestdict=False, auto_pickle=False
"""Batches of examples: the memory of their columns, and the order of the passes. Documented in _examples.pyi.

There are two passes. The first looks at each record once: it finds the features, makes the rows of fixed size, and
counts the values of others. Then their positions are known, and the second pass puts them there, from the places that
the first one kept. A list of features is rows, too: the steps of all examples, which two further passes find before.
"""

from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free

from ffrecord.sources.tfrecord._wire cimport FFR_WIRE_TEXT, ffr_fault, ffr_is_text, ffr_piece, ffr_refuse

import numpy as np

from ffrecord.kernels._memory import pooled
from ffrecord.errors import ArgumentError

include "_example_columns.pxi"
include "_example_entries.pxi"
include "_example_passes.pxi"
include "_example_writing.pxi"


INT64, FLOAT32, UINT8, STRING = _INT64, _FLOAT32, _UINT8, _STRING

cdef enum:
    SHARE = 64 << 10           # bytes of records that are worth another thread


cdef class Wanted:
    cdef readonly Keys keys
    cdef list _defaults        # bytes, or lists of bytes; alive while columns point to them
    cdef Column* _columns

    def __cinit__(self, features):
        cdef Column* column
        cdef int i
        self.keys = Keys([name for name, *_ in features])
        self._defaults = []
        self._columns = <Column*> calloc(max(self.keys.lookup.count, 1), sizeof(Column))
        if self._columns == NULL:
            raise MemoryError(f"out of memory: {self.keys.lookup.count} features")
        for i, (_, dtype, size, default) in enumerate(features):
            column = &self._columns[i]
            column.dtype, column.size = dtype, size
            column.optional = default is not None or column.size < 0
            if default is not None:
                if len(default) != column.size * _value_size(dtype):
                    raise ArgumentError(f"default has {len(default)} bytes, expected {column.size * _value_size(dtype)}")
                if dtype != _STRING:
                    default = bytes(default)
                    column.default = default
            self._defaults.append(default)

    def __dealloc__(self):
        free(self._columns)


cdef int64_t* _numbers(object array):
    cdef int64_t[::1] view = array
    return &view[0]


cdef char* _memory(object array):
    cdef unsigned char[::1] view = array
    return <char*> &view[0]


cdef class _Rows:
    """The memory of one column's rows while they are made; an object for each call."""
    cdef Column column
    cdef object offsets, sizes, values, value_offsets

    def __cinit__(self, Wanted wanted, int which, int64_t rows, out=None):
        self.column = wanted._columns[which]
        if self.column.size < 0:
            self.offsets = np.zeros(rows + 1, np.int64)
            self.column.offsets = _numbers(self.offsets)
            if self.column.dtype == _STRING:
                self.sizes = np.zeros(rows + 1, np.int64)
                self.column.sizes = _numbers(self.sizes)
        elif self.column.dtype != _STRING:
            self.values = pooled(rows * self._row_size()) if out is None else out
            if len(self.values) < self._row_size() * rows:
                raise ArgumentError(
                    f"out[{which}] has {len(self.values)} bytes, expected {self._row_size() * rows}: {rows} rows of {self._row_size()}"
                )
            self.column.out = _memory(self.values)

    cdef object _row_size(self):
        """Return the bytes of a row as a Python int: a product beyond 64 bits must not overflow.

        Allocating it then fails.
        """
        return _value_size(self.column.dtype) * int(self.column.size)

    cdef bint is_kept(self):
        """Tell whether the second pass needs the features."""
        return self.column.size < 0 or self.column.dtype == _STRING

    cdef int sum_up(self) except -1:
        """Compute the offsets of rows of any size from their counts, and allocate their values.

        Called after the first pass.
        """
        cdef int64_t total
        if self.column.size >= 0:
            return 0
        np.cumsum(self.offsets, out=self.offsets)
        total = self.offsets[len(self.offsets) - 1]
        if self.column.sizes == NULL:
            self.values = pooled(total * _value_size(self.column.dtype))
        else:
            np.cumsum(self.sizes, out=self.sizes)
            self.value_offsets = np.empty(total + 1, np.int64)
            self.value_offsets[total] = total = self.sizes[len(self.sizes) - 1]
            self.column.value_offsets = _numbers(self.value_offsets)
            self.values = pooled(total)
        self.column.out = _memory(self.values)
        return 0

    cdef object strings(self, const Feature* table, int64_t stride, int64_t rows, default):
        """Return rows with a fixed number of strings, from the kept features."""
        cdef list found = []
        cdef ffr_fault fault
        cdef int64_t row
        fault.code = 0
        for row in range(rows):
            if table[row * stride].kind == 0:
                found.extend(default)
            elif append_strings(found, table[row * stride], &fault) < 0 or len(found) != (row + 1) * self.column.size:
                raise Fault(CHANGED, row, -1, -1, 0, len(found) - row * self.column.size, self.column.size)
        return found

    cdef object result(self):
        if self.column.size >= 0:
            return self.values
        if self.column.sizes == NULL:
            return self.values, self.offsets
        return self.values, self.value_offsets, self.offsets


cdef class _Arena:
    """The C memory of one call."""
    cdef Pass work

    def __cinit__(self, Wanted wanted, const unsigned char[::1] data not None, const int64_t[::1] offsets not None):
        cdef Pass* work = &self.work
        cdef int64_t i
        work.rows = len(offsets) - 1
        work.data, work.offsets, work.lookup = &data[0], &offsets[0], &wanted.keys.lookup
        if work.rows < 0 or offsets[0] < 0 or offsets[work.rows] > len(data):
            raise ArgumentError(f"offsets has {len(offsets)} values, expected at least one, and all within 0 .. {len(data)}, the size of data")
        for i in range(work.rows):
            if offsets[i] > offsets[i + 1]:
                raise ArgumentError(f"record {i} begins at offset {offsets[i]}, but ends at offset {offsets[i + 1]}")
        work.count = work.lookup.count
        work.columns = <Column*> calloc(max(work.count, 1), sizeof(Column))
        work.places = <int*> calloc(max(work.count, 1), sizeof(int))
        work.starts = <int64_t**> calloc(max(work.count, 1), sizeof(void*))
        work.steps = <Feature**> calloc(max(work.count, 1), sizeof(void*))
        if work.columns == NULL or work.places == NULL or work.starts == NULL or work.steps == NULL:
            raise MemoryError(f"out of memory: {work.count} features")

    def __dealloc__(self):
        free(self.work.columns)
        free(self.work.places)
        free(self.work.starts)
        free(self.work.steps)
        free(self.work.table)

    cdef int keep(self, int kept) except -1:
        self.work.kept = kept
        self.work.table = <Feature*> calloc(max(self.work.rows * kept, 1), sizeof(Feature))
        if self.work.table == NULL:
            raise MemoryError(f"out of memory: {kept} features of each of {self.work.rows} examples")
        return 0

    cdef int threads(self, int most):
        cdef int64_t size = self.work.offsets[self.work.rows] - self.work.offsets[0]
        return <int> max(1, min(<int64_t> most, size // SHARE))


def parse(Wanted wanted not None, const unsigned char[::1] data not None, const int64_t[::1] offsets not None, out, int threads, /):
    cdef _Arena arena = _Arena(wanted, data, offsets)
    cdef Pass* work = &arena.work
    cdef _Rows rows
    cdef int c, kept = 0
    threads = arena.threads(threads)
    columns = []
    for c in range(work.count):
        rows = _Rows(wanted, c, work.rows, out[c])
        columns.append(rows)
        work.columns[c] = rows.column
        work.places[c] = -1
        if rows.is_kept():
            work.places[c] = kept
            kept += 1
    arena.keep(kept)
    run_pass(work, parse_row, threads)
    varying = False
    for c, rows in enumerate(columns):
        rows.sum_up()
        varying |= rows.column.size < 0
        work.columns[c] = rows.column
    if varying:
        run_pass(work, fill_row, threads)
    results = []
    for c, rows in enumerate(columns):
        if rows.column.size >= 0 and rows.column.dtype == _STRING:
            results.append(rows.strings(work.table + work.places[c], kept, work.rows, wanted._defaults[c]))
        else:
            results.append(None if rows.column.size >= 0 else rows.result())
    return results


cdef object _steps(Wanted wanted, _Arena lists, int c, starts, int threads):
    """Return the steps of one list as rows."""
    cdef int64_t count = starts[len(starts) - 1]
    cdef int place = 0
    cdef _Rows rows = _Rows(wanted, c, count)
    cdef Pass work = lists.work
    work.rows, work.columns, work.count, work.places, work.kept, work.table = count, &rows.column, 1, &place, 1, lists.work.steps[c]
    run_pass(&work, measure_step, threads, c, starts)
    if rows.column.size >= 0:
        if rows.column.dtype == _STRING:
            return rows.strings(work.table, 1, count, wanted._defaults[c])
        return rows.result()
    rows.sum_up()
    run_pass(&work, fill_row, threads, c, starts)
    return rows.result()


def parse_lists(Wanted wanted not None, const unsigned char[::1] data not None, const int64_t[::1] offsets not None, int threads, optional, /):
    cdef _Arena arena = _Arena(wanted, data, offsets)
    cdef Pass* work = &arena.work
    cdef int c
    threads = arena.threads(threads)
    arena.keep(work.count)
    starts = [np.zeros(work.rows + 1, np.int64) for _ in range(work.count)]
    for c in range(work.count):
        work.columns[c], work.starts[c] = wanted._columns[c], _numbers(starts[c])
        work.columns[c].optional = wanted.keys.names[c] in optional
    run_pass(work, count_steps, threads)
    results = []
    try:
        for c in range(work.count):
            work.columns[c].optional = wanted._columns[c].optional
            np.cumsum(starts[c], out=starts[c])
            work.steps[c] = <Feature*> calloc(max(<int64_t> starts[c][work.rows], 1), sizeof(Feature))
            if work.steps[c] == NULL:
                raise MemoryError(f"out of memory: {starts[c][work.rows]} steps of a feature")
        run_pass(work, gather_steps, threads)
        for c in range(work.count):
            results.append((_steps(wanted, arena, c, starts[c], threads), starts[c]))
    finally:
        for c in range(work.count):
            free(work.steps[c])
            work.steps[c] = NULL
    return results


cdef int _describe(ffr_piece record, int outer, dict found, ffr_fault* fault) except? -2:
    cdef ffr_piece group, key
    cdef Feature feature, step
    cdef int64_t count
    cdef int status
    group.at = group.end = NULL
    while True:
        status = next_entry(outer, &record, &group, &key, &feature, fault)
        if status <= 0:
            return status
        if not ffr_is_text(key):
            return ffr_refuse(fault, FFR_WIRE_TEXT, key.at, key.end - key.at, 0)
        counts = []
        if outer == FEATURES:
            if settle_kind(&feature, fault) < 0:
                return -1
            count = count_values(feature, NULL, fault)
            counts.append((feature.kind, count))
        else:
            while next_step(&feature, &step, fault) > 0:
                count = count_values(step, NULL, fault)
                counts.append((step.kind, count))
        if fault.code != 0:
            return -1
        found[(<const char*> key.at)[:key.end - key.at].decode()] = counts


def describe(const unsigned char[::1] record not None, int outer=1, /):
    cdef ffr_piece whole
    cdef ffr_fault fault
    found = {}
    fault.code = 0
    whole.at = whole.end = &record[0]
    whole.end += len(record)
    if _describe(whole, outer, found, &fault) < 0:
        raise Fault(fault.code, 0, -1, -1, fault.at - &record[0], fault.found, fault.expected)
    return found
