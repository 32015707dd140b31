/* Safe reading of mapped memory: an unreadable page does not end the process with SIGBUS. Only guard.pxi includes this file.

   The kernel sends SIGBUS to a thread that touches an unreadable page of a mapping (its file was truncated, its disk failed).
   We handle it in two ways. ffr_guarded declares the range that its thread will touch; a fault there jumps back into it. A
   page of memory registered by ffr_protect reads as zeros after the fault. That is for tables: code everywhere reads them, and
   compares their numbers with the file at each use. Every other SIGBUS goes to the previous handler. One handler serves the
   process; the package's C code handles no other signal.

   A handler installed later (by faulthandler, or by the workers of torch's DataLoader) displaces ours. In a thread that blocks
   SIGBUS, the kernel kills the process at the first fault. So ffr_guard_ready checks both before each batch. */
#ifndef FFRECORD_GUARD_H
#define FFRECORD_GUARD_H

#include "ffrecord/system/linux.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FFR_BELIEVED_NS 2000000

typedef struct {
    sigjmp_buf back;
    const ffr_range *range;
} ffr_guard;

/* The dynamic TLS of a library loaded late may be allocated at its first use, and a handler must not allocate. */
#if defined(__GLIBC__) && !defined(__SANITIZE_THREAD__)
#define FFR_TLS static __thread __attribute__((tls_model("initial-exec")))
#else
#define FFR_TLS static __thread
#endif

FFR_TLS ffr_guard *volatile ffr_guarding; /* guard of this thread, NULL outside of ffr_guarded */
FFR_TLS volatile int ffr_passing;         /* this thread is in the previous handler */
FFR_TLS int64_t ffr_ready_until;          /* until when this thread trusts its last check, as of ffr_now_ns */
static struct sigaction ffr_before;       /* the previous handler */
static int ffr_installing;                /* process id while a thread installs our handler, else 0 */
static uintptr_t ffr_page = 4096;         /* page size in bytes; set at import, since a handler may not query it */

/* Memory whose unreadable pages read as zeros. Entries are reused and never freed: a handler may be reading them. */
typedef struct ffr_protected {
    uintptr_t start, end; /* end: 0 while the entry is free, 1 while it is being filled in */
    int lost;             /* a page of it reads as zeros */
    struct ffr_protected *next;
} ffr_protected;

static ffr_protected *ffr_first;

