/* Makes file operations fail, for bench/disk_faults.py: a library for LD_PRELOAD on Linux.

   The n-th operation of a kind on a file in a folder fails with an error, or writes half of its bytes. Operations are
   counted by kind. Nothing happens before disk_faults_arm, or where DISK_FAULTS_PLAN="KIND N FAULT" and
   DISK_FAULTS_FOLDER are set when the process starts. The counts lie in shared memory, so that a parent reads those of
   its copies, or in the file DISK_FAULTS_COUNTS.

   Not seen: writes to mapped memory, and what the C library writes by itself (fwrite). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE, FSYNC, RENAME, LINK, OPEN, MKDIR, TRUNCATE, KINDS, INJECTED = KINDS };
enum { SHORT = -1, FULL = -2 }; /* half of the bytes once; half of the bytes, and from then on none */

static long nowhere[KINDS + 1], *counts = nowhere;
static char folder[4096];
static int armed, kind_armed, fault;
static long nth;

#define NEXT(name) static __typeof__(&name) next; if (!next) next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

void disk_faults_arm(const char *where, int kind, long n, int how) {
    memset(counts, 0, sizeof nowhere);
    snprintf(folder, sizeof folder, "%s", where);
    kind_armed = kind, nth = n, fault = how, armed = 1;
}

long *disk_faults_counts(void) { return counts; }

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("DISK_FAULTS_COUNTS"), *plan = getenv("DISK_FAULTS_PLAN");
    const char *where = getenv("DISK_FAULTS_FOLDER");
    int handle = file ? open(file, O_RDWR | O_CLOEXEC) : -1, kind, how;
    void *shared = mmap(NULL, sizeof nowhere, PROT_READ | PROT_WRITE,
                        handle < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, handle, 0);
    long n;
    if (shared != MAP_FAILED) counts = shared;
    if (handle >= 0) close(handle);
    if (plan && where && sscanf(plan, "%d %ld %d", &kind, &n, &how) == 3) disk_faults_arm(where, kind, n, how);
}

static int inside(const char *path) {
    size_t length = strlen(folder);
    return !strncmp(path, folder, length) && (path[length] == '/' || !path[length]);
}

static int handle_inside(int handle) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", handle);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return inside(path);
}

static int path_inside(int at, const char *path) {
    char whole[8192], here[4096];
    if (!path || path[0] == '/') return path && inside(path);
    if (at != AT_FDCWD) return handle_inside(at);
    if (!getcwd(here, sizeof here)) return 0;
    snprintf(whole, sizeof whole, "%s/%s", here, path);
    return inside(whole);
}

/* Count an operation. 0: do it; an errno: fail; SHORT: write half; FULL: write half, then none. */
static int look(int kind) {
    long now = __sync_add_and_fetch(&counts[kind], 1);
    if (kind != kind_armed || !nth || now < nth || (now > nth && fault != FULL)) return 0;
    __sync_add_and_fetch(&counts[INJECTED], 1);
    return fault == FULL && now > nth ? ENOSPC : fault;
}

#define FAIL_IF(condition, kind) \
    if (armed && (condition)) { int before = errno, why = look(kind); if (why) { \
        errno = why < 0 ? ENOSPC : why; return -1; } errno = before; }

/* The bytes to write: all, or half of them; -1 for an error in errno. */
static ssize_t bytes(int handle, size_t size) {
    int before = errno;
    if (!armed || !size || !handle_inside(handle)) { errno = before; return (ssize_t)size; }
    int why = look(WRITE);
    if (why > 0) { errno = why; return -1; }
    errno = before;
    if (why == FULL && size < 2) { errno = ENOSPC; return -1; }
    return why ? (ssize_t)(size > 1 ? size / 2 : size) : (ssize_t)size;
}

ssize_t write(int handle, const void *data, size_t size) {
    NEXT(write);
    ssize_t few = bytes(handle, size);
    return few < 0 ? -1 : next(handle, data, (size_t)few);
}

#define PWRITE(name, offset_type) \
    ssize_t name(int handle, const void *data, size_t size, offset_type offset) { \
        NEXT(name); \
        ssize_t few = bytes(handle, size); \
        return few < 0 ? -1 : next(handle, data, (size_t)few, offset); }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

static size_t total(const struct iovec *parts, int count) {
    size_t sum = 0;
    for (int i = 0; i < count; i++) sum += parts[i].iov_len;
    return sum;
}

