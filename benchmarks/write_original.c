/* What ffrecord 1.x does to write: zlib and a pwrite for each record. Called once for all of them. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <unistd.h>

unsigned long crc32(unsigned long, const unsigned char *, unsigned int); /* of zlib */

static int put(int fd, const char *data, size_t size, int64_t offset) {
    while (size) {
        ssize_t wrote = pwrite(fd, data, size, offset);
        if (wrote <= 0) {
            if (wrote < 0 && errno == EINTR) continue;
            return -1;
        }
        data += wrote, offset += wrote, size -= (size_t)wrote;
    }
    return 0;
}

/* records: a list of bytes. Fills in checksums and offsets, both of its length; 0, or -1 if a write failed. */
int original_write(PyObject *records, int fd, int64_t offset, uint32_t *checksums, int64_t *offsets) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(records); i++) {
        PyObject *record = PyList_GET_ITEM(records, i);
        const char *data = PyBytes_AS_STRING(record);
        const size_t size = (size_t)PyBytes_GET_SIZE(record);
        checksums[i] = (uint32_t)crc32(0, (const unsigned char *)data, (unsigned int)size);
        offsets[i] = offset;
        if (put(fd, data, size, offset)) return -1;
        offset += (int64_t)size;
    }
    return 0;
}
