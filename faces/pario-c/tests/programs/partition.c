/* Every function of pario.h, once for what it does and once for a mistake. Runs as a rank of `pario run -n 2`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
#include <pario.h>

static int failures;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            failures++; \
            fprintf(stderr, "%s:%d: not true: %s (last error: %d %s)\n", __FILE__, __LINE__, #what, errno, pario_error()); \
        } \
    } while (0)

#define CHECK_FAILS(call, number, text) \
    do { \
        errno = 0; \
        CHECK((call) == -1); \
        CHECK(errno == (number)); \
        CHECK(strstr(pario_error(), (text)) != NULL); \
    } while (0)

static void files(int partition, int rank) {
    char name[64], moved[64], got[200];
    struct pario_stat stat;
    snprintf(name, sizeof name, "d%d/file", rank);
    snprintf(moved, sizeof moved, "d%d/moved", rank);
    snprintf(got, sizeof got, "d%d", rank);
    CHECK(pario_mkdir(partition, got) == 0);
    CHECK_FAILS(pario_mkdir(partition, got), EEXIST, got);
    int file = (int)pario_open(partition, name, O_CREAT | O_EXCL | O_RDWR, 0640);
    CHECK(1 << 30 < file && *pario_error() == 0);
    CHECK_FAILS(pario_open(partition, name, O_CREAT | O_EXCL | O_RDWR), EEXIST, name);
    CHECK(pario_pwrite(file, "hello world", 11, 0) == 11);
    CHECK(pario_append(file, "!", 1) == 11);
    CHECK(pario_size(file) == 12);
    memset(got, 0, sizeof got);
    CHECK(pario_pread(file, got, 100, 6) == 6 && strcmp(got, "world!") == 0);
    CHECK(pario_pread(file, got, 100, 12) == 0);
    CHECK(pario_pread(file, NULL, 0, 0) == 0);
    CHECK(pario_truncate(file, 5) == 0 && pario_size(file) == 5);
    CHECK(pario_sync(file) == 0);
    CHECK_FAILS(pario_pread(file, NULL, 1, 0), EINVAL, "null pointer");
    CHECK_FAILS(pario_pwrite(file, got, 1, -1), EINVAL, "offset -1");
    CHECK_FAILS(pario_append(file, NULL, 3), EINVAL, "null pointer");
    CHECK_FAILS(pario_truncate(file, -4), EINVAL, "offset -4");
    CHECK_FAILS(pario_pread(file, got, (size_t)-1, 0), EINVAL, "length");
    CHECK(read(file, got, 1) == -1 && errno == EBADF);
    CHECK(pario_stat(partition, name, &stat) == 0);
    CHECK(stat.size == 5 && stat.kind == PARIO_KIND_FILE && stat.mode == 0640 && stat.links == 1 && stat.inode != 0);
    CHECK(stat.uid == getuid() && stat.gid == getgid() && stat.stripe_count == 2 && stat.stripe_bytes >= 4096);
    CHECK(stat.modified_ns > 1600000000ull * 1000000000ull);
    CHECK_FAILS(pario_stat(partition, name, NULL), EINVAL, "null pointer");
    CHECK_FAILS(pario_stat(partition, "missing", &stat), ENOENT, "missing");
    CHECK(pario_rename(partition, name, moved) == 0);
    CHECK_FAILS(pario_rename(partition, name, moved), ENOENT, name);
    CHECK(pario_close(file) == 0);
    CHECK_FAILS(pario_close(file), EBADF, "is closed");
    CHECK_FAILS(pario_sync(file), EBADF, "is closed");
    CHECK_FAILS(pario_size(partition), EBADF, "it is a handle of pario_mount");
    file = (int)pario_open(partition, moved, O_RDONLY);
    CHECK(pario_pread(file, got, 5, 0) == 5 && memcmp(got, "hello", 5) == 0);
    CHECK(pario_pwrite(file, got, 5, 0) == -1);
    CHECK(pario_close(file) == 0);
    CHECK(pario_remove(partition, moved) == 0);
    CHECK_FAILS(pario_remove(partition, moved), ENOENT, moved);
    CHECK_FAILS(pario_open(partition, moved, O_RDONLY), ENOENT, moved);
    CHECK_FAILS(pario_open(partition, NULL, O_RDONLY), EINVAL, "null pointer");
    CHECK_FAILS(pario_open(partition, moved, O_CREAT | O_WRONLY | O_APPEND), EINVAL, "pario_append");
    CHECK_FAILS(pario_open(file, moved, O_RDONLY), EBADF, "is not a handle of pario_mount");
    snprintf(got, sizeof got, "d%d", rank);
    CHECK(pario_stat(partition, got, &stat) == 0 && stat.kind == PARIO_KIND_DIRECTORY);
    CHECK(pario_rmdir(partition, got) == 0);
    CHECK_FAILS(pario_rmdir(partition, got), ENOENT, got);
}

int main(void) {
    char byte;
    int rank = (int)pario_group_rank(), size = (int)pario_group_size();
    CHECK(size == 2 && (rank == 0 || rank == 1));
    CHECK(strlen(pario_version()) >= 5);
    int partition = (int)pario_mount(NULL);
    CHECK(partition > 0);
    CHECK(pario_mount(getenv("PARIO_PARTITION")) > partition);
    CHECK_FAILS(pario_mount("no-such-partition"), ENOENT, "no-such-partition");
    CHECK_FAILS(pario_mount("/no/such/file.toml"), ENOENT, "/no/such/file.toml");
    files(partition, rank);
    /* What rank 0 has written and closed before the barrier is there for rank 1. */
    if (rank == 0) {
        int file = (int)pario_open(partition, "shared", O_CREAT | O_WRONLY);
        CHECK(pario_pwrite(file, "x", 1, 1000) == 1 && pario_close(file) == 0);
    }
    CHECK(pario_group_barrier() == 0);
    int file = (int)pario_open(partition, "shared", O_RDONLY);
    CHECK(pario_pread(file, &byte, 1, 1000) == 1 && byte == 'x');
    /* A file outlives its mount, and a child has neither. */
    CHECK(pario_unmount(partition) == 0);
    CHECK_FAILS(pario_unmount(partition), EBADF, "is closed");
    CHECK(pario_size(file) == 1001);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(pario_size(file) == -1 && errno == EBADF && strstr(pario_error(), "parent") ? 7 : 1);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(pario_close(file) == 0);
    CHECK(pario_group_barrier() == 0);
    printf("%d failures\n", failures);
    return failures != 0;
}
