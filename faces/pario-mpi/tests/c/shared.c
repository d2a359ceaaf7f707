/* The shared pointer, ordered accesses and atomic mode. */
#include "suite.h"

enum { NEW = MPI_MODE_CREATE | MPI_MODE_RDWR, ROUNDS = 20 };

/* Every rank's numbers are there, each once, in whichever order. */
static void shared(void)
{
    MPI_Status status;
    MPI_Offset at;
    MPI_Request request;
    int number, *all = calloc((size_t) (ROUNDS * size), sizeof(int)), *seen = calloc((size_t) (ROUNDS * size), sizeof(int));
    MPI_File file = open_file(MPI_COMM_WORLD, "shared", NEW);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int round = 0; round < ROUNDS; round++) {
        number = rank * ROUNDS + round;
        if (round % 2) {
            OK(MPI_File_write_shared(file, &number, 1, MPI_INT, &status));
        } else {
            OK(MPI_File_iwrite_shared(file, &number, 1, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
        }
        CHECK(got(&status, MPI_INT) == 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == ROUNDS * size);
    OK(MPI_File_read_at_all(file, 0, all, ROUNDS * size, MPI_INT, &status));
    for (int i = 0; i < ROUNDS * size; i++)
        seen[all[i] % (ROUNDS * size)]++;
    for (int i = 0; i < ROUNDS * size; i++)
        CHECK(seen[i] == 1);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    memset(seen, 0, sizeof(int) * (size_t) (ROUNDS * size));
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 2) {
            OK(MPI_File_read_shared(file, &number, 1, MPI_INT, &status));
        } else {
            OK(MPI_File_iread_shared(file, &number, 1, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
        }
        seen[number]++;
    }
    MPI_Allreduce(MPI_IN_PLACE, seen, ROUNDS * size, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < ROUNDS * size; i++)
        CHECK(seen[i] == 1);
    FAILS(MPI_File_seek_shared(file, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    OK(MPI_File_close(&file));
    free(all);
    free(seen);
}

/* Ranks' parts are in the order of ranks, whatever their lengths. */
static void ordered(void)
{
    MPI_Status status;
    MPI_Offset at;
    int wrote[64], found[64], count = rank + 1, before = rank * (rank + 1) / 2, total = size * (size + 1) / 2;
    MPI_File file = open_file(MPI_COMM_WORLD, "ordered", NEW);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int i = 0; i < count; i++)
        wrote[i] = before + i;
    OK(MPI_File_write_ordered(file, wrote, count, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == count);
    for (int i = 0; i < count; i++)
        wrote[i] += total;
    OK(MPI_File_write_ordered_begin(file, wrote, count, MPI_INT));
    OK(MPI_File_write_ordered_end(file, wrote, &status));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_position_shared(file, &at));
    CHECK(at == 2 * total);
    for (int i = 0; i < 2 * total; i++) {
        OK(MPI_File_read_at(file, i, &found[0], 1, MPI_INT, &status));
        CHECK(found[0] == i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_ordered(file, found, count, MPI_INT, &status));
    for (int i = 0; i < count; i++)
        CHECK(found[i] == before + i);
    OK(MPI_File_read_ordered_begin(file, found, count, MPI_INT));
    OK(MPI_File_read_ordered_end(file, found, &status));
    CHECK(memcmp(found, wrote, sizeof(int) * (size_t) count) == 0);
    OK(MPI_File_close(&file));
}

/* Overlapping writes in atomic mode leave one rank's bytes, not a mixture. */
static void atomic(void)
{
    enum { BYTES = 100000 };
    static char data[BYTES];
    int flag = 0;
    MPI_File file = open_file(MPI_COMM_WORLD, "atomic", NEW);
    OK(MPI_File_set_atomicity(file, 1));
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag == 1);
    for (int round = 0; round < 10; round++) {
        memset(data, 'a' + rank, BYTES);
        OK(MPI_File_write_at(file, 0, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(file, 0, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        int mixed = 0;
        for (int i = 1; i < BYTES; i++)
            mixed |= data[i] != data[0];
        CHECK(!mixed);
    }
    if (size > 1)
        FAILS(MPI_File_set_atomicity(file, rank == 0), MPI_ERR_NOT_SAME);
    OK(MPI_File_set_atomicity(file, 0));
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    shared();
    ordered();
    atomic();
    return end();
}
