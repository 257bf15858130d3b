/*
 * A disk that can lose power, for a program that does not know it: an LD_PRELOAD shim.
 *
 * `kill -9` proves nothing about fsync, since the page cache outlives the process. This shim writes every change below
 * one folder to a log (data, truncations, names, syncs); the harness replays the log as a disk would have kept it: what
 * was synced for certain, what was not in any subset, torn (see tests/src/power_cut.rs). It can also end the process
 * at the n-th change, fail fsync with EIO and writes with ENOSPC or EIO, or write half and then fail.
 *
 *   FAULTFS_ROOT     folder that is watched (absolute, no trailing slash)
 *   FAULTFS_LOG      file the log is appended to
 *   FAULTFS_KILL_AT  end the process with SIGKILL after so many logged changes (0 or unset: never)
 *   FAULTFS_CONTROL  file of four 32-bit counters, mapped shared: failures still to come of
 *                    [0] fsync (EIO)  [1] write (ENOSPC)  [2] write (EIO)  [3] write (half, then ENOSPC);
 *                    0xffffffff fails until it is set back
 *
 * A log record, little endian: u32 op, u32 length of path, u32 length of second path, u32 length of data, u64 inode,
 * u64 offset; then path, second path, data.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum op { CREATE = 1, WRITE, TRUNCATE, SYNC, RENAME, UNLINK, SYNC_FAILED, MKDIR, RMDIR, LINK };
enum control { FAIL_SYNC, FAIL_FULL, FAIL_WRITE, FAIL_HALF, CONTROLS };

static char root[PATH_MAX];
static size_t root_length;
static int log_fd = -1;
static unsigned long kill_at, changes;
static volatile uint32_t *control;
/* Held over an operation and its record, so that the log has the order the disk saw. */
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name) {
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) { fprintf(stderr, "faultfs: no %s\n", name); abort(); }
    return f;
}

__attribute__((constructor)) static void start(void) {
    const char *r = getenv("FAULTFS_ROOT"), *l = getenv("FAULTFS_LOG");
    const char *k = getenv("FAULTFS_KILL_AT"), *c = getenv("FAULTFS_CONTROL");
    if (!r || !l) return;
    root_length = strlen(r);
    if (root_length >= sizeof root) abort();
    memcpy(root, r, root_length + 1);
    if (k) kill_at = strtoul(k, NULL, 10);
    if (c) {
        int fd = REAL(open64)(c, O_RDWR | O_CLOEXEC);
        void *p = fd < 0 ? MAP_FAILED : mmap(NULL, CONTROLS * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) { perror("faultfs: control"); abort(); }
        control = p;
        syscall(SYS_close, fd);
    }
    /* High, out of the way of programs that close what they do not know. */
    int fd = REAL(open64)(l, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) { perror("faultfs: log"); abort(); }
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900);
    if (log_fd < 0) log_fd = fd; else syscall(SYS_close, fd);
}

static int below(const char *path) {
    return log_fd >= 0 && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || !path[root_length]);
}

