/* external32 beyond integers: the standard's bytes in the file, the program's values in memory, whichever way they go. */
#include "suite.h"
#include <stddef.h>
#include <stdint.h>

enum { NEW = MPI_MODE_CREATE | MPI_MODE_RDWR, N = 48 };

/* A value's bytes, the largest first. */
static void big_endian(const void *value, size_t bytes, unsigned char *to)
{
    const unsigned char *from = value;
    const uint16_t probe = 1;
    int little = *(const unsigned char *) &probe;
    for (size_t at = 0; at < bytes; at++)
        to[at] = from[little ? bytes - 1 - at : at];
}

/* Writes N values of a type, each rank its own part, and looks at what is in the file and at what comes back. */
static void values(const char *tail, MPI_Datatype type, const void *data, size_t bytes)
{
    MPI_Status status;
    MPI_Aint extent;
    MPI_Offset length;
    unsigned char raw[N * 16], wanted[N * 16], back[N * 16];
    MPI_File file = open_file(MPI_COMM_WORLD, tail, NEW);
    OK(MPI_File_set_view(file, (MPI_Offset) rank * N * (MPI_Offset) bytes, type, type, "external32", MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(file, type, &extent));
    CHECK(extent == (MPI_Aint) bytes);
    OK(MPI_File_write_at_all(file, 0, data, N, type, &status));
    CHECK(got(&status, type) == N);
    memset(back, 0, sizeof back);
    OK(MPI_File_read_at_all(file, 0, back, N, type, &status));
    CHECK(got(&status, type) == N);
    CHECK(memcmp(back, data, N * bytes) == 0);
    /* Half of it, by requests and by two halves of a call. */
    MPI_Request request;
    memset(back, 0, sizeof back);
    OK(MPI_File_iread_at(file, N / 2, back, N / 2, type, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(got(&status, type) == N / 2);
    CHECK(memcmp(back, (const char *) data + N / 2 * bytes, N / 2 * bytes) == 0);
    OK(MPI_File_read_at_all_begin(file, 0, back, N / 2, type));
    OK(MPI_File_read_at_all_end(file, back, &status));
    CHECK(memcmp(back, data, N / 2 * bytes) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &length));
    CHECK(length == (MPI_Offset) size * N * (MPI_Offset) bytes);
    for (int at = 0; at < N; at++)
        big_endian((const char *) data + (size_t) at * bytes, bytes, wanted + (size_t) at * bytes);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at_all(file, (MPI_Offset) rank * N * (MPI_Offset) bytes, raw, (int) (N * bytes), MPI_BYTE, &status));
    CHECK(memcmp(raw, wanted, N * bytes) == 0);
    OK(MPI_File_close(&file));
}

static void every_type(void)
{
    double doubles[N];
    float floats[N];
    short shorts[N];
    long long longs[N];
    signed char chars[N];
    for (int at = 0; at < N; at++) {
        doubles[at] = (at + 1) * 3.25e100 * (rank + 1);
        floats[at] = (float) (at + 1) * -1.5e-20f;
        shorts[at] = (short) (0x0102 + at + rank);
        longs[at] = 0x0102030405060708LL * (at + 1) + rank;
        chars[at] = (signed char) (at - 20);
    }
    values("doubles", MPI_DOUBLE, doubles, 8);
    values("floats", MPI_FLOAT, floats, 4);
    values("shorts", MPI_SHORT, shorts, 2);
    values("longs", MPI_LONG_LONG, longs, 8);
    values("chars", MPI_SIGNED_CHAR, chars, 1);
}

/* The file type has gaps, and so has memory. */
static void gaps(void)
{
    MPI_Status status;
    MPI_Datatype strided, spread;
    double data[2 * N], back[2 * N];
    unsigned char raw[8], wanted[8];
    MPI_File file = open_file(MPI_COMM_WORLD, "gaps", NEW);
    MPI_Type_vector(N, 1, size, MPI_DOUBLE, &strided);
    MPI_Type_vector(N, 1, 2, MPI_DOUBLE, &spread);
    MPI_Type_commit(&strided);
    MPI_Type_commit(&spread);
    for (int at = 0; at < 2 * N; at++)
        data[at] = at % 2 ? -1 : at * 1.5 + rank, back[at] = -1;
    OK(MPI_File_set_view(file, rank * 8, MPI_DOUBLE, strided, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(file, 0, data, 1, spread, &status));
    CHECK(got(&status, MPI_DOUBLE) == N);
    OK(MPI_File_read_at_all(file, 0, back, 1, spread, &status));
    CHECK(memcmp(back, data, sizeof data) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    for (int at = 0; at < N; at += 7) {
        big_endian(&data[2 * at], 8, wanted);
        OK(MPI_File_read_at(file, (MPI_Offset) (at * size + rank) * 8, raw, 8, MPI_BYTE, &status));
        CHECK(memcmp(raw, wanted, 8) == 0);
    }
    MPI_Type_free(&strided);
    MPI_Type_free(&spread);
    OK(MPI_File_close(&file));
}

/* Several types in one access: memory has a structure with holes, the file has none. */
static void structures(void)
{
    struct cell {
        double weight;
        int number;
        short kind;
    } cells[N], back[N];
    MPI_Status status;
    MPI_Datatype packed, cell;
    int lengths[] = {1, 1, 1};
    MPI_Aint places[] = {offsetof(struct cell, weight), offsetof(struct cell, number), offsetof(struct cell, kind)}, tight[] = {0, 8, 12};
    MPI_Datatype types[] = {MPI_DOUBLE, MPI_INT, MPI_SHORT};
    MPI_Type_create_struct(3, lengths, places, types, &packed);
    MPI_Type_create_resized(packed, 0, sizeof(struct cell), &cell);
    MPI_Type_free(&packed);
    MPI_Type_create_struct(3, lengths, tight, types, &packed);
    MPI_Datatype filetype;
    MPI_Type_create_resized(packed, 0, 14, &filetype);
    MPI_Type_commit(&cell);
    MPI_Type_commit(&filetype);
    memset(cells, 0, sizeof cells);
    memset(back, 0, sizeof back);
    for (int at = 0; at < N; at++)
        cells[at] = (struct cell){.weight = at * 0.1 + rank, .number = 1000 * rank + at, .kind = (short) (at - 3)};
    MPI_File file = open_file(MPI_COMM_WORLD, "structures", NEW);
    OK(MPI_File_set_view(file, (MPI_Offset) rank * N * 14, filetype, filetype, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(file, 0, cells, N, cell, &status));
    CHECK(got(&status, cell) == N);
    OK(MPI_File_read_at_all(file, 0, back, N, cell, &status));
    int differing = 0;
    for (int at = 0; at < N; at++)
        differing += back[at].weight != cells[at].weight || back[at].number != cells[at].number || back[at].kind != cells[at].kind;
    CHECK(differing == 0);
    unsigned char raw[14], wanted[14];
    big_endian(&cells[5].weight, 8, wanted);
    big_endian(&cells[5].number, 4, wanted + 8);
    big_endian(&cells[5].kind, 2, wanted + 12);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(file, (MPI_Offset) (rank * N + 5) * 14, raw, 14, MPI_BYTE, &status));
    CHECK(memcmp(raw, wanted, 14) == 0);
    MPI_Type_free(&packed);
    MPI_Type_free(&cell);
    MPI_Type_free(&filetype);
    OK(MPI_File_close(&file));
}

/* Whether the MPI library's own conversion of a long double can be undone; that of Open MPI 4 cannot. */
static int can_be_undone(void)
{
    long double value = 1.25L, back = 0;
    unsigned char bytes[64];
    MPI_Aint at = 0, from = 0;
    int packed = MPI_Pack_external("external32", &value, 1, MPI_LONG_DOUBLE, bytes, sizeof bytes, &at);
    if (packed != MPI_SUCCESS || MPI_Unpack_external("external32", bytes, at, &from, &back, 1, MPI_LONG_DOUBLE) != MPI_SUCCESS)
        return 0;
    return back == value;
}

/* What no two MPIs write alike comes back as it was, where the library can do that. */
static void round_trips(void)
{
    MPI_Status status;
    long double wide[N], wide_back[N];
    memset(wide, 0, sizeof wide);
    memset(wide_back, 0, sizeof wide_back);
    for (int at = 0; at < N; at++)
        wide[at] = at * 1.25L - rank;
    MPI_File file = open_file(MPI_COMM_WORLD, "wide", NEW);
    OK(MPI_File_set_view(file, (MPI_Offset) rank * N * 16, MPI_LONG_DOUBLE, MPI_LONG_DOUBLE, "external32", MPI_INFO_NULL));
    int code = MPI_File_write_at_all(file, 0, wide, N, MPI_LONG_DOUBLE, &status);
    /* A library may have no such conversion; then it says so. */
    if (code == MPI_SUCCESS) {
        OK(MPI_File_read_at_all(file, 0, wide_back, N, MPI_LONG_DOUBLE, &status));
        int differing = 0;
        for (int at = 0; at < N; at++)
            differing += wide_back[at] != wide[at];
        CHECK(differing == 0 || !can_be_undone());
    } else {
        FAILS(code, MPI_ERR_CONVERSION);
    }
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    every_type();
    gaps();
    structures();
    round_trips();
    return end();
}
