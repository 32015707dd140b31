/* A checksum by the CPU's CRC instruction. Include it after defining

   NAME(x)            x, made unique to the checksum
   TARGET             attribute of the function: the CPU features used
   ALGEBRA            the crc_algebra of the checksum
   BYTE(crc, byte)    the remainder `crc` with one byte after it
   WORD(crc, word)    the remainder `crc` with the eight bytes of a little-endian word after it

   Three streams hide the latency of the instruction (2 or 3 cycles, one starts per cycle): V. Gopal et al., "Fast CRC
   Computation for iSCSI Polynomial Using CRC32 Instruction", Intel, 2011. */

TARGET static inline uint32_t NAME(word)(uint32_t crc, const unsigned char *p) {
    uint64_t word;
    memcpy(&word, p, 8);
    return WORD(crc, word);
}

TARGET static uint32_t NAME(update)(uint32_t value, const void *data, size_t size) {
    const unsigned char *p = data;
    uint32_t crc = ~value;
    for (; size >= 3 * STREAM; size -= 3 * STREAM, p += 2 * STREAM) {
        uint32_t second = 0, third = 0;
        for (const unsigned char *end = p + STREAM; p < end; p += 8) {
            crc = NAME(word)(crc, p);
            second = NAME(word)(second, p + STREAM);
            third = NAME(word)(third, p + 2 * STREAM);
        }
        crc = past_stream(&ALGEBRA, past_stream(&ALGEBRA, crc) ^ second) ^ third;
    }
    for (; size >= 8; size -= 8, p += 8) {
        crc = NAME(word)(crc, p);
    }
    for (; size; size--, p++) {
        crc = BYTE(crc, *p);
    }
    return ~crc;
}

#undef TARGET
#undef NAME
#undef ALGEBRA
#undef BYTE
#undef WORD
