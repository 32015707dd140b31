# Iterators over arrays, made so that a loop over small records costs little and threads may share it.

from cpython.ref cimport Py_DECREF, PyObject
from cython cimport critical_section
from libc.stdint cimport int64_t
from libc.stdlib cimport free, malloc

from ffrecord.kernels._numpy cimport ffr_dtype, ffr_move_array, flags_of


cdef extern from *:
    """
    static int ffr_raise_error_set(void) { return -1; }
    """
    int ffr_raise_error_set() except -1
    PyObject* PyIter_Next(object iterator)    # NULL without an error at the end
    PyObject* PyErr_Occurred()

cdef enum:
    MADE_MOST = 8              # after so many new arrays one after another, the rest of the batch gets new ones too


cdef class ArraysInTurn:

    def __cinit__(self, int64_t k):
        self.most = max(k, 1)
        self.pieces = <MemoryPiece*> malloc(self.most * sizeof(MemoryPiece))
        if self.pieces == NULL:
            raise MemoryError(f"out of memory: {k} arrays")
        self.owners = []

    def __dealloc__(self):
        free(self.pieces)

    cdef int add(self, object owner, char* start, int64_t size) except -1:
        if self.k == 0 or owner is not self.owners[len(self.owners) - 1]:
            self.owners.append(owner)
        self.pieces[self.k] = MemoryPiece(start, size, len(self.owners) - 1)
        self.k += 1
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef MemoryPiece* piece = &self.pieces[self.place]
        cdef bint odd = self.place & 1
        cdef PyObject* again
        # Drop no array here: its end may run any code, also of this iterator, and even end it.
        if self.place == self.k:
            raise StopIteration
        if piece.owner != self.owner_number or self.owner is None:
            self.owner_number = piece.owner
            self.owner, self.owners[piece.owner] = self.owners[piece.owner], None
        if self.made >= MADE_MOST:
            array = array_over(self.owner, piece.start, piece.size)
            self.place += 1
            return array
        again = <PyObject*> (self.odd if odd else self.even)
        if again != <PyObject*> None and ffr_move_array(
            again, piece.start, piece.size, <PyObject*> self.owner, self.flags, self.dtype
        ):
            self.place += 1
            self.made = 0
            return <object> again
        array = array_over(self.owner, piece.start, piece.size)
        self.place += 1
        self.made += 1
        self.flags, self.dtype = flags_of(array), ffr_dtype(array)
        # Arrays before die at the end: a callback of a weak reference to them may ask for the next array.
        if self.made == MADE_MOST:
            before, self.odd, self.even = (self.odd, self.even), None, None
        elif odd:
            before, self.odd = self.odd, array
        else:
            before, self.even = self.even, array
        return array


cdef class SharedChain:

    cdef object iterables
    cdef object active    # iterator over the iterable in use, or None
    cdef object turn

    def __init__(self, iterables, turn):
        self.iterables, self.turn = iter(iterables), turn

    def __iter__(self):
        return self

    def __next__(self):
        with critical_section(self):  # without a GIL, threads may not share the iterator over one iterable
            return self._next()

    cdef object _next(self):
        cdef PyObject* item
        while True:
            active = self.active
            if active is not None:
                item = PyIter_Next(active)
                if item != NULL:
                    taken = <object> item
                    Py_DECREF(taken)  # the reference that PyIter_Next gave away
                    return taken
                if PyErr_Occurred() != NULL:
                    self._fail()
            self.turn.take(self._advance, active)

    cdef int _fail(self) except -1:
        """Raise the error of an iterable, which is set. Its rest is lost, so nothing comes after it."""
        try:
            ffr_raise_error_set()
        except BaseException:
            self._end()
            raise
        return 0

    def _advance(self, active):
        """Go on with the next iterable, unless another thread did so since `active` was seen to be at its end."""
        if self.active is active:
            try:
                self.active = iter(next(self.iterables))
            except BaseException:
                self._end()
                raise

    cdef int _end(self) except -1:
        self.iterables, self.active = iter(()), None
        return 0
