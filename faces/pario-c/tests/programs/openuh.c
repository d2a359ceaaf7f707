/* A program for OpenUH's library: its own declarations, with `int` and `ssize_t` results, no header of ours, no mode. Argument: file. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <omp.h>

extern int omp_file_open_all(int *fd, char *name, int oflag, ...);
extern void omp_file_close_all(int fd);
extern int omp_file_fsync(int fd);
extern ssize_t omp_file_write_all(void *buffer, long length, int fd, int hint);
extern int omp_file_read_at_all(void *buffer, long length, off_t offset, int fd, int hint);
extern ssize_t omp_file_write_list_at_all(void *list, off_t *offsets, int size, int fd, int hint);
extern int omp_file_read_com_at_all(void *buffer, long length, off_t offset, int fd, int hint);
extern void ompc_barrier_init(int threads);

int main(int count, char **words) {
    if (count < 2) return 2;
    int fd, failures = 0;
    char all[40];
    ompc_barrier_init(4);
#pragma omp parallel num_threads(4) shared(fd, all) reduction(+ : failures)
    {
        int me = omp_get_thread_num();
        char mine[10], got[10];
        memset(mine, 'a' + me, sizeof mine);
        failures += omp_file_open_all(&fd, words[1], O_CREAT | O_RDWR) != 0;
        failures += omp_file_write_all(mine, 10, fd, 1) < 0;
        off_t offsets[2] = {me * 10, me * 10 + 5};
        struct iovec list[2] = {{mine, 5}, {mine, 5}};
        failures += omp_file_write_list_at_all(list, offsets, 2, fd, 0) < 0;
        failures += omp_file_fsync(fd) != 0;
        failures += omp_file_read_at_all(got, 10, (3 - me) * 10, fd, -1) != 0 || got[9] != 'a' + 3 - me;
        failures += omp_file_read_at_all(got, 10, 1000, fd, -1) != -1;
        failures += omp_file_read_com_at_all(all, 40, 0, fd, 1) != 0 || all[39] != 'd';
        omp_file_close_all(fd);
    }
    printf("%d failures\n", failures);
    return failures != 0;
}
