/* MPI_THREAD_MULTIPLE: threads of a rank on one file and on files of their own, and requests that overlap. */
#include "suite.h"
#include <pthread.h>

enum { NEW = MPI_MODE_CREATE | MPI_MODE_RDWR, THREADS = 4, ROUNDS = 50, INTS = 500 };
static MPI_File common;

static void *work(void *argument)
{
    int thread = *(int *) argument, wrote[INTS], found[INTS];
    long bad = 0;
    char tail[64];
    MPI_File own;
    MPI_Request requests[2];
    snprintf(tail, sizeof tail, "%sthread-%d-%d", base, rank, thread);
    if (MPI_File_open(MPI_COMM_SELF, tail, NEW, MPI_INFO_NULL, &own) != MPI_SUCCESS)
        return (void *) 1;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Offset at = (((MPI_Offset) rank * THREADS + thread) * ROUNDS + round) * INTS * 4;
        for (int i = 0; i < INTS; i++)
            wrote[i] = (rank * THREADS + thread) * 1000 + round + i;
        bad += MPI_File_iwrite_at(common, at, wrote, INTS, MPI_INT, &requests[0]) != MPI_SUCCESS;
        bad += MPI_File_iwrite_at(own, round * INTS * 4, wrote, INTS, MPI_INT, &requests[1]) != MPI_SUCCESS;
        bad += MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) != MPI_SUCCESS;
        bad += MPI_File_read_at(common, at, found, INTS, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        bad += memcmp(wrote, found, sizeof wrote) != 0;
        bad += MPI_File_read_at(own, round * INTS * 4, found, INTS, MPI_INT, MPI_STATUS_IGNORE) != MPI_SUCCESS;
        bad += memcmp(wrote, found, sizeof wrote) != 0;
    }
    bad += MPI_File_close(&own) != MPI_SUCCESS;
    return (void *) bad;
}

int main(int argc, char **argv)
{
    int level, numbers[THREADS];
    pthread_t threads[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    base = argv[1];
    CHECK(level == MPI_THREAD_MULTIPLE);
    common = open_file(MPI_COMM_WORLD, "common", NEW);
    for (int at = 0; at < THREADS; at++) {
        numbers[at] = at;
        pthread_create(&threads[at], NULL, work, &numbers[at]);
    }
    for (int at = 0; at < THREADS; at++) {
        void *bad;
        pthread_join(threads[at], &bad);
        CHECK(bad == NULL);
    }
    OK(MPI_File_close(&common));
    return end();
}
