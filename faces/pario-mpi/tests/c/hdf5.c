/* Parallel HDF5 on MPI-IO: rows of a matrix dealt to ranks in slabs, written and read collectively and independently, on Pario
   and on a plain file; both files hold the same. argv: Pario's files, a plain directory, slabs; with "boxes" behind them boxes that are
   no rows are written, on Pario only, as many as slabs. */
#include "suite.h"
#include <hdf5.h>

enum { COLUMNS = 64 };

static void slab(hid_t set, hid_t plist, int slabs, int writing)
{
    int row[COLUMNS];
    for (int at = 0; at < slabs; at++) {
        hsize_t start[] = {(hsize_t) (at * size + rank), 0}, count[] = {1, COLUMNS};
        hid_t space = H5Dget_space(set), memory = H5Screate_simple(2, count, NULL);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL);
        for (int column = 0; column < COLUMNS; column++)
            row[column] = writing ? (at * size + rank) * COLUMNS + column : -1;
        if (writing) {
            CHECK(H5Dwrite(set, H5T_NATIVE_INT, memory, space, plist, row) >= 0);
        } else {
            CHECK(H5Dread(set, H5T_NATIVE_INT, memory, space, plist, row) >= 0);
            for (int column = 0; column < COLUMNS; column++)
                if (row[column] != (at * size + rank) * COLUMNS + column) {
                    CHECK(row[column] == (at * size + rank) * COLUMNS + column);
                    break;
                }
        }
        H5Sclose(space);
        H5Sclose(memory);
    }
}

static void file(const char *name, int slabs)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), create = H5Pcreate(H5P_FILE_CREATE), plist = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    hid_t set_create = H5Pcreate(H5P_DATASET_CREATE);
    /* No times in the file, so that two files can be compared byte by byte. */
    H5Pset_obj_track_times(set_create, 0);
    hid_t made = H5Fcreate(name, H5F_ACC_TRUNC, create, access);
    CHECK(made >= 0);
    hsize_t rows[] = {(hsize_t) (slabs * size), COLUMNS};
    hid_t space = H5Screate_simple(2, rows, NULL);
    hid_t sets[2];
    const char *names[] = {"collective", "independent"};
    for (int which = 0; which < 2; which++) {
        sets[which] = H5Dcreate2(made, names[which], H5T_NATIVE_INT, space, H5P_DEFAULT, set_create, H5P_DEFAULT);
        H5Pset_dxpl_mpio(plist, which ? H5FD_MPIO_INDEPENDENT : H5FD_MPIO_COLLECTIVE);
        slab(sets[which], plist, slabs, 1);
        slab(sets[which], plist, slabs, 0);
        H5Dclose(sets[which]);
    }
    H5Sclose(space);
    CHECK(H5Fclose(made) >= 0);
    made = H5Fopen(name, H5F_ACC_RDONLY, access);
    CHECK(made >= 0);
    hid_t set = H5Dopen2(made, "collective", H5P_DEFAULT);
    H5Pset_dxpl_mpio(plist, H5FD_MPIO_COLLECTIVE);
    slab(set, plist, slabs, 0);
    H5Dclose(set);
    CHECK(H5Fclose(made) >= 0);
    H5Pclose(access);
    H5Pclose(create);
    H5Pclose(set_create);
    H5Pclose(plist);
}

/* Both files byte by byte, by plain MPI-IO. */
static void compare(const char *one, const char *other)
{
    MPI_File files[2];
    MPI_Offset sizes[2];
    OK(MPI_File_open(MPI_COMM_SELF, one, MPI_MODE_RDONLY, MPI_INFO_NULL, &files[0]));
    OK(MPI_File_open(MPI_COMM_SELF, other, MPI_MODE_RDONLY, MPI_INFO_NULL, &files[1]));
    char *bytes[2];
    for (int which = 0; which < 2; which++) {
        OK(MPI_File_get_size(files[which], &sizes[which]));
        bytes[which] = malloc((size_t) sizes[which] + 1);
        OK(MPI_File_read_at(files[which], 0, bytes[which], (int) sizes[which], MPI_BYTE, MPI_STATUS_IGNORE));
        OK(MPI_File_close(&files[which]));
    }
    CHECK(sizes[0] == sizes[1]);
    CHECK(sizes[0] > 0 && sizes[0] == sizes[1] && memcmp(bytes[0], bytes[1], (size_t) sizes[0]) == 0);
    free(bytes[0]);
    free(bytes[1]);
}

/* Boxes of four rows and four columns, each written by a call of its own: their file types differ in their places only. */
static void boxes(const char *name, int count)
{
    enum { ACROSS = COLUMNS / 4 };
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), plist = H5Pcreate(H5P_DATASET_XFER);
    H5Pset_fapl_mpio(access, MPI_COMM_WORLD, MPI_INFO_NULL);
    H5Pset_dxpl_mpio(plist, H5FD_MPIO_COLLECTIVE);
    hid_t made = H5Fcreate(name, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    hsize_t rows[] = {(hsize_t) (1 + 1000 * size / ACROSS) * 4, COLUMNS}, part[] = {4, 4};
    hid_t space = H5Screate_simple(2, rows, NULL), memory = H5Screate_simple(2, part, NULL);
    hid_t set = H5Dcreate2(made, "boxes", H5T_NATIVE_INT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    int data[16];
    for (int writing = 1; writing >= 0; writing--)
        for (int at = 0; at < count; at++) {
            int number = at * size + rank, differing = 0;
            hsize_t start[] = {(hsize_t) (number / ACROSS) * 4, (hsize_t) (number % ACROSS) * 4};
            H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, part, NULL);
            for (int cell = 0; cell < 16; cell++)
                data[cell] = writing ? number * 16 + cell : -1;
            if (writing)
                CHECK(H5Dwrite(set, H5T_NATIVE_INT, memory, space, plist, data) >= 0);
            else
                CHECK(H5Dread(set, H5T_NATIVE_INT, memory, space, plist, data) >= 0);
            for (int cell = 0; cell < 16; cell++)
                differing += data[cell] != number * 16 + cell;
            CHECK(differing == 0);
        }
    H5Sclose(space), H5Sclose(memory), H5Dclose(set);
    CHECK(H5Fclose(made) >= 0);
    H5Pclose(access), H5Pclose(plist);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (argc > 4 && strcmp(argv[4], "boxes") == 0) {
        boxes(name_of("boxes.h5"), atoi(argv[3]));
        return end();
    }
    char plain[512];
    int slabs = atoi(argv[3]);
    snprintf(plain, sizeof plain, "%s/plain.h5", argv[2]);
    file(name_of("matrix.h5"), slabs);
    file(plain, slabs);
    if (rank == 0)
        compare(name_of("matrix.h5"), plain);
    return end();
}
