#include "_crc_kernels.h"

#include <string.h>

#define POLYNOMIAL 0xEDB88320u

static uint32_t slices[8][256];

static void init_slices(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ (POLYNOMIAL & (0u - (crc & 1)));
        }
        slices[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = slices[slice - 1][byte];
            slices[slice][byte] = (crc >> 8) ^ slices[0][crc & 255];
        }
    }
}

static uint32_t update_portable(uint32_t value, const void *data, size_t size) {
    const unsigned char *p = data;
    uint32_t crc = ~value;
    for (; size >= 8; size -= 8, p += 8) {
        uint32_t low = crc ^ (p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
        crc = slices[7][low & 255] ^ slices[6][(low >> 8) & 255] ^ slices[5][(low >> 16) & 255] ^ slices[4][low >> 24] ^
              slices[3][p[4]] ^ slices[2][p[5]] ^ slices[1][p[6]] ^ slices[0][p[7]];
    }
    while (size--) {
        crc = (crc >> 8) ^ slices[0][(crc ^ *p++) & 255];
    }
    return ~crc;
}

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int bit = 0; bit < 32; bit++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = (b >> 1) ^ (POLYNOMIAL & (0u - (b & 1)));
    }
    return product;
}

static uint32_t power_of_x(uint64_t bytes) {
    uint32_t square = 0x00800000u, power = 0x80000000u;
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) {
            power = multiply(power, square);
        }
        square = multiply(square, square);
    }
    return power;
}

uint32_t ffr_crc_combine(uint32_t crc1, uint32_t crc2, uint64_t size2) {
    return multiply(power_of_x(size2), crc1) ^ crc2;
}

static ffr_crc_kernel usable[8];
static int usable_count;

void ffr_crc_init(void) {
    if (usable_count) {
        return;
    }
    init_slices();
    usable[usable_count++] = (ffr_crc_kernel){"portable", update_portable};
}

const ffr_crc_kernel *ffr_crc_kernels(int *count) {
    *count = usable_count;
    return usable;
}

uint32_t ffr_crc_update(uint32_t value, const void *data, size_t size) { return usable[0].update(value, data, size); }