/* Register memory; return its entry, or NULL if out of memory. */
static ffr_protected *ffr_protect(const void *start, size_t size) {
    ffr_protected *entry = __atomic_load_n(&ffr_first, __ATOMIC_ACQUIRE);
    uintptr_t nobody = 0;
    while (entry != NULL && !__atomic_compare_exchange_n(&entry->end, &nobody, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        entry = entry->next;
        nobody = 0;
    }
    if (entry == NULL) {
        entry = calloc(1, sizeof *entry);
        if (entry == NULL) return NULL;
        entry->end = 1;
        entry->next = __atomic_load_n(&ffr_first, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(&ffr_first, &entry->next, entry, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
    }
    entry->lost = 0;
    __atomic_store_n(&entry->start, (uintptr_t)start, __ATOMIC_RELEASE);
    __atomic_store_n(&entry->end, (uintptr_t)start + size, __ATOMIC_RELEASE);
    return entry;
}

static void ffr_unprotect(ffr_protected *entry) {
    if (entry == NULL) return;
    __atomic_store_n(&entry->start, UINTPTR_MAX, __ATOMIC_RELEASE); /* start first: now no address is in the range */
    __atomic_store_n(&entry->end, 0, __ATOMIC_RELEASE);
}

/* Replace the page at an address by zeros if it is protected; return whether it was done. mmap is a plain system call, so a
   handler may use it. */
static int ffr_put_zeros(uintptr_t address) {
    ffr_protected *entry = __atomic_load_n(&ffr_first, __ATOMIC_ACQUIRE);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    for (; entry != NULL; entry = entry->next) {
        uintptr_t end = __atomic_load_n(&entry->end, __ATOMIC_ACQUIRE), start = __atomic_load_n(&entry->start, __ATOMIC_ACQUIRE);
        /* If end is unchanged after reading start, both belong to the same registration. */
        if (address >= start && address < end && end == __atomic_load_n(&entry->end, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(&entry->lost, 1, __ATOMIC_RELEASE);
            void *page = (void *)(address & ~(ffr_page - 1));
            return call_mmap(page, ffr_page, PROT_READ, flags, -1, 0) != MAP_FAILED;
        }
    }
    return 0;
}

static void ffr_pass_on(int number, siginfo_t *info, void *context) {
    struct sigaction before = ffr_before, standard;
    int sent = info->si_code <= 0; /* a process sent the signal: the memory is fine */
    if (!(before.sa_flags & SA_SIGINFO) && before.sa_handler == SIG_IGN && sent) return;
    /* Handlers that displaced each other may call each other in a circle: end it by the default action. */
    if (ffr_passing || (!(before.sa_flags & SA_SIGINFO) && (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN))) {
        memset(&standard, 0, sizeof standard);
        standard.sa_handler = SIG_DFL;
        sigaction(number, &standard, NULL);
        if (sent || ffr_passing) raise(number);
        return; /* the instruction faults again, and the default action applies */
    }
    ffr_passing = 1;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else
        before.sa_handler(number);
    ffr_passing = 0;
}

static void ffr_on_bus_error(int number, siginfo_t *info, void *context) {
    ffr_guard *guard = ffr_guarding;
    const char *address = (const char *)info->si_addr;
    if (guard != NULL && info->si_code > 0 && address >= guard->range->start && address < guard->range->end) {
        ffr_guarding = NULL;
        siglongjmp(guard->back, 1);
    }
    int error = errno, done = info->si_code > 0 && ffr_put_zeros((uintptr_t)address);
    errno = error;
    if (!done) ffr_pass_on(number, info, context);
}

static int ffr_is_ours(const struct sigaction *action) {
    return (action->sa_flags & SA_SIGINFO) && action->sa_sigaction == ffr_on_bus_error;
}

static void ffr_install(void) {
    struct sigaction ours, now;
    if (!ffr_claim(&ffr_installing)) return;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = ffr_on_bus_error;
    /* SA_NODEFER: a jump out of the handler would otherwise leave the signal blocked. */
    ours.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) == 0 && !ffr_is_ours(&now)) {
        ffr_before = now;
        sigaction(SIGBUS, &ours, NULL);
    }
    ffr_unclaim(&ffr_installing);
}

/* Tell whether a fault in this thread reaches our handler; install the handler if it is missing. */
static int ffr_guard_ready(void) {
    struct sigaction now;
    sigset_t blocked;
    if (pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0 || sigismember(&blocked, SIGBUS)) return 0;
    if (sigaction(SIGBUS, NULL, &now) != 0) return 0;
    if (ffr_is_ours(&now)) return 1;
    ffr_install();
    return sigaction(SIGBUS, NULL, &now) == 0 && ffr_is_ours(&now);
}

/* Like ffr_guard_ready, but trust a positive result for some milliseconds: its two system calls take as long as reading a small
   record. Use it only for memory of a file whose size was just checked. */
static int ffr_guard_ready_lately(int64_t now_ns) {
    if (now_ns < ffr_ready_until) return 1;
    int ready = ffr_guard_ready();
    ffr_ready_until = ready ? now_ns + FFR_BELIEVED_NS : 0;
    return ready;
}

/* Run a function that keeps in `range` the addresses that it may touch; return 1 if a fault there ended it, else 0. It must hold
   no lock, because the jump would never release it. */
static int ffr_guarded(ffr_range *range, void (*run)(void *), void *argument) {
    ffr_guard guard;
    range->start = range->end = NULL;
    guard.range = range;
    if (sigsetjmp(guard.back, 0)) return 1;
    ffr_guarding = &guard;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    run(argument);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    ffr_guarding = NULL;
    return 0;
}

#endif
