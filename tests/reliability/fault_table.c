/* Which calls fail, in memory that forked processes share. */
#include "fault_table.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define FFR_NAME(name) #name,
const char *const ffr_site_names[] = {FFR_SITES(FFR_NAME) NULL};

static ffr_faults_shared *shared;

int ffr_share_faults(void) {
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return -1;
    shared = memory;
    return 0;
}
ffr_faults_shared *ffr_shared_faults(void) { return shared; }

/* The table's name is looked up in what all libraries see. */
int ffr_show_table(void) {
    Dl_info about;
    return dladdr((void *)ffr_show_table, &about) && dlopen(about.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL) ? 0 : -1;
}

static int concerns(const ffr_set_fault *fault, int site) {
    pid_t own = getpid();
    if (!(__atomic_load_n(&fault->sites, __ATOMIC_ACQUIRE) >> site & 1)) return 0;
    return fault->only == 0 || (fault->only > 0 ? own == fault->only : own != -fault->only);
}

ffr_fault ffr_before_call(int site) {
    ffr_fault found = {FFR_NONE, 0};
    int error = errno;
    __atomic_add_fetch(&shared->calls[site], 1, __ATOMIC_RELAXED);
    for (int i = 0; i < __atomic_load_n(&shared->used, __ATOMIC_ACQUIRE); i++) {
        ffr_set_fault *fault = &shared->faults[i];
        if (!concerns(fault, site)) continue;
        int64_t call = __atomic_add_fetch(&fault->calls, 1, __ATOMIC_SEQ_CST);
        if (found.action != FFR_NONE || (call != fault->call && !(fault->for_good && call > fault->call))) continue;
        __atomic_add_fetch(&fault->fired, 1, __ATOMIC_SEQ_CST);
        found.action = fault->action, found.value = fault->value;
    }
    if (found.action == FFR_KILL_BEFORE) kill(getpid(), SIGKILL);
    if (found.action == FFR_DELAY) {
        struct timespec wait = {found.value / 1000, found.value % 1000 * 1000000};
        nanosleep(&wait, NULL);
    }
    errno = error;
    return found;
}

void ffr_after_call(ffr_fault fault) {
    if (fault.action == FFR_KILL_AFTER) kill(getpid(), SIGKILL);
}

/* As if no more than `size` bytes had arrived. */
static void forget(struct io_event *event, int64_t size) {
    struct iocb *request = (struct iocb *)(uintptr_t)event->obj;
    if ((int64_t)request->aio_nbytes > size)
        memset((char *)(uintptr_t)request->aio_buf + size, 0xee, request->aio_nbytes - size);
}

static long change_events(ffr_fault fault, void *events, long count, long most) {
    struct io_event *found = events;
    for (long i = 0; i < count; i++) {
        if (fault.action == FFR_EVENT_FAILS) forget(&found[i], 0), found[i].res = -fault.value;
        if (fault.action == FFR_EVENT_SHORT && found[i].res > fault.value)
            forget(&found[i], fault.value), found[i].res = fault.value;
    }
    for (long i = 0; fault.action == FFR_EVENTS_REVERSED && i < count / 2; i++) {
        struct io_event other = found[i];
        found[i] = found[count - 1 - i], found[count - 1 - i] = other;
    }
    if (fault.action == FFR_EVENT_STALE && count < most) {
        /* One more, of the same slot but of the batch before, which claims to have failed. */
        found[count] = found[0];
        found[count].data -= 1ull << 32;
        found[count].res = -fault.value;
        count++;
    }
    return count;
}

__attribute__((visibility("default"))) const ffr_fault_table ffr_the_faults = {ffr_before_call, ffr_after_call,
                                                                               change_events};
