/* A shared file of an MPI program, which gives its own exchange. Arguments: the name of the file. */
#include <mpi.h>
#include "check_distant.h"
#include <pario_group.h>
#include <sf.h>

#define RECORD 30720

int main(int argc, char **argv) {
    int rank, size, file, request;
    char record[RECORD];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > 1) {
        /* Without a group each rank would be alone. */
        CHECK(SF_Create(argv[1], 0, 0, RECORD, &file) == SF_OPENFAIL);
        CHECK(strstr(pario_error(), "pario_group_from_comm") != NULL);
    }
    CHECK(pario_group_from_exchange(0, 1, NULL, NULL) == -1 && errno == EINVAL);
    CHECK(pario_group_from_comm(MPI_COMM_WORLD) == 0);
    CHECK(pario_group_from_comm(MPI_COMM_WORLD) == -1 && errno == EBUSY);
    CHECK(SF_Create(argv[1], 0, 0, RECORD, &file) == 0);
    fill(record, RECORD, rank);
    CHECK(SF_Write(file, (double)rank * RECORD, RECORD, record, &request) == 0 && SF_Wait(&request) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    int other = (rank + 1) % size;
    CHECK(SF_Read(file, (double)other * RECORD, RECORD, record, &request) == 0 && SF_Wait(&request) == 0);
    CHECK(filled(record, RECORD, other));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(SF_Destroy(file) == 0);
    int failed = check_end();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return failed;
}
