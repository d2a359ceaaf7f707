/* A slow disk for programs that write plain files: preloaded, it makes every write to a regular file of one file system take as long as a
   store of so many bytes a second needs, all processes of the node together. `pario bench mpi` compiles it for the MPI library's own I/O;
   Pario's servers have the same limit in their stores.

   PARIO_BENCH_PACE names a file of eight bytes in the measured directory, which all processes map: the time until which the disk is busy.
   PARIO_BENCH_RATE is the limit in bytes a second. Reads are not slowed. Writes that the C library does by itself (stdio, POSIX AIO) are
   not seen: no MPI library writes by them in the calls that are measured with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static _Atomic long long *busy_until;
static double ns_per_byte;
static dev_t device;
/* Behind by less than this, nobody waits; it stays due. */
enum { SLACK_NS = 200000 };

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("PARIO_BENCH_PACE"), *rate = getenv("PARIO_BENCH_RATE");
    struct stat facts;
    if (path == NULL || rate == NULL || atof(rate) <= 0)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &facts) != 0 || facts.st_size < (off_t) sizeof *busy_until)
        _exit(97); /* a run without its limit would be compared with one that has it */
    void *mapped = mmap(NULL, sizeof *busy_until, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED)
        _exit(97);
    close(fd);
    device = facts.st_dev;
    ns_per_byte = 1e9 / atof(rate);
    busy_until = mapped;
}

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Waits for as long as the disk needs for so many bytes, after those of everybody before; returns them. */
static ssize_t pay(int fd, ssize_t bytes)
{
    struct stat facts;
    if (busy_until == NULL || bytes <= 0 || fstat(fd, &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_dev != device)
        return bytes;
    long long before = atomic_load(busy_until), now = now_ns(), end;
    do {
        /* Whoever comes back within the slack has rested a little too long, and the disk was not idle. */
        end = (now - before < SLACK_NS ? before : now) + (long long) (bytes * ns_per_byte);
    } while (!atomic_compare_exchange_weak(busy_until, &before, end));
    struct timespec until = {.tv_sec = end / 1000000000LL, .tv_nsec = end % 1000000000LL};
    while (end - now_ns() > SLACK_NS)
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    return bytes;
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name)) dlsym(RTLD_NEXT, #name)

ssize_t write(int fd, const void *data, size_t bytes)
{
    REAL(write);
    return pay(fd, real(fd, data, bytes));
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    REAL(pwrite);
    return pay(fd, real(fd, data, bytes, at));
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    REAL(pwrite64);
    return pay(fd, real(fd, data, bytes, at));
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    REAL(writev);
    return pay(fd, real(fd, pieces, count));
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t at)
{
    REAL(pwritev);
    return pay(fd, real(fd, pieces, count, at));
}

ssize_t pwritev64(int fd, const struct iovec *pieces, int count, off64_t at)
{
    REAL(pwritev64);
    return pay(fd, real(fd, pieces, count, at));
}

ssize_t pwritev2(int fd, const struct iovec *pieces, int count, off_t at, int flags)
{
    REAL(pwritev2);
    return pay(fd, real(fd, pieces, count, at, flags));
}

ssize_t pwritev64v2(int fd, const struct iovec *pieces, int count, off64_t at, int flags)
{
    REAL(pwritev64v2);
    return pay(fd, real(fd, pieces, count, at, flags));
}
