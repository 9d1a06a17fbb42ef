/* Kill a process at its n-th change of a folder.
 *
 * Preloaded into a test process (LD_PRELOAD).  After aos_crash_arm(folder, n, torn) every call that changes or syncs
 * something below `folder` is counted, and at the n-th one the process sends itself SIGKILL: before the call takes
 * effect or, with `torn`, after a write wrote half of its bytes.  n = 0 counts and never kills.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static char folder[PATH_MAX];
static size_t folder_length;
static atomic_long counted;
static long kill_at;
static int kill_torn;

void aos_crash_arm(const char *path, long n, int torn) {
    folder_length = 0;
    snprintf(folder, sizeof folder, "%s", path);
    atomic_store(&counted, 0);
    kill_at = n;
    kill_torn = torn;
    folder_length = strlen(folder);
}

void aos_crash_disarm(void) { folder_length = 0; }

long aos_crash_count(void) { return atomic_load(&counted); }

static int is_below(const char *path) {
    return folder_length && !strncmp(path, folder, folder_length) &&
           (path[folder_length] == '/' || path[folder_length] == '\0');
}

static int fd_is_below(int fd) {
    char link[64], path[PATH_MAX];
    if (!folder_length) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = '\0';
    return is_below(path);
}

static int at_is_below(int fd, const char *path) {
    if (!folder_length || !path) return 0;
    if (path[0] == '/') return is_below(path);
    return fd != AT_FDCWD && fd_is_below(fd);
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

/* Whether this call is the one to die at; with `torn` a write dies later, half done. */
static int is_the_one(void) { return atomic_fetch_add(&counted, 1) + 1 == kill_at; }

static void step(int below) {
    if (below && is_the_one()) die();
}

#define REAL(type, name, ...) \
    static type (*real)(__VA_ARGS__); \
    if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (fd_is_below(fd) && is_the_one()) {
        if (kill_torn && size > 1) real(fd, data, size / 2);
        die();
    }
    return real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    if (fd_is_below(fd) && is_the_one()) {
        if (kill_torn && size > 1) real(fd, data, size / 2, at);
        die();
    }
    return real(fd, data, size, at);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off_t);
    if (fd_is_below(fd) && is_the_one()) {
        if (kill_torn && size > 1) real(fd, data, size / 2, at);
        die();
    }
    return real(fd, data, size, at);
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    step(fd_is_below(fd));
    return real(fd);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    step(fd_is_below(fd));
    return real(fd);
}

int ftruncate(int fd, off_t size) {
    REAL(int, "ftruncate", int, off_t);
    step(fd_is_below(fd));
    return real(fd, size);
}

int ftruncate64(int fd, off_t size) {
    REAL(int, "ftruncate64", int, off_t);
    step(fd_is_below(fd));
    return real(fd, size);
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    step(at_is_below(AT_FDCWD, to) || at_is_below(AT_FDCWD, from));
    return real(from, to);
}

int renameat(int from_fd, const char *from, int to_fd, const char *to) {
    REAL(int, "renameat", int, const char *, int, const char *);
    step(at_is_below(to_fd, to) || at_is_below(from_fd, from));
    return real(from_fd, from, to_fd, to);
}

int symlink(const char *target, const char *path) {
    REAL(int, "symlink", const char *, const char *);
    step(at_is_below(AT_FDCWD, path));
    return real(target, path);
}

int symlinkat(const char *target, int fd, const char *path) {
    REAL(int, "symlinkat", const char *, int, const char *);
    step(at_is_below(fd, path));
    return real(target, fd, path);
}

int link(const char *from, const char *to) {
    REAL(int, "link", const char *, const char *);
    step(at_is_below(AT_FDCWD, to));
    return real(from, to);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags) {
    REAL(int, "linkat", int, const char *, int, const char *, int);
    step(at_is_below(to_fd, to));
    return real(from_fd, from, to_fd, to, flags);
}

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    step(at_is_below(AT_FDCWD, path));
    return real(path);
}

int unlinkat(int fd, const char *path, int flags) {
    REAL(int, "unlinkat", int, const char *, int);
    step(at_is_below(fd, path));
    return real(fd, path, flags);
}

int rmdir(const char *path) {
    REAL(int, "rmdir", const char *);
    step(at_is_below(AT_FDCWD, path));
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    step(at_is_below(AT_FDCWD, path));
    return real(path, mode);
}

int mkdirat(int fd, const char *path, mode_t mode) {
    REAL(int, "mkdirat", int, const char *, mode_t);
    step(at_is_below(fd, path));
    return real(fd, path, mode);
}
