/* Every function of omp_file.h, once for what it does and once for a mistake. Arguments: the name of a new file, threads. */
#include "check.h"

#include <omp.h>
#include <sys/wait.h>
#include <unistd.h>

#define PART 1000

static int threads = 4;
static char common[6000];
static char read_common[6000];

/* The byte of a thread's part. */
static char byte_of(int thread, int call) { return (char)('a' + (thread * 7 + call * 3) % 26); }

static int all_are(const char *bytes, long length, char wanted) {
    for (long at = 0; at < length; at++)
        if (bytes[at] != wanted) return 0;
    return 1;
}

/* Parts at the pointer: written, sought, read back until the end of the file. */
static void at_pointer(int fd) {
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num(), length = PART + me;
        char mine[PART + 64], got[PART + 64];
        memset(mine, byte_of(me, 1), sizeof mine);
        CHECK(omp_file_write_all(mine, length, fd, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_count() == length && omp_file_errno() == 0 && *omp_file_strerror() == 0);
        memset(mine, byte_of(me, 2), sizeof mine);
        struct iovec list[3] = {{mine, 10}, {NULL, 0}, {mine + 20, 30}};
        CHECK(omp_file_write_list_all(list, 3, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(omp_file_count() == 40);
        CHECK(omp_file_fsync(fd) == 0);
        CHECK(omp_file_seek_all(fd, 0) == 0);
        CHECK(omp_file_tell(fd) == 0);
        CHECK(omp_file_read_all(got, length, fd, OMP_FILE_CONTIG) == 0);
        CHECK(all_are(got, length, byte_of(me, 1)));
        struct iovec into[2] = {{got, 15}, {got + 15, 25}};
        CHECK(omp_file_read_list_all(into, 2, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(all_are(got, 40, byte_of(me, 2)));
        /* The end of the file is the same answer on all threads. */
        CHECK_FAILS(omp_file_read_all(got, 1, fd, OMP_FILE_CONTIG), OMP_FILE_EEOF, "end");
        CHECK(omp_file_count() == 0);
    }
    long total = (long)threads * (PART + 40) + (long)threads * (threads - 1) / 2;
    CHECK(omp_file_size(fd) == total);
    CHECK(omp_file_tell(fd) == total);
}

/* Parts at offsets: the pointer stays. */
static void at_offsets(int fd) {
    long before = omp_file_tell(fd), size = omp_file_size(fd);
#pragma omp parallel num_threads(threads)
    {
        int me = omp_get_thread_num();
        char mine[PART], got[PART];
        memset(mine, byte_of(me, 3), PART);
        long from = (long)(threads - 1 - me) * PART;
        CHECK(omp_file_write_at_all(mine, PART, from, fd, OMP_FILE_NONCONTIG) == 0);
        CHECK(omp_file_read_at_all(got, PART, from, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(all_are(got, PART, byte_of(me, 3)));
        memset(mine, byte_of(me, 4), PART);
        off_t offsets[2] = {(off_t)me * 20, (off_t)(threads + me) * 20};
        struct iovec list[2] = {{mine, 20}, {mine, 20}}, into[2] = {{got, 20}, {got + 20, 20}};
        CHECK(omp_file_write_list_at_all(list, offsets, 2, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(omp_file_read_list_at_all(into, offsets, 2, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(all_are(got, 40, byte_of(me, 4)));
        /* The end inside of a part: exact counts. */
        ssize_t result = omp_file_read_at_all(got, PART, size - 100 + me, fd, OMP_FILE_UNKNOWN);
        CHECK(result == -1 && omp_file_errno() == OMP_FILE_EEOF && omp_file_count() == 100 - me);
    }
    CHECK(omp_file_tell(fd) == before && omp_file_size(fd) == size);
}

/* One buffer of all threads. */
static void together(int fd) {
    for (size_t at = 0; at < sizeof common; at++) common[at] = (char)(at * 31 % 251);
#pragma omp parallel num_threads(threads)
    {
        off_t offsets[2] = {8000, 7000};
        struct iovec list[2] = {{common, 500}, {common + 500, 500}};
        struct iovec into[2] = {{read_common, 500}, {read_common + 500, 500}};
        CHECK(omp_file_seek_all(fd, 100) == 0);
        CHECK(omp_file_write_com_all(common, sizeof common, fd, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_count() == (ssize_t)sizeof common);
        CHECK(omp_file_tell(fd) == 100 + (ssize_t)sizeof common);
        CHECK(omp_file_write_com_list_all(list, 2, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(omp_file_tell(fd) == 1100 + (ssize_t)sizeof common);
        CHECK(omp_file_write_com_at_all(common, 100, 0, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(omp_file_write_com_list_at_all(list, offsets, 2, fd, OMP_FILE_UNKNOWN) == 0);
#pragma omp barrier
#pragma omp master
        memset(read_common, 0, sizeof read_common);
#pragma omp barrier
        CHECK(omp_file_seek_all(fd, 100) == 0);
        CHECK(omp_file_read_com_all(read_common, sizeof read_common, fd, OMP_FILE_CONTIG) == 0);
        CHECK(memcmp(read_common, common, sizeof common) == 0);
#pragma omp barrier
        CHECK(omp_file_read_com_list_all(into, 2, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(memcmp(read_common, common, 900) == 0);
#pragma omp barrier
        CHECK(omp_file_read_com_at_all(read_common + 500, 500, 8000, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(memcmp(read_common + 500, common, 500) == 0);
#pragma omp barrier
        CHECK(omp_file_read_com_list_at_all(into, offsets, 2, fd, OMP_FILE_UNKNOWN) == 0);
        CHECK(memcmp(read_common, common, 1000) == 0);
    }
}

/* Calls of one thread alone, as in tasks. */
static void alone(int fd) {
    char got[PART];
    CHECK(omp_file_seek_all(fd, 20000) == 0);
#pragma omp parallel num_threads(threads)
#pragma omp single
    for (int part = 9; part >= 0; part--) {
#pragma omp task firstprivate(part)
        {
            char mine[300];
            memset(mine, byte_of(part, 5), sizeof mine);
            CHECK(omp_file_write_part(mine, 100 + part, part, 10, fd) == 0);
            CHECK(omp_file_write_at(mine, 50, 30000 + part * 50, fd) == 0 && omp_file_count() == 50);
        }
    }
    long at = 20000;
    for (int part = 0; part < 10; part++) {
        CHECK(omp_file_read_at(got, 100 + part, at, fd) == 0 && all_are(got, 100 + part, byte_of(part, 5)));
        CHECK(omp_file_read_at(got, 50, 30000 + part * 50, fd) == 0 && all_are(got, 50, byte_of(part, 5)));
        at += 100 + part;
    }
    CHECK(omp_file_tell(fd) == at);
    CHECK_FAILS(omp_file_read_at(got, 100, 30490, fd), OMP_FILE_EEOF, "ends after 10 of 100 bytes");
    CHECK(omp_file_count() == 10);
    CHECK_FAILS(omp_file_write_part(got, 1, 3, 3, fd), EINVAL, "part 3");
    CHECK_FAILS(omp_file_write_part(got, 1, -1, 3, fd), EINVAL, "part -1 of 3");
    CHECK_FAILS(omp_file_write_at(got, -1, 0, fd), EINVAL, "-1 bytes");
    CHECK_FAILS(omp_file_write_at(NULL, 1, 0, fd), EINVAL, "null pointer");
    CHECK_FAILS(omp_file_read_at(got, 1, -7, fd), EINVAL, "offset -7");
    CHECK_FAILS(omp_file_seek_all(fd, -1), EINVAL, "offset");
}

/* Wrong arguments of one thread: an error of all, and nothing is written. With writes that go behind, threads that have gone on
 * would learn of it by their next call. */
static void wrong_arguments(const char *name) {
    int fd = -1;
    CHECK(omp_file_set("write_behind", "off") == 0);
    CHECK(omp_file_open_all(&fd, name, O_RDWR) == 0);
    CHECK(omp_file_set("write_behind", NULL) == 0);
    long pointer = omp_file_tell(fd), size = omp_file_size(fd);
#pragma omp parallel num_threads(threads)
    {
        char mine[16] = "0123456789abcde";
        int wrong = omp_get_thread_num() == threads - 1;
        off_t good_offsets[1] = {0}, bad_offsets[1] = {-3};
        struct iovec list[1] = {{mine, 8}}, bad_list[1] = {{NULL, 8}};
        off_t *offsets = wrong ? bad_offsets : good_offsets;
        struct iovec *parts = wrong ? bad_list : list;
        void *buffer = wrong ? NULL : mine;
        CHECK_FAILS(omp_file_write_all(mine, wrong ? -1 : 8, fd, 1), EINVAL, "-1 bytes");
        CHECK_FAILS(omp_file_read_all(buffer, 8, fd, 1), EINVAL, "null pointer");
        CHECK_FAILS(omp_file_write_at_all(mine, 8, wrong ? -9 : 0, fd, 0), EINVAL, "offset -9");
        CHECK_FAILS(omp_file_read_at_all(mine, 8, wrong ? -9 : 0, fd, 0), EINVAL, "offset -9");
        CHECK_FAILS(omp_file_write_list_all(list, wrong ? -1 : 1, fd, 0), EINVAL, "list of -1");
        CHECK_FAILS(omp_file_read_list_all(wrong ? NULL : list, 1, fd, 0), EINVAL, "null pointer");
        CHECK_FAILS(omp_file_write_list_at_all(list, offsets, 1, fd, 0), EINVAL, "offset -3");
        CHECK_FAILS(omp_file_read_list_at_all(list, wrong ? NULL : offsets, 1, fd, 0), EINVAL, "null pointer");
        CHECK_FAILS(omp_file_write_com_all(mine, wrong ? -1 : 8, fd, 1), EINVAL, "-1 bytes");
        CHECK_FAILS(omp_file_read_com_all(buffer, 8, fd, 1), EINVAL, "null pointer");
        CHECK_FAILS(omp_file_write_com_at_all(mine, 8, wrong ? -1 : 0, fd, 1), EINVAL, "offset -1");
        CHECK_FAILS(omp_file_read_com_at_all(mine, wrong ? -1 : 8, 0, fd, 1), EINVAL, "-1 bytes");
        CHECK_FAILS(omp_file_write_com_list_all(parts, 1, fd, 0), EINVAL, "null pointer");
        CHECK_FAILS(omp_file_read_com_list_all(list, wrong ? -1 : 1, fd, 0), EINVAL, "list of -1");
        CHECK_FAILS(omp_file_write_com_list_at_all(list, offsets, 1, fd, 0), EINVAL, "offset -3");
        CHECK_FAILS(omp_file_read_com_list_at_all(parts, good_offsets, 1, fd, 0), EINVAL, "null pointer");
        /* Empty parts take part, also with null pointers. */
        CHECK(omp_file_write_all(NULL, 0, fd, OMP_FILE_CONTIG) == 0 && omp_file_count() == 0);
        CHECK(omp_file_write_list_at_all(NULL, NULL, 0, fd, OMP_FILE_UNKNOWN) == 0);
    }
    CHECK(omp_file_tell(fd) == pointer && omp_file_size(fd) == size);
    CHECK(omp_file_close_all(fd) == 0);
}

/* Threads that disagree. */
static void disagreement(int fd) {
    if (threads == 1) return;
#pragma omp parallel num_threads(threads)
    {
        int other = omp_get_thread_num() == 1;
        char mine[8] = "1234567";
        ssize_t result = other ? omp_file_read_at_all(mine, 8, 0, fd, 0) : omp_file_fsync(fd);
        CHECK(result == -1 && omp_file_errno() == OMP_FILE_ENOTSAME);
        result = omp_file_read_at_all(mine, 8, 0, fd, other ? OMP_FILE_CONTIG : OMP_FILE_NONCONTIG);
        CHECK(result == -1 && omp_file_errno() == OMP_FILE_ENOTSAME);
        result = omp_file_read_com_at_all(mine, other ? 4 : 8, 0, fd, 0);
        CHECK(result == -1 && omp_file_errno() == OMP_FILE_ENOTSAME);
        CHECK(omp_file_read_at_all(mine, 8, 0, fd, 0) == 0);
    }
}

/* Numbers that are no handles, and handles that are no descriptors. */
static void handles(int fd, const char *name) {
    char byte = 'x';
    int plain = open("/dev/null", O_WRONLY), other = -5;
    CHECK(1 << 30 <= fd);
    CHECK(write(fd, &byte, 1) == -1 && errno == EBADF);
    CHECK_FAILS(omp_file_write_all(&byte, 1, plain, 0), EBADF, "is not a handle of omp_file_open_all");
    CHECK(errno == EBADF);
    CHECK_FAILS(omp_file_close_all(-1), EBADF, "-1 is not a handle");
    CHECK_FAILS(omp_file_fsync(0), EBADF, "0 is not a handle");
    CHECK_FAILS(omp_file_tell(plain), EBADF, "is not a handle");
    CHECK_FAILS(omp_file_size(fd + 100000), EBADF, "is not a handle");
    CHECK_FAILS(omp_file_open_all(NULL, name, O_RDONLY), EINVAL, "null pointer");
    CHECK_FAILS(omp_file_open_all(&other, NULL, O_RDONLY), EINVAL, "null pointer");
    CHECK_FAILS(omp_file_open_all(&other, name, O_CREAT | O_EXCL | O_RDWR, 0600), EEXIST, "exists");
    CHECK_FAILS(omp_file_open_all(&other, "missing/file", O_RDONLY), ENOENT, "missing/file");
    CHECK_FAILS(omp_file_open_all(&other, "pario://no-such-partition/f", O_RDONLY), omp_file_errno(), "no-such-partition");
    CHECK(other == -5);
    CHECK(omp_file_open_all(&other, name, O_RDONLY) == 0 && other != fd);
    CHECK(omp_file_write_all(&byte, 1, other, 0) == -1 && errno == EBADF);
    CHECK(omp_file_close_all(other) == 0);
    CHECK_FAILS(omp_file_close_all(other), OMP_FILE_ECLOSED, "is closed");
    CHECK_FAILS(omp_file_read_at(&byte, 1, 0, other), OMP_FILE_ECLOSED, "is closed");
    close(plain);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int good = omp_file_read_at(&byte, 1, 0, fd) == -1 && omp_file_errno() == OMP_FILE_ECLOSED &&
                   strstr(omp_file_strerror(), "parent") != NULL;
        _exit(good ? 7 : 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void settings(const char *name) {
    int fd;
    CHECK(omp_file_set("active", "1") == 0);
    CHECK(omp_file_set("write_behind", "off") == 0);
    CHECK(omp_file_open_all(&fd, name, O_WRONLY | O_APPEND) == 0);
    CHECK(omp_file_tell(fd) == omp_file_size(fd));
    CHECK(omp_file_close_all(fd) == 0);
    CHECK(omp_file_set("active", NULL) == 0);
    CHECK(omp_file_set("write_behind", NULL) == 0);
    CHECK_FAILS(omp_file_set("active", "none"), EINVAL, "active=none");
    CHECK_FAILS(omp_file_set("speed", "high"), EINVAL, "'speed' is not a setting");
    CHECK_FAILS(omp_file_set(NULL, "1"), EINVAL, "null pointer");
    ompc_barrier_init(4);
}

int main(int count, char **words) {
    const char *name = words[1];
    if (count > 2) threads = atoi(words[2]);
    int fd = -1;
    CHECK(omp_file_open_all(&fd, name, O_CREAT | O_RDWR, 0640) == 0);
    at_pointer(fd);
    at_offsets(fd);
    together(fd);
    alone(fd);
    wrong_arguments(name);
    disagreement(fd);
    handles(fd, name);
    settings(name);
#pragma omp parallel num_threads(threads)
    CHECK(omp_file_close_all(fd) == 0);
    return check_end();
}
