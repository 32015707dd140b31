"""What the batch engine uses of _choice."""

from libc.stdint cimport int64_t

from ffrecord._requests cimport Counters, Filesystem

cdef void begin(Filesystem* fs, bint network, bint memory) noexcept
cdef bint asks_for_memory(const Filesystem* fs) noexcept
cdef void weigh(Filesystem* fs, int64_t available, int64_t since) noexcept
cdef void learn(Filesystem* fs, const Counters* seen) noexcept
