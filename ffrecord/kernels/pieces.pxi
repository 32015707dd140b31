# Records as pieces of memory in the values of a sample; documented in _records.pyi.

from cpython.bool cimport PyBool_Check
from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AS_DOUBLE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from ffrecord.kernels._numpy cimport axes_of, dtype_of, import_array, is_array, is_contiguous, length_of, start_of

import_array()


cdef struct Part:
    const char* start
    int64_t size


cdef extern from *:
    """
    /* Return a new reference to a value; NULL if there is none, or if comparing keys failed, with an exception set. Without a GIL, another thread may change the dict at any time. */
    static PyObject *ffr_value_of(PyObject *dict, PyObject *key) {
        PyObject *value = NULL;
    #ifdef Py_GIL_DISABLED
        PyDict_GetItemRef(dict, key, &value);
    #else
        value = PyDict_GetItemWithError(dict, key);
        Py_XINCREF(value);
    #endif
        return value;
    }
    """
    PyObject* ffr_value_of(dict values, object key) except? NULL

cdef extern from "Python.h":
    bint PyUnicode_IS_COMPACT_ASCII(object text)
    void* PyUnicode_DATA(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)

cdef enum:
    SMALL = 512                # bytes of a value that is copied rather than pointed at
    AXES_MOST = 64             # numpy's limit

cdef enum Kind:
    OTHER
    INT
    FLOAT
    BOOL
    BYTES
    TEXT
    ARRAY

_KINDS = {"int": INT, "float": FLOAT, "bool": BOOL, "bytes": BYTES, "str": TEXT, "array": ARRAY}


cdef class Leaf:
    """Column. Documented in _records.pyi."""

    cdef Kind kind
    cdef object encode, dtype
    cdef int64_t fixed         # bytes of every value; -1 if they vary
    cdef int axes
    cdef int64_t shape[AXES_MOST]
    cdef char* to              # address for a small value, or for the size of a varying one
    cdef int part              # number of the part that points at the value; -1 if the value is copied

    def __init__(self, str kind, encode, fixed, dtype=None, shape=()):
        self.kind = _KINDS.get(kind, OTHER)
        self.encode, self.dtype, self.fixed = encode, dtype, -1 if fixed is None else fixed
        if len(shape) > AXES_MOST:
            raise ValueError(f"shape has {len(shape)} axes, expected at most {AXES_MOST}")
        self.axes = len(shape)
        for axis, length in enumerate(shape):
            self.shape[axis] = length

    cdef bint is_small(self):
        return 0 <= self.fixed <= SMALL


cdef class Branch:
    """Container: a dict, tuple or list. Documented in _records.pyi."""

    cdef object cls
    cdef tuple keys, children

    def __init__(self, cls, tuple keys, tuple children):
        self.cls, self.keys, self.children = cls, keys, children


cdef class Pieces:
    cdef readonly int64_t size  # bytes of the record; -1 without a sample
    cdef Part* parts           # parts of the record, in order
    cdef int count             # number of parts
    cdef object _encode, _explain, _root
    cdef list _leaves
    cdef char* _head           # small values, and the sizes of varying ones
    cdef list _row             # the values of the sample, then None
    cdef Py_ssize_t _filled    # number of values in `_row`
    cdef list _kept            # encoded values that parts point into

    def __cinit__(self, root, leaves, encode, explain):
        self._encode, self._explain, self._root, self._leaves = encode, explain, root, leaves
        self._row, self._filled, self._kept, self.size = [None] * len(leaves), 0, [], -1
        # Each column has at most one part of its own, and one part before it for small values.
        self.parts = <Part*> calloc(2 * len(leaves) + 2, sizeof(Part))
        self._head = <char*> calloc(sum([SMALL + sizeof(uint64_t) for _ in leaves]) + 1, 1)
        if self.parts == NULL or self._head == NULL:
            raise MemoryError("out of memory: the parts of a record")
        _lay_out(self, leaves)

    def __dealloc__(self):
        free(self.parts)
        free(self._head)

    def __call__(self, sample, /):
        return self.of(sample)

    cdef object of(self, sample):
        self.release()
        # Decide before any value is encoded: a user's field may return different bytes for the same value the second time.
        if not _flatten(self, self._root, sample):
            self.release()
            return self._encode(sample)
        try:
            if not _take_row(self):
                raise ValueError("a field encoded a value to bytes of another size or kind than it says")
        except (TypeError, ValueError, OSError):
            self._explain(self._row)
            raise
        return self

    cdef void release(self) noexcept:
        """Release the values of the last sample."""
        self.size = -1
        while self._filled:
            self._filled -= 1
            self._row[self._filled] = None
        if self._kept:
            self._kept.clear()


