"""The wire format of protocol buffers, read in place. See wire.h."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "ffrecord/sources/tfrecord/wire.h" nogil:
    enum: FFR_VARINT, FFR_EIGHT, FFR_BYTES, FFR_FOUR
    enum: FFR_WIRE_CUT, FFR_WIRE_LONG, FFR_WIRE_TAG, FFR_WIRE_TYPE, FFR_WIRE_LENGTH, FFR_WIRE_RUN, FFR_WIRE_TEXT
    ctypedef struct ffr_fault:
        int code
        const unsigned char* at
        int64_t found
        int64_t expected
    ctypedef struct ffr_piece:
        const unsigned char* at
        const unsigned char* end
    ctypedef struct ffr_field:
        uint32_t number
        int type
        uint64_t value
        ffr_piece bytes

    int ffr_refuse(ffr_fault* fault, int code, const unsigned char* at, uint64_t found, uint64_t expected)
    int ffr_next_field(ffr_piece* message, ffr_field* field, ffr_fault* fault)
    int64_t ffr_count_varints(ffr_piece run)
    int64_t ffr_take_varints(ffr_piece run, int64_t* out, int64_t most, ffr_fault* fault)
    bint ffr_is_text(ffr_piece text)
    int64_t ffr_varint_size(uint64_t value)
    unsigned char* ffr_put_varint(unsigned char* out, uint64_t value)
