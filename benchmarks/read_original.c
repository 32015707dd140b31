/* What ffrecord 1.x does on an ordinary file system: a pread and zlib for each record, in the order asked for. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#include <numpy/arrayobject.h>

#include "read_limit.c"

static ffr_crc_function zlib;

/* 0 if zlib is there. */
int start_original(void) {
    int kernels;
    const ffr_crc_kernel *usable = ffr_crc_kernels(&kernels);
    for (int i = 0; i < kernels; i++) {
        if (!strcmp(usable[i].name, "zlib")) zlib = usable[i].update;
    }
    import_array1(-1);
    return zlib ? 0 : -1;
}

/* Returns a list of numpy arrays, as its Python binding does; raises ValueError. */
PyObject *original_arrays(const records *of, const int64_t *indices, long count) {
    PyObject *list = PyList_New(count);
    for (long i = 0; list && i < count; i++) {
        const int64_t offset = of->offsets[indices[i]];
        npy_intp size = of->offsets[indices[i] + 1] - offset;
        PyObject *array = PyArray_SimpleNew(1, &size, NPY_UINT8);
        if (array) PyList_SET_ITEM(list, i, array);
        unsigned char *data = array ? PyArray_DATA((PyArrayObject *)array) : NULL;
        if (!data) {
            Py_CLEAR(list);
        } else if (fill(of->fd, data, (size_t)size, offset) || zlib(0, data, (size_t)size) != of->checksums[indices[i]]) {
            PyErr_SetString(PyExc_ValueError, "a record is not what its CRC-32 says");
            Py_CLEAR(list);
        }
    }
    return list;
}
