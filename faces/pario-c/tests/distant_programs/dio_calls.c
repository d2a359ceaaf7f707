/* Every function of dio.h: what it does, and a mistake. Arguments: a directory with one directory of each rank. */
#include "check_distant.h"
#include <dio.h>
#include <unistd.h>

#define RECORD 30000

int main(int argc, char **argv) {
    (void)argc;
    int rank = (int)pario_group_rank(), size = (int)pario_group_size();
    char dir[4096], name[8192], record[RECORD], found[RECORD];
    int files, file, looked, request = -1, flag, requests[2];
    snprintf(dir, sizeof dir, "%s/%d", argv[1], rank);

    CHECK(dio_register(-1, &files) == -1 && strstr(dio_error(), "dio_init") != NULL);
    CHECK(dio_finalize() == -1);
    CHECK(dio_init(dir) == 0);
    CHECK(dio_init(dir) == -1 && errno == EBUSY);

    snprintf(name, sizeof name, "%s/own", dir);
    int own = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(own >= 0);
    CHECK(unlink(name) == 0);
    CHECK(dio_register(own, &files) == 0);
    fill(record, RECORD, rank);
    for (int home = 0; home < size; home++) {
        int64_t at = (int64_t)rank * RECORD;
        CHECK(dio_write(files, at, record, RECORD, home, NULL) == RECORD);
        CHECK(dio_count() == RECORD);
    }
    CHECK(pario_group_barrier() == 0);
    /* The home sees the bytes by its own call. */
    for (int from = 0; from < size; from++) {
        CHECK(pread(own, found, RECORD, (off_t)from * RECORD) == RECORD);
        CHECK(filled(found, RECORD, from));
    }
    for (int home = 0; home < size; home++) {
        int from = (rank + 1) % size;
        CHECK(dio_read(files, (int64_t)from * RECORD, found, RECORD, home, &request) == 0);
        CHECK(dio_test(&request, &flag) == 0 && (flag == 0 || flag == 1));
        CHECK(dio_wait(&request) == RECORD && request == -1);
        CHECK(dio_wait(&request) == 0);
        CHECK(filled(found, RECORD, from));
        CHECK(dio_length(files, home) == (int64_t)size * RECORD);
        CHECK(dio_sync(files, home) == 0);
        CHECK(dio_read(files, (int64_t)size * RECORD - 5, found, RECORD, home, NULL) == 5);
        CHECK(dio_read(files, (int64_t)size * RECORD, found, RECORD, home, NULL) == 0);
    }
    CHECK(pario_group_barrier() == 0);
    if (rank == 0) CHECK(dio_truncate(files, size - 1, 17) == 0);
    CHECK(pario_group_barrier() == 0);
    CHECK(dio_length(files, size - 1) == 17);

    /* Files below a directory, without the help of their home. */
    int home = (rank + 1) % size;
    snprintf(name, sizeof name, "from%d", rank);
    CHECK(dio_open(home, name, O_RDWR | O_CREAT, &file) == 0);
    requests[0] = requests[1] = -1;
    CHECK(dio_write(file, 0, record, RECORD, home, &requests[0]) == 0);
    CHECK(dio_write(file, RECORD, record, RECORD, DIO_HOME, &requests[1]) == 0);
    CHECK(dio_waitall(requests, 2) == 0 && requests[0] == -1 && requests[1] == -1);
    CHECK(dio_publish(file, DIO_HOME, name) == 0);
    CHECK(dio_publish(file, DIO_HOME, name) == -1 && errno == EEXIST);
    CHECK(pario_group_barrier() == 0);
    snprintf(name, sizeof name, "from%d", (rank + 2) % size);
    CHECK(dio_lookup(name, &looked) == 0);
    CHECK(dio_read(looked, RECORD, found, RECORD, DIO_HOME, NULL) == RECORD);
    CHECK(filled(found, RECORD, (rank + 2) % size));
    CHECK(dio_close(looked) == 0);
    CHECK(dio_close(looked) == -1 && errno == EBADF);
    CHECK(dio_lookup("nothing", &looked) == -1 && errno == ENOENT);
    CHECK(pario_group_barrier() == 0);
    snprintf(name, sizeof name, "from%d", rank);
    CHECK(dio_close(file) == 0);
    CHECK(dio_remove(home, name) == 0);
    CHECK(dio_remove(home, name) == -1 && errno == ENOENT);

    /* Mistakes. */
    CHECK(dio_open(home, "../out", O_RDWR | O_CREAT, &file) == -1);
    CHECK(dio_open(99, "x", O_RDONLY, &file) == -1 && errno == EINVAL);
    CHECK(dio_open(home, "x", O_WRONLY, &file) == -1 && errno == EINVAL);
    CHECK(dio_read(files, -1, found, 1, 0, NULL) == -1 && errno == EINVAL);
    CHECK(dio_read(files, 0, NULL, 1, 0, NULL) == -1 && errno == EINVAL);
    CHECK(dio_read(files, 0, found, 1, size, NULL) == -1 && errno == EINVAL);
    CHECK(dio_write(5, 0, record, 1, 0, NULL) == -1 && errno == EBADF);
    request = 987654;
    CHECK(dio_wait(&request) == -1 && dio_test(&request, &flag) == 0);
    request = 987654;
    CHECK(dio_test(&request, &flag) == -1);
    CHECK(dio_truncate(files, 0, -1) == -1 && dio_sync(5, 0) == -1 && dio_length(5, 0) == -1);
    /* One process brings a number that is no descriptor: all are told. */
    CHECK(dio_register(rank == 0 ? 9999 : -1, &file) == -1 && strstr(dio_error(), "9999") != NULL);
    CHECK(pario_group_barrier() == 0);
    CHECK(dio_unregister(files) == 0);
    CHECK(dio_unregister(files) == -1 && errno == EBADF);
    CHECK(dio_finalize() == 0);
    close(own);
    return check_end();
}
