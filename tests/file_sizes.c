/* For LD_PRELOAD: every other time, fstat says that a file is larger by FFR_TEST_SHIFT bytes than it is. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>

/* Programs call it by the one name or the other. */
static int shifted(const char *name, int fd, struct stat *found) {
    static int calls;
    int (*real)(int, struct stat *) = (int (*)(int, struct stat *))dlsym(RTLD_NEXT, name);
    int rc = real(fd, found);
    const char *shift = getenv("FFR_TEST_SHIFT");
    if (rc == 0 && shift && S_ISREG(found->st_mode) && calls++ % 2 == 0) found->st_size += atoll(shift);
    return rc;
}

int fstat(int fd, struct stat *found) { return shifted("fstat", fd, found); }

int fstat64(int fd, struct stat64 *found) { return shifted("fstat64", fd, (struct stat *)found); }