/* Half of the parts' bytes are those of the first part, or half of it. */
ssize_t writev(int handle, const struct iovec *parts, int count) {
    NEXT(writev);
    size_t all = total(parts, count);
    ssize_t few = bytes(handle, all);
    if (few < 0 || (size_t)few == all) return few < 0 ? -1 : next(handle, parts, count);
    struct iovec first = parts[0];
    if (count == 1 || first.iov_len > (size_t)few) first.iov_len = (size_t)few;
    return next(handle, &first, 1);
}

ssize_t pwritev(int handle, const struct iovec *parts, int count, off_t offset) {
    NEXT(pwritev);
    size_t all = total(parts, count);
    ssize_t few = bytes(handle, all);
    if (few < 0 || (size_t)few == all) return few < 0 ? -1 : next(handle, parts, count, offset);
    struct iovec first = parts[0];
    if (count == 1 || first.iov_len > (size_t)few) first.iov_len = (size_t)few;
    return next(handle, &first, 1, offset);
}

#define SENDFILE(name, offset_type) \
    ssize_t name(int out, int in, offset_type *offset, size_t size) { \
        NEXT(name); \
        ssize_t few = bytes(out, size); \
        return few < 0 ? -1 : next(out, in, offset, (size_t)few); }
ssize_t sendfile(int, int, off_t *, size_t);
ssize_t sendfile64(int, int, off64_t *, size_t);
SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t size, unsigned flags) {
    NEXT(copy_file_range);
    ssize_t few = bytes(out, size);
    return few < 0 ? -1 : next(in, from, out, to, (size_t)few, flags);
}

int fsync(int handle) {
    NEXT(fsync);
    FAIL_IF(handle_inside(handle), FSYNC)
    return next(handle);
}

int fdatasync(int handle) {
    NEXT(fdatasync);
    FAIL_IF(handle_inside(handle), FSYNC)
    return next(handle);
}

int rename(const char *old, const char *new) {
    NEXT(rename);
    FAIL_IF(path_inside(AT_FDCWD, new), RENAME)
    return next(old, new);
}

int renameat(int from, const char *old, int to, const char *new) {
    NEXT(renameat);
    FAIL_IF(path_inside(to, new), RENAME)
    return next(from, old, to, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    NEXT(renameat2);
    FAIL_IF(path_inside(to, new), RENAME)
    return next(from, old, to, new, flags);
}

int link(const char *old, const char *new) {
    NEXT(link);
    FAIL_IF(path_inside(AT_FDCWD, new), LINK)
    return next(old, new);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
    NEXT(linkat);
    FAIL_IF(path_inside(to, new), LINK)
    return next(from, old, to, new, flags);
}

int mkdir(const char *path, mode_t mode) {
    NEXT(mkdir);
    FAIL_IF(path_inside(AT_FDCWD, path), MKDIR)
    return next(path, mode);
}

int mkdirat(int at, const char *path, mode_t mode) {
    NEXT(mkdirat);
    FAIL_IF(path_inside(at, path), MKDIR)
    return next(at, path, mode);
}

#define TRUNCATIONS(suffix, offset_type) \
    int truncate##suffix(const char *path, offset_type size) { \
        NEXT(truncate##suffix); \
        FAIL_IF(path_inside(AT_FDCWD, path), TRUNCATE) \
        return next(path, size); } \
    int ftruncate##suffix(int handle, offset_type size) { \
        NEXT(ftruncate##suffix); \
        FAIL_IF(handle_inside(handle), TRUNCATE) \
        return next(handle, size); }
TRUNCATIONS(, off_t)
TRUNCATIONS(64, off64_t)

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC))
#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }

#define OPENINGS(suffix) \
    int open##suffix(const char *path, int flags, ...) { \
        NEXT(open##suffix); \
        MODE(flags) \
        FAIL_IF(WRITES(flags) && path_inside(AT_FDCWD, path), OPEN) \
        return next(path, flags, mode); } \
    int openat##suffix(int at, const char *path, int flags, ...) { \
        NEXT(openat##suffix); \
        MODE(flags) \
        FAIL_IF(WRITES(flags) && path_inside(at, path), OPEN) \
        return next(at, path, flags, mode); } \
    int creat##suffix(const char *path, mode_t mode) { \
        NEXT(creat##suffix); \
        FAIL_IF(path_inside(AT_FDCWD, path), OPEN) \
        return next(path, mode); } \
    FILE *fopen##suffix(const char *path, const char *how) { \
        NEXT(fopen##suffix); \
        if (armed && (how[0] != 'r' || strchr(how, '+')) && path_inside(AT_FDCWD, path)) { \
            int why = look(OPEN); \
            if (why) { errno = why < 0 ? ENOSPC : why; return NULL; } } \
        return next(path, how); }
OPENINGS()
OPENINGS(64)
