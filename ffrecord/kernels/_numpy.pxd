"""The few names of numpy's C API that are used here. Cython needs as long for all of numpy's as for a small module.

A module that cimports from here calls `import_array` first.
"""

from cpython.ref cimport Py_INCREF, PyObject


cdef extern from *:
    """
    #include "numpy/arrayobject.h"
    #define ffr_set_base(array, base) PyArray_SetBaseObject((PyArrayObject *)(array), base)
    #define ffr_is_contiguous(array) PyArray_IS_C_CONTIGUOUS((PyArrayObject *)(array))
    #define ffr_is_writeable(array) PyArray_ISWRITEABLE((PyArrayObject *)(array))
    #define ffr_make_readonly(array) PyArray_CLEARFLAGS((PyArrayObject *)(array), NPY_ARRAY_WRITEABLE)
    #define ffr_type(array) PyArray_TYPE((PyArrayObject *)(array))
    #define ffr_dtype(array) ((PyObject *)PyArray_DESCR((PyArrayObject *)(array)))
    #define ffr_ndim(array) PyArray_NDIM((PyArrayObject *)(array))
    #define ffr_dim(array, axis) PyArray_DIM((PyArrayObject *)(array), axis)
    #define ffr_bytes(array) PyArray_BYTES((PyArrayObject *)(array))
    #define ffr_flags(array) PyArray_FLAGS((PyArrayObject *)(array))
    #define ffr_nbytes(array) PyArray_NBYTES((PyArrayObject *)(array))
    /* Only an array that nobody else holds, that no weak reference looks at, and that is as `array_at` made it. */
    static inline int ffr_move_array(PyObject *object, char *start, npy_intp length, PyObject *owner, int flags, void *dtype) {
    #ifdef Py_GIL_DISABLED
        (void)object, (void)start, (void)length, (void)owner, (void)flags, (void)dtype;
        return 0;
    #else
        PyArrayObject_fields *array = (PyArrayObject_fields *)object;
        if (Py_REFCNT(object) != 1 || array->weakreflist != NULL || array->base != owner || array->flags != flags
            || array->nd != 1 || array->strides[0] != 1 || (void *)array->descr != dtype) return 0;
        array->data = start;
        array->dimensions[0] = length;
        return 1;
    #endif
    }
    """
    ctypedef Py_ssize_t npy_intp
    enum: NPY_UINT8
    enum: NPY_OBJECT
    int import_array "_import_array"() except -1
    object PyArray_SimpleNewFromData(int axes, npy_intp* shape, int kind, void* start)
    object PyArray_SimpleNew(int axes, npy_intp* shape, int kind)
    bint is_array "PyArray_CheckExact"(object array)
    # All functions below require an object for which `is_array` is true.
    int ffr_set_base(object array, object base) except -1
    bint is_contiguous "ffr_is_contiguous"(object array)
    bint is_writeable "ffr_is_writeable"(object array)
    void make_readonly "ffr_make_readonly"(object array)
    int array_type "ffr_type"(object array)
    void* ffr_dtype(object array)
    int flags_of "ffr_flags"(object array)
    int axes_of "ffr_ndim"(object array)
    npy_intp length_of "ffr_dim"(object array, int axis)
    char* start_of "ffr_bytes"(object array)
    npy_intp size_of "ffr_nbytes"(object array)
    bint ffr_move_array(PyObject* array, char* start, npy_intp length, PyObject* owner, int flags, void* dtype) noexcept


cdef inline object array_at(char* start, int axes, npy_intp* shape, object owner):
    """Return an array of uint8 over memory that `owner` keeps."""
    array = PyArray_SimpleNewFromData(axes, shape, NPY_UINT8, start)
    Py_INCREF(owner)  # the array takes over this reference
    ffr_set_base(array, owner)
    return array


cdef inline object new_bytes(npy_intp size):
    """Return an uninitialised array of uint8 with its own memory."""
    return PyArray_SimpleNew(1, &size, NPY_UINT8)


cdef inline object dtype_of(object array):
    return <object> ffr_dtype(array)
