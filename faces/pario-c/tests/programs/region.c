/* A library with a parallel region of the compiler's own OpenMP runtime: its threads write a file together. */
#include <omp.h>
#include <omp_file.h>

/* Writes one byte per thread into an open file; returns the calls that failed. */
int write_by_region(int fd, int threads, char first) {
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : failed)
    {
        char byte = (char)(first + omp_get_thread_num());
        failed += omp_file_write_all(&byte, 1, fd, OMP_FILE_CONTIG) != 0;
    }
    return failed;
}

/* Calls back from each thread of a region, which may begin a region of another runtime. */
int call_in_region(int threads, int (*call)(int fd), int fd) {
    int failed = 0;
#pragma omp parallel num_threads(threads) reduction(+ : failed)
    failed += call(fd);
    return failed;
}