cdef int _lay_out(Pieces pieces, leaves) except -1:
    """Assign each column its place: fixed sizes first, then the sizes of the varying ones, then their values."""
    cdef Leaf leaf
    cdef char* end = pieces._head
    cdef Part* part = pieces.parts
    part.start = end
    for leaf in leaves:
        if leaf.is_small():
            leaf.part, leaf.to = -1, end
            end += leaf.fixed
            part.size += leaf.fixed
        elif leaf.fixed >= 0:
            leaf.part = <int> (part - pieces.parts) + 1
            part += 2
            part.start = end
    for leaf in leaves:
        if leaf.fixed < 0:
            leaf.to = end
            end += sizeof(uint64_t)
            part.size += sizeof(uint64_t)
    for leaf in leaves:
        if leaf.fixed < 0:
            part += 1
            leaf.part = <int> (part - pieces.parts)
    pieces.count = <int> (part - pieces.parts) + 1
    return 0


cdef bint _flatten(Pieces pieces, node, value) except -1:
    """Put the values of a part of a sample into the row; return False if it does not match the structure exactly."""
    cdef Branch branch
    if type(node) is Leaf:
        if pieces._filled == len(pieces._row):
            return False
        pieces._row[pieces._filled] = value
        pieces._filled += 1
        return True
    branch = <Branch> node
    if type(value) is not branch.cls or len(value) != len(branch.children):
        return False
    if branch.cls is dict:
        return _flatten_dict(pieces, branch, <dict> value)
    # Without a GIL, another thread may change a list; nobody can change the copy.
    return _flatten_tuple(pieces, branch, <tuple> value if branch.cls is tuple else tuple(value))


cdef bint _flatten_tuple(Pieces pieces, Branch branch, tuple value) except -1:
    cdef Py_ssize_t i
    if len(value) != len(branch.children):
        return False
    for i in range(len(value)):
        if not _flatten(pieces, branch.children[i], value[i]):
            return False
    return True


cdef bint _flatten_dict(Pieces pieces, Branch branch, dict value) except -1:
    cdef PyObject* found
    cdef Py_ssize_t i
    for i in range(len(branch.keys)):
        found = ffr_value_of(value, branch.keys[i])
        if found == NULL:
            return False
        child = <object> found
        Py_DECREF(child)  # `child` has a reference of its own
        if not _flatten(pieces, branch.children[i], child):
            return False
    return True


cdef bint _take_row(Pieces pieces) except -1:
    """Point at the bytes of all values; return False if one has a wrong size."""
    cdef Py_ssize_t i
    cdef int64_t size = 0
    for i in range(len(pieces._leaves)):
        if not _take_value(pieces, <Leaf> pieces._leaves[i], pieces._row[i]):
            return False
    for i in range(pieces.count):
        size += pieces.parts[i].size
    pieces.size = size
    return True


cdef bint _take_value(Pieces pieces, Leaf leaf, value) except -1:
    cdef int64_t number
    cdef double real
    cdef int overflow = 0
    if leaf.kind == INT and type(value) is int:
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow == 0:
            return _put(pieces, leaf, <const char*> &number, sizeof(number))
    if leaf.kind == FLOAT and type(value) is float:
        real = PyFloat_AS_DOUBLE(value)
        return _put(pieces, leaf, <const char*> &real, sizeof(real))
    if leaf.kind == BOOL and PyBool_Check(value):
        return _put(pieces, leaf, b"\1" if value is True else b"\0", 1)
    if leaf.kind == ARRAY and is_array(value) and _fits(leaf, value):
        return _put(pieces, leaf, start_of(value), leaf.fixed)
    if leaf.kind == TEXT and type(value) is str and PyUnicode_IS_COMPACT_ASCII(value):
        return _put(pieces, leaf, <const char*> PyUnicode_DATA(value), PyUnicode_GET_LENGTH(value))
    if leaf.kind == BYTES and type(value) is bytes:
        return _put_bytes(pieces, leaf, value)
    return _put_bytes(pieces, leaf, leaf.encode(value))


cdef bint _put_bytes(Pieces pieces, Leaf leaf, encoded) except -1:
    """Point at the bytes that a field, possibly a user's, has encoded."""
    cdef Py_buffer* view
    if type(encoded) is bytes:
        pieces._kept.append(encoded)
        return _put(pieces, leaf, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
    held = memoryview(encoded)
    view = PyMemoryView_GET_BUFFER(held)
    if view.itemsize != 1 or view.ndim != 1 or not PyBuffer_IsContiguous(view, b"C"):
        return False
    pieces._kept.append(held)
    return _put(pieces, leaf, <const char*> view.buf, view.len)


cdef bint _put(Pieces pieces, Leaf leaf, const char* start, int64_t size) noexcept:
    """Put a value into its place in the record; return False if it has a wrong size."""
    cdef uint64_t varying = size
    if leaf.fixed < 0:
        memcpy(leaf.to, &varying, sizeof(varying))
    elif size != leaf.fixed:
        return False
    if leaf.part >= 0:
        pieces.parts[leaf.part].start = start
        pieces.parts[leaf.part].size = size
    else:
        memcpy(leaf.to, start, size)
    return True


cdef bint _fits(Leaf leaf, array):
    """Tell whether the bytes of an array can be used as the column's bytes without conversion."""
    cdef int i
    if axes_of(array) != leaf.axes or not is_contiguous(array):
        return False
    for i in range(leaf.axes):
        if length_of(array, i) != leaf.shape[i]:
            return False
    dtype = dtype_of(array)
    return dtype is leaf.dtype or dtype == leaf.dtype
