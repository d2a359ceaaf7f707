/* A thread that does not come, and two teams on one handle. Runs with PARIO_TEAM_PATIENCE=300ms. Argument: a new file. */
#include "check.h"

#include <omp.h>
#include <pthread.h>

static int handle = -1;
static int told;

/* Thread 2 of 3 makes no call. */
static void missing_thread(void) {
#pragma omp parallel num_threads(3)
    {
        char byte = 'x';
        if (omp_get_thread_num() != 2) {
            CHECK_FAILS(omp_file_read_at_all(&byte, 1, 0, handle, 0), OMP_FILE_ELOST, "thread 2 of 3 is missing");
        }
    }
}

/* One of two teams on the same handle, at the same time. */
static void *team(void *unused) {
#pragma omp parallel num_threads(2)
    for (int again = 0; again < 200; again++) {
        char byte = 'y';
        if (omp_file_read_at_all(&byte, 1, 0, handle, 0) != 0) {
            long number = (long)omp_file_errno();
            CHECK(number == OMP_FILE_ETWOTEAMS || number == OMP_FILE_ELOST);
#pragma omp atomic
            told += number == OMP_FILE_ETWOTEAMS;
            break;
        }
    }
    return unused;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    CHECK(omp_file_open_all(&handle, words[1], O_CREAT | O_RDWR) == 0);
    CHECK(omp_file_write_all("z", 1, handle, OMP_FILE_CONTIG) == 0);
    pthread_t other;
    CHECK(pthread_create(&other, NULL, team, NULL) == 0);
    team(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    printf("%d told of two teams\n", told);
    CHECK(omp_file_close_all(handle) == 0);
    CHECK(omp_file_open_all(&handle, words[1], O_RDWR) == 0);
    missing_thread();
    CHECK(omp_file_close_all(handle) == 0);
    return check_end();
}
