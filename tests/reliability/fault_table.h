/* What fault_table.c and _faults.pyx have in common. */
#ifndef FFRECORD_FAULT_TABLE_H
#define FFRECORD_FAULT_TABLE_H

#define FFR_FAULTS_THEMSELVES
#include "ffrecord/system/calls.h"

enum { FFR_FAULTS_MOST = 256 };

typedef struct {
    uint64_t sites; /* bits; set last */
    int action, for_good;
    int64_t value, call;
    int64_t only; /* process id; negative: any other; 0: any */
    int64_t calls, fired;
} ffr_set_fault;

typedef struct {
    int used;
    int64_t calls[FFR_SITE_COUNT];
    ffr_set_fault faults[FFR_FAULTS_MOST];
} ffr_faults_shared;

#define FFR_BIT(name) (1ull << AT_##name)
/* Calls that change files. */
#define FFR_CHANGES                                                                                                        \
    (FFR_BIT(pwrite) | FFR_BIT(write) | FFR_BIT(fallocate) | FFR_BIT(posix_fallocate) | FFR_BIT(ftruncate) | FFR_BIT(fsync) | \
     FFR_BIT(rename) | FFR_BIT(link) | FFR_BIT(unlink) | FFR_BIT(mkdir) | FFR_BIT(rmdir) | FFR_BIT(open) | FFR_BIT(chmod) |   \
     FFR_BIT(fchmod) | FFR_BIT(copy_file_range) | FFR_BIT(replace) | FFR_BIT(pwritev))

extern const char *const ffr_site_names[];
int ffr_share_faults(void);
ffr_faults_shared *ffr_shared_faults(void);
int ffr_show_table(void);
ffr_fault ffr_before_call(int site);
void ffr_after_call(ffr_fault fault);

#endif
