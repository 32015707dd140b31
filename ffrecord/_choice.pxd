"""What the batch engine uses of _choice."""

from ffrecord._requests cimport Counters, Filesystem

cdef void begin(Filesystem* fs, bint network, bint memory) noexcept
cdef bint asks_for_memory(const Filesystem* fs) noexcept
cdef void learn(Filesystem* fs, const Counters* seen) noexcept
