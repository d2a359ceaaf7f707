/* Serial HDF5: makes a file, opens it again for reading, for writing, twice for reading, and not for writing beside. argv: the file. */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

enum { COUNT = 4096 };
static int checks, failures;
#define CHECK(condition) (checks++, (condition) ? 0 : (failures++, fprintf(stderr, "hdf5_serial.c:%d: %s is not so\n", __LINE__, #condition)))

int main(int argc, char **argv)
{
    int numbers[COUNT], found[COUNT];
    hsize_t size = COUNT;
    if (argc < 2)
        return 2;
    for (int at = 0; at < COUNT; at++)
        numbers[at] = at;
    /* Without times, so that two runs write the same bytes. */
    hid_t plain = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_obj_track_times(plain, 0);
    hid_t file = H5Fcreate(argv[1], H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    CHECK(file >= 0);
    hid_t group = H5Gcreate2(file, "group", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &size, NULL);
    hid_t data = H5Dcreate2(group, "numbers", H5T_NATIVE_INT, space, H5P_DEFAULT, plain, H5P_DEFAULT);
    CHECK(data >= 0 && H5Dwrite(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
    CHECK(H5Dclose(data) >= 0 && H5Gclose(group) >= 0 && H5Fclose(file) >= 0);
    file = H5Fopen(argv[1], H5F_ACC_RDONLY, H5P_DEFAULT);
    CHECK(file >= 0);
    memset(found, 0xff, sizeof found);
    data = H5Dopen2(file, "/group/numbers", H5P_DEFAULT);
    CHECK(data >= 0 && H5Dread(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, found) >= 0);
    CHECK(memcmp(numbers, found, sizeof found) == 0);
    CHECK(H5Dclose(data) >= 0 && H5Fclose(file) >= 0);
    file = H5Fopen(argv[1], H5F_ACC_RDWR, H5P_DEFAULT);
    CHECK(file >= 0);
    data = H5Dcreate2(file, "more", H5T_NATIVE_INT, space, H5P_DEFAULT, plain, H5P_DEFAULT);
    CHECK(data >= 0 && H5Dwrite(data, H5T_NATIVE_INT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
    CHECK(H5Dclose(data) >= 0 && H5Fclose(file) >= 0);
    CHECK(H5Fis_hdf5(argv[1]) > 0);
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