/* Absolute path of what a descriptor is open on; empty when it is no file. */
static void path_of(int fd, char out[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = log_fd < 0 ? -1 : readlink(link, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = 0;
}

static void absolute(int dir, const char *path, char out[PATH_MAX]) {
    char base[PATH_MAX];
    if (path[0] == '/') { snprintf(out, PATH_MAX, "%s", path); return; }
    if (dir == AT_FDCWD) { if (!getcwd(base, sizeof base)) base[0] = 0; } else path_of(dir, base);
    if (snprintf(out, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) out[0] = 0;
}

static int tracked(int fd) {
    if (log_fd < 0 || fd == log_fd) return 0;
    int saved = errno;
    char path[PATH_MAX];
    path_of(fd, path);
    errno = saved;
    return below(path);
}

static uint64_t inode(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}

/* Appends one record; the caller holds `order`. */
static void record(enum op op, const char *path, const char *path2, uint64_t ino, uint64_t offset,
                   const struct iovec *data, int pieces, size_t length) {
    int saved = errno;
    uint32_t head[4] = { op, path ? strlen(path) : 0, path2 ? strlen(path2) : 0, length };
    uint64_t place[2] = { ino, offset };
    struct iovec out[4 + 64];
    int n = 0;
    out[n++] = (struct iovec){ head, sizeof head };
    out[n++] = (struct iovec){ place, sizeof place };
    if (head[1]) out[n++] = (struct iovec){ (void *)path, head[1] };
    if (head[2]) out[n++] = (struct iovec){ (void *)path2, head[2] };
    for (int i = 0; i < pieces && length > 0; i++) {
        size_t part = data[i].iov_len < length ? data[i].iov_len : length;
        if (n == (int)(sizeof out / sizeof *out)) abort();
        out[n++] = (struct iovec){ data[i].iov_base, part };
        length -= part;
    }
    size_t total = 0;
    for (int i = 0; i < n; i++) total += out[i].iov_len;
    if (syscall(SYS_writev, log_fd, out, n) != (long)total) abort();
    if (++changes == kill_at) kill(getpid(), SIGKILL);
    errno = saved;
}

/* One failure of this kind, if any is to come. */
static int fails(enum control which) {
    if (!control) return 0;
    uint32_t n = __atomic_load_n(&control[which], __ATOMIC_SEQ_CST);
    while (n != 0 && n != UINT32_MAX)
        if (__atomic_compare_exchange_n(&control[which], &n, n - 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) break;
    return n != 0;
}

static int locked_sync(int fd, int (*sync)(int)) {
    if (!tracked(fd)) return sync(fd);
    pthread_mutex_lock(&order);
    char path[PATH_MAX];
    path_of(fd, path);
    int rc;
    if (fails(FAIL_SYNC)) {
        record(SYNC_FAILED, path, NULL, inode(fd), 0, NULL, 0, 0);
        errno = EIO;
        rc = -1;
    } else {
        rc = sync(fd);
        if (rc == 0) record(SYNC, path, NULL, inode(fd), 0, NULL, 0, 0);
    }
    pthread_mutex_unlock(&order);
    return rc;
}
int fsync(int fd) { return locked_sync(fd, REAL(fsync)); }
int fdatasync(int fd) { return locked_sync(fd, REAL(fdatasync)); }
/* Writes pages back and promises nothing about them: never logged as a sync. */
int sync_file_range(int fd, off64_t offset, off64_t length, unsigned flags) {
    return REAL(sync_file_range)(fd, offset, length, flags);
}

/* All writes end here; `offset` < 0 means at the descriptor's own position. */
static ssize_t locked_write(int fd, const struct iovec *data, int pieces, off64_t offset) {
    size_t length = 0;
    for (int i = 0; i < pieces; i++) length += data[i].iov_len;
    pthread_mutex_lock(&order);
    ssize_t done = -1;
    struct iovec half = { NULL, 0 };
    if (fails(FAIL_FULL)) errno = ENOSPC;
    else if (fails(FAIL_WRITE)) errno = EIO;
    else {
        if (length > 1 && fails(FAIL_HALF)) {
            half = (struct iovec){ data[0].iov_base, (data[0].iov_len + 1) / 2 };
            data = &half;
            pieces = 1;
            __atomic_fetch_add(&control[FAIL_FULL], 1, __ATOMIC_SEQ_CST);
        }
        struct stat st;
        uint64_t at = offset < 0 ? (uint64_t)lseek64(fd, 0, SEEK_CUR) : (uint64_t)offset;
        if ((fcntl(fd, F_GETFL) & O_APPEND) && fstat(fd, &st) == 0) at = st.st_size;
        done = offset < 0 ? syscall(SYS_writev, fd, data, pieces)
                          : syscall(SYS_pwritev, fd, data, pieces, (unsigned long)offset, 0UL);
        if (done > 0) record(WRITE, NULL, NULL, inode(fd), at, data, pieces, done);
    }
    int saved = errno;
    pthread_mutex_unlock(&order);
    errno = saved;
    return done;
}
ssize_t write(int fd, const void *buffer, size_t length) {
    if (!tracked(fd)) return REAL(write)(fd, buffer, length);
    struct iovec one = { (void *)buffer, length };
    return locked_write(fd, &one, 1, -1);
}
ssize_t writev(int fd, const struct iovec *data, int pieces) {
    return tracked(fd) ? locked_write(fd, data, pieces, -1) : REAL(writev)(fd, data, pieces);
}
ssize_t pwrite64(int fd, const void *buffer, size_t length, off64_t offset) {
    if (!tracked(fd)) return REAL(pwrite64)(fd, buffer, length, offset);
    struct iovec one = { (void *)buffer, length };
    return locked_write(fd, &one, 1, offset);
}
ssize_t pwrite(int fd, const void *buffer, size_t length, off_t offset) { return pwrite64(fd, buffer, length, offset); }
ssize_t pwritev64(int fd, const struct iovec *data, int pieces, off64_t offset) {
    return tracked(fd) ? locked_write(fd, data, pieces, offset) : REAL(pwritev64)(fd, data, pieces, offset);
}
ssize_t pwritev(int fd, const struct iovec *data, int pieces, off_t offset) { return pwritev64(fd, data, pieces, offset); }

int ftruncate64(int fd, off64_t length) {
    if (!tracked(fd)) return REAL(ftruncate64)(fd, length);
    pthread_mutex_lock(&order);
    int rc = REAL(ftruncate64)(fd, length);
    if (rc == 0) record(TRUNCATE, NULL, NULL, inode(fd), length, NULL, 0, 0);
    pthread_mutex_unlock(&order);
    return rc;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

/* Space that is promised and never logged would be space the replay does not know: callers have to fall back. */
int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
    if (!tracked(fd)) return REAL(fallocate64)(fd, mode, offset, length);
    errno = EOPNOTSUPP;
    return -1;
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }
int posix_fallocate64(int fd, off64_t offset, off64_t length) {
    return tracked(fd) ? EOPNOTSUPP : REAL(posix_fallocate64)(fd, offset, length);
}
int posix_fallocate(int fd, off_t offset, off_t length) { return posix_fallocate64(fd, offset, length); }

static int opened(int dir, const char *name, int flags, mode_t mode) {
    char path[PATH_MAX];
    int (*openat_real)(int, const char *, int, ...) = REAL(openat64);
    if (log_fd < 0 || !(flags & (O_CREAT | O_TRUNC))) return openat_real(dir, name, flags, mode);
    absolute(dir, name, path);
    if (!below(path)) return openat_real(dir, name, flags, mode);
    pthread_mutex_lock(&order);
    struct stat st;
    int existed = lstat(path, &st) == 0;
    int fd = openat_real(dir, name, flags, mode);
    if (fd >= 0 && !existed) record(CREATE, path, NULL, inode(fd), mode, NULL, 0, 0);
    else if (fd >= 0 && (flags & O_TRUNC)) record(TRUNCATE, NULL, NULL, inode(fd), 0, NULL, 0, 0);
    pthread_mutex_unlock(&order);
    return fd;
}
#define MODE(flags, mode) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open64(const char *name, int flags, ...) { MODE(flags, mode) return opened(AT_FDCWD, name, flags, mode); }
int open(const char *name, int flags, ...) { MODE(flags, mode) return opened(AT_FDCWD, name, flags, mode); }
int openat64(int dir, const char *name, int flags, ...) { MODE(flags, mode) return opened(dir, name, flags, mode); }
int openat(int dir, const char *name, int flags, ...) { MODE(flags, mode) return opened(dir, name, flags, mode); }
int creat64(const char *name, mode_t mode) { return opened(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat(const char *name, mode_t mode) { return creat64(name, mode); }

static int named(enum op op, int dir, const char *name, int dir2, const char *name2, int (*call)(void *), void *arguments) {
    char path[PATH_MAX], path2[PATH_MAX] = "";
    absolute(dir, name, path);
    if (name2) absolute(dir2, name2, path2);
    if (!below(path) && !(name2 && below(path2))) return call(arguments);
    pthread_mutex_lock(&order);
    int rc = call(arguments);
    struct stat st;
    uint64_t ino = rc == 0 && lstat(name2 ? path2 : path, &st) == 0 ? st.st_ino : 0;
    if (rc == 0) record(op, path, name2 ? path2 : NULL, ino, 0, NULL, 0, 0);
    pthread_mutex_unlock(&order);
    return rc;
}
struct two { int dir; const char *name; int dir2; const char *name2; unsigned flags; };
static int do_rename(void *p) { struct two *t = p; return syscall(SYS_renameat2, t->dir, t->name, t->dir2, t->name2, t->flags); }
static int do_link(void *p) { struct two *t = p; return syscall(SYS_linkat, t->dir, t->name, t->dir2, t->name2, t->flags); }
static int do_unlink(void *p) { struct two *t = p; return syscall(SYS_unlinkat, t->dir, t->name, t->flags); }
static int do_mkdir(void *p) { struct two *t = p; return syscall(SYS_mkdirat, t->dir, t->name, t->flags); }

int renameat2(int d, const char *a, int d2, const char *b, unsigned flags) {
    struct two t = { d, a, d2, b, flags };
    return named(RENAME, d, a, d2, b, do_rename, &t);
}
int rename(const char *a, const char *b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }
int renameat(int d, const char *a, int d2, const char *b) { return renameat2(d, a, d2, b, 0); }
int linkat(int d, const char *a, int d2, const char *b, int flags) {
    struct two t = { d, a, d2, b, (unsigned)flags };
    return named(LINK, d, a, d2, b, do_link, &t);
}
int link(const char *a, const char *b) { return linkat(AT_FDCWD, a, AT_FDCWD, b, 0); }
int unlinkat(int d, const char *a, int flags) {
    struct two t = { d, a, 0, NULL, (unsigned)flags };
    return named(flags & AT_REMOVEDIR ? RMDIR : UNLINK, d, a, 0, NULL, do_unlink, &t);
}
int unlink(const char *a) { return unlinkat(AT_FDCWD, a, 0); }
int rmdir(const char *a) { return unlinkat(AT_FDCWD, a, AT_REMOVEDIR); }
int mkdirat(int d, const char *a, mode_t mode) {
    struct two t = { d, a, 0, NULL, mode };
    return named(MKDIR, d, a, 0, NULL, do_mkdir, &t);
}
int mkdir(const char *a, mode_t mode) { return mkdirat(AT_FDCWD, a, mode); }
