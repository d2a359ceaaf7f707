/* The group of a program that was not started by `pario run -n N`. Guide: docs/guide/distant.md.
 *
 *     #include <mpi.h>
 *     #include <pario_group.h>                                 mpicc app.c $(pario env --compile)
 *     MPI_Init(&argc, &argv);
 *     pario_group_from_comm(MPI_COMM_WORLD);                   all ranks; afterwards no MPI call is made
 */
#ifndef PARIO_GROUP_H
#define PARIO_GROUP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Forms the group of this process; all ranks call it. The exchange passes `bytes` bytes of this rank and receives those of all
 * ranks, in rank order; 0 is success. It is called until this function returns. 0, or -1 with errno and pario_error. */
int64_t pario_group_from_exchange(int rank, int size,
                                  int (*exchange)(const void *own, void *all, size_t bytes, void *context),
                                  void *context);

#ifdef MPI_VERSION
static int pario_exchange_in_comm(const void *own, void *all, size_t bytes, void *context) {
    return MPI_Allgather((void *)own, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, *(MPI_Comm *)context);
}

/* The same by the ranks of a communicator. */
static inline int64_t pario_group_from_comm(MPI_Comm comm) {
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    return pario_group_from_exchange(rank, size, pario_exchange_in_comm, &comm);
}
#endif

#ifdef __cplusplus
}
#endif
#endif
