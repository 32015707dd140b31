# Lookup of features by name in an example.
#
#     Example           1 features: Features
#     Features          1 repeated entry of a map: 1 key (UTF-8), 2 value: Feature
#     SequenceExample   1 context: Features; 2 feature_lists: FeatureLists
#     FeatureLists      1 repeated entry of a map: 1 key, 2 value: FeatureList
#
# Keys come in any order; if a key repeats, the last entry counts. Other features are skipped, but their keys must be
# UTF-8.

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

from ffrecord.sources.tfrecord._wire cimport (
    FFR_BYTES,
    FFR_WIRE_TEXT,
    ffr_fault,
    ffr_field,
    ffr_is_text,
    ffr_next_field,
    ffr_piece,
    ffr_refuse,
)

from ffrecord.errors import ArgumentError


cdef enum:
    FEATURES = 1               # field of Example; also the context of SequenceExample
    FEATURE_LISTS = 2          # field of SequenceExample

cdef enum:
    GUESSES = 64

cdef struct Name:
    const char* start
    int64_t size

# The name at each place of the last record: most files have the same names in the same order.
cdef struct Guesses:
    int[GUESSES] names

# The requested names. The memory is that of Keys, so that no Python object is touched without the GIL.
cdef struct Lookup:
    Name* names
    int* slots                 # index + 1 of a name, at the place of its hash; 0: none
    uint64_t mask
    int count

cdef enum:
    ENTRY = 1                  # field of Features and FeatureLists
    KEY = 1


cdef inline int _next_part(ffr_piece* message, unsigned int number, ffr_field* field, ffr_fault* fault) noexcept nogil:
    """Go to the next field with this number that has bytes: 1; 0 at the end; -1 after a fault."""
    cdef int status
    while True:
        status = ffr_next_field(message, field, fault)
        if status <= 0 or (field.number == number and field.type == FFR_BYTES):
            return status


cdef int _open_entry(ffr_piece entry, ffr_piece* key, Feature* found, ffr_fault* fault) noexcept nogil:
    """Set the key, the last if there are several, and the first piece of the value. Return 0, or -1 after a fault."""
    cdef ffr_field field
    cdef int status
    key.at = key.end = entry.at        # a missing key is the empty one
    found.kind = 0
    found.value.at = NULL
    while True:
        status = ffr_next_field(&entry, &field, fault)
        if status <= 0:
            break
        if field.type != FFR_BYTES:
            continue
        if field.number == KEY:
            key[0] = field.bytes
        elif field.number == VALUE and found.value.at == NULL:
            found.value, found.entry = field.bytes, entry
    if found.value.at == NULL:         # a missing value is an empty one
        found.value.at = found.value.end = entry.end
        found.entry = entry
    return status


# Go to the next map entry of field `outer` of a message: 1, with its key and its value, whose kind is not settled; 0 if
# there is none; -1 and a fault. `group`: rest of the map, empty at the beginning.
cdef int next_entry(int outer, ffr_piece* message, ffr_piece* group, ffr_piece* key, Feature* found, ffr_fault* fault) noexcept nogil:
    cdef ffr_field field
    cdef int status
    while True:
        status = _next_part(group, ENTRY, &field, fault)
        if status < 0:
            return -1
        if status > 0:
            return 1 if _open_entry(field.bytes, key, found, fault) == 0 else -1
        status = _next_part(message, outer, &field, fault)
        if status <= 0:
            return status
        group[0] = field.bytes


cdef inline uint64_t _hash(const unsigned char* start, int64_t size) noexcept nogil:
    """Hash a name by FNV-1a (Fowler, Noll, Vo). The user chooses the names, so no attacker can make them collide."""
    cdef uint64_t value = <uint64_t> 0xcbf29ce484222325
    cdef int64_t i
    for i in range(size):
        value = (value ^ start[i]) * <uint64_t> 0x100000001b3
    return value ^ (value >> 32)


cdef class Keys:
    cdef readonly tuple names
    cdef Lookup lookup

    def __cinit__(self, names):
        cdef Lookup* lookup = &self.lookup
        cdef uint64_t slots = 4, slot
        cdef int i
        self.names = tuple([bytes(name) for name in names])
        lookup.count = len(self.names)
        while slots < 2 * <uint64_t> lookup.count:
            slots *= 2
        lookup.mask = slots - 1
        lookup.names = <Name*> calloc(max(lookup.count, 1), sizeof(Name))
        lookup.slots = <int*> calloc(slots, sizeof(int))
        if lookup.names == NULL or lookup.slots == NULL:
            raise MemoryError(f"out of memory: {lookup.count} names of features")
        for i in range(lookup.count):
            lookup.names[i].start, lookup.names[i].size = self.names[i], len(self.names[i])
            slot = _hash(<const unsigned char*> lookup.names[i].start, lookup.names[i].size) & lookup.mask
            while lookup.slots[slot] != 0:
                if self.names[lookup.slots[slot] - 1] == self.names[i]:
                    raise ArgumentError(f"feature {self.names[i]!r} occurs twice, expected each name once")
                slot = (slot + 1) & lookup.mask
            lookup.slots[slot] = i + 1

    def __dealloc__(self):
        free(self.lookup.names)
        free(self.lookup.slots)

    def __len__(self):
        return self.lookup.count


cdef inline bint _is(const Name* name, ffr_piece key) noexcept nogil:
    return name.size == key.end - key.at and memcmp(name.start, key.at, name.size) == 0


cdef int _find(const Lookup* lookup, ffr_piece key) noexcept nogil:
    """Return the index of a name, or -1."""
    cdef uint64_t slot = _hash(key.at, key.end - key.at) & lookup.mask
    while lookup.slots[slot] != 0:
        if _is(&lookup.names[lookup.slots[slot] - 1], key):
            return lookup.slots[slot] - 1
        slot = (slot + 1) & lookup.mask
    return -1


# Begin without guesses.
cdef void forget(Guesses* guesses) noexcept nogil:
    cdef int i
    for i in range(GUESSES):
        guesses.names[i] = -1


# Find the value of each name's entry, in `found` [count]; kind and value are 0 and NULL if there is none. Kinds are
# settled for FEATURES only. Return -1 and a fault if the record is damaged.
cdef int locate(const Lookup* lookup, int outer, ffr_piece message, Feature* found, Guesses* guesses, ffr_fault* fault) noexcept nogil:
    cdef ffr_piece group, key
    cdef Feature feature
    cdef int status, name, i, entry = 0
    memset(found, 0, lookup.count * sizeof(Feature))
    group.at = group.end = NULL
    while True:
        status = next_entry(outer, &message, &group, &key, &feature, fault)
        if status <= 0:
            break
        name = guesses.names[entry & (GUESSES - 1)]
        if name < 0 or not _is(&lookup.names[name], key):
            name = _find(lookup, key)
            guesses.names[entry & (GUESSES - 1)] = name
        entry += 1
        if name >= 0:
            found[name] = feature
        elif not ffr_is_text(key):
            return ffr_refuse(fault, FFR_WIRE_TEXT, key.at, key.end - key.at, 0)
    if status < 0 or outer != FEATURES:
        return status
    for i in range(lookup.count):
        if found[i].value.at != NULL and settle_kind(&found[i], fault) < 0:
            return -1
    return 0
