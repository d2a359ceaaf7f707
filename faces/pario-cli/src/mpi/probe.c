/* Two ranks write and read one file through interleaved views and compare; `pario doctor mpi` runs it. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { BLOCKS = 256, INTS = 64 };
static int wrote[BLOCKS * INTS], found[BLOCKS * INTS];

static void check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "%s: %s\n", what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

int main(int argc, char **argv)
{
    int rank, size, count;
    MPI_File file;
    MPI_Datatype filetype;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int at = 0; at < BLOCKS * INTS; at++)
        wrote[at] = rank * 1000000 + at;
    check(MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    MPI_Type_vector(BLOCKS, INTS, INTS * size, MPI_INT, &filetype);
    MPI_Type_commit(&filetype);
    check(MPI_File_set_view(file, (MPI_Offset) rank * INTS * sizeof(int), MPI_INT, filetype, "native", MPI_INFO_NULL), "view");
    check(MPI_File_write_all(file, wrote, BLOCKS * INTS, MPI_INT, MPI_STATUS_IGNORE), "write");
    check(MPI_File_read_at_all(file, 0, found, BLOCKS * INTS, MPI_INT, &status), "read");
    MPI_Get_count(&status, MPI_INT, &count);
    check(MPI_File_close(&file), "close");
    MPI_Type_free(&filetype);
    int wrong = count != BLOCKS * INTS || memcmp(wrote, found, sizeof wrote) != 0, any;
    MPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0)
        puts(any ? "what was read is not what was written" : "the same was read as was written");
    MPI_Finalize();
    return any;
}
