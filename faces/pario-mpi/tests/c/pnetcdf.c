/* PnetCDF on MPI-IO: a variable whose planes are dealt to ranks, written and read, on Pario and on a plain file; both hold the same.
   argv: Pario's files, a plain directory. */
#include "suite.h"
#include <pnetcdf.h>

enum { PLANES = 8, ROWS = 20, COLUMNS = 30 };
static int wrote[PLANES * ROWS * COLUMNS], found[PLANES * ROWS * COLUMNS];

#define NC(call) nc(__LINE__, #call, (call))
static void nc(int line, const char *what, int code)
{
    checks++;
    if (code != NC_NOERR)
        wrong(__FILE__, line, what, ncmpi_strerror(code));
}

static void file(const char *name)
{
    int id, dims[3], variable;
    NC(ncmpi_create(MPI_COMM_WORLD, name, NC_CLOBBER | NC_64BIT_DATA, MPI_INFO_NULL, &id));
    NC(ncmpi_def_dim(id, "plane", PLANES, &dims[0]));
    NC(ncmpi_def_dim(id, "row", (MPI_Offset) ROWS * size, &dims[1]));
    NC(ncmpi_def_dim(id, "column", COLUMNS, &dims[2]));
    NC(ncmpi_def_var(id, "field", NC_INT, 3, dims, &variable));
    NC(ncmpi_put_att_text(id, NC_GLOBAL, "title", 5, "field"));
    NC(ncmpi_enddef(id));
    MPI_Offset start[] = {0, (MPI_Offset) ROWS * rank, 0}, count[] = {PLANES, ROWS, COLUMNS};
    NC(ncmpi_put_vara_int_all(id, variable, start, count, wrote));
    NC(ncmpi_close(id));
    NC(ncmpi_open(MPI_COMM_WORLD, name, NC_NOWRITE, MPI_INFO_NULL, &id));
    NC(ncmpi_inq_varid(id, "field", &variable));
    memset(found, 0, sizeof found);
    NC(ncmpi_get_vara_int_all(id, variable, start, count, found));
    CHECK(memcmp(wrote, found, sizeof wrote) == 0);
    NC(ncmpi_close(id));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int at = 0; at < PLANES * ROWS * COLUMNS; at++)
        wrote[at] = rank * 1000000 + at;
    char plain[512];
    snprintf(plain, sizeof plain, "%s/plain.nc", argv[2]);
    /* Twice: the second time it is there and is replaced, which PnetCDF does by POSIX calls of rank 0. */
    file(name_of("field.nc"));
    file(name_of("field.nc"));
    file(plain);
    if (rank == 0) {
        MPI_File files[2];
        MPI_Offset sizes[2];
        char *bytes[2];
        OK(MPI_File_open(MPI_COMM_SELF, name_of("field.nc"), MPI_MODE_RDONLY, MPI_INFO_NULL, &files[0]));
        OK(MPI_File_open(MPI_COMM_SELF, plain, MPI_MODE_RDONLY, MPI_INFO_NULL, &files[1]));
        for (int which = 0; which < 2; which++) {
            OK(MPI_File_get_size(files[which], &sizes[which]));
            bytes[which] = malloc((size_t) sizes[which] + 1);
            OK(MPI_File_read_at(files[which], 0, bytes[which], (int) sizes[which], MPI_BYTE, MPI_STATUS_IGNORE));
            OK(MPI_File_close(&files[which]));
        }
        CHECK(sizes[0] == sizes[1]);
        CHECK(sizes[0] > 0 && sizes[0] == sizes[1] && memcmp(bytes[0], bytes[1], (size_t) sizes[0]) == 0);
    }
    return end();
}
