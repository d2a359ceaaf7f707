/* Reading and writing in all the ways that do not need a shared pointer; exact statuses; mistakes. */
#include "suite.h"

enum { NEW = MPI_MODE_CREATE | MPI_MODE_RDWR, N = 1000 };
static int wrote[N], found[2 * N];

static void fill(int salt)
{
    for (int at = 0; at < N; at++)
        wrote[at] = salt * 100000 + rank * 10000 + at;
    memset(found, 0xee, sizeof found);
}

static void same(int line)
{
    checks++;
    if (memcmp(wrote, found, sizeof wrote) != 0)
        wrong(__FILE__, line, "found", "is not what was written");
}
#define SAME() same(__LINE__)

static MPI_File interleaved(const char *tail, int block)
{
    MPI_File file = open_file(MPI_COMM_WORLD, tail, NEW);
    MPI_Datatype type, whole;
    MPI_Type_vector(N / block, block, block * size, MPI_INT, &type);
    /* Nothing of other ranks behind the last block. */
    MPI_Type_create_resized(type, 0, (MPI_Aint) N * size * 4, &whole);
    MPI_Type_commit(&whole);
    OK(MPI_File_set_view(file, (MPI_Offset) rank * block * 4, MPI_INT, whole, "native", MPI_INFO_NULL));
    MPI_Type_free(&type);
    MPI_Type_free(&whole);
    return file;
}

static void blocking(void)
{
    MPI_Status status;
    MPI_Offset at;
    MPI_File file = interleaved("blocking", 10);
    fill(1);
    OK(MPI_File_write_at(file, 0, wrote, N, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == N);
    OK(MPI_File_read_at(file, 0, found, N, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == N);
    SAME();
    fill(2);
    OK(MPI_File_write_at_all(file, 0, wrote, N, MPI_INT, &status));
    OK(MPI_File_read_at_all(file, 0, found, N, MPI_INT, &status));
    SAME();
    fill(3);
    OK(MPI_File_write(file, wrote, N / 2, MPI_INT, &status));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == N / 2);
    OK(MPI_File_write_all(file, wrote + N / 2, N / 2, MPI_INT, &status));
    OK(MPI_File_get_position(file, &at));
    CHECK(at == N);
    OK(MPI_File_seek(file, -N, MPI_SEEK_CUR));
    OK(MPI_File_read(file, found, N / 2, MPI_INT, &status));
    OK(MPI_File_read_all(file, found + N / 2, N / 2, MPI_INT, &status));
    SAME();
    OK(MPI_File_get_byte_offset(file, 10, &at));
    CHECK(at == (MPI_Offset) (size * 10 + rank * 10) * 4);
    /* Behind the end there is nothing; in front of it as much as there is. */
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_read_at(file, N - 3, found, 10, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == 3);
    OK(MPI_File_read_at_all(file, N, found, 10, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == 0);
    OK(MPI_File_seek(file, 0, MPI_SEEK_END));
    OK(MPI_File_read_all(file, found, 5, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == 0);
    /* Nothing is something too. */
    OK(MPI_File_write_at_all(file, 0, rank == 0 ? wrote : NULL, rank == 0 ? 1 : 0, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == (rank == 0));
    OK(MPI_File_write_at(file, 0, wrote, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
}

static void later(void)
{
    MPI_Request requests[4];
    MPI_Status status, statuses[4];
    int flag;
    MPI_File file = interleaved("later", 20);
    fill(4);
    OK(MPI_File_iwrite_at(file, 0, wrote, N, MPI_INT, &requests[0]));
    OK(MPI_Wait(&requests[0], &status));
    CHECK(got(&status, MPI_INT) == N);
    OK(MPI_File_iread_at(file, 0, found, N, MPI_INT, &requests[0]));
    for (flag = 0; !flag;)
        OK(MPI_Test(&requests[0], &flag, &status));
    CHECK(got(&status, MPI_INT) == N);
    SAME();
    fill(5);
    OK(MPI_File_iwrite(file, wrote, N / 4, MPI_INT, &requests[0]));
    OK(MPI_File_iwrite(file, wrote + N / 4, N / 4, MPI_INT, &requests[1]));
    OK(MPI_File_iwrite_all(file, wrote + N / 2, N / 4, MPI_INT, &requests[2]));
    OK(MPI_File_iwrite_at_all(file, 3 * N / 4, wrote + 3 * N / 4, N / 4, MPI_INT, &requests[3]));
    OK(MPI_Waitall(4, requests, statuses));
    for (int at = 0; at < 4; at++)
        CHECK(got(&statuses[at], MPI_INT) == N / 4);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_iread(file, found, N / 2, MPI_INT, &requests[0]));
    OK(MPI_File_iread_all(file, found + N / 2, N / 4, MPI_INT, &requests[1]));
    OK(MPI_File_iread_at_all(file, 3 * N / 4, found + 3 * N / 4, N / 4, MPI_INT, &requests[2]));
    OK(MPI_Waitall(3, requests, statuses));
    SAME();
    /* A request of MPI's own among them. */
    int token = 0, sent = rank;
    OK(MPI_File_iread_at(file, 0, found, N, MPI_INT, &requests[0]));
    MPI_Irecv(&token, 1, MPI_INT, (rank + size - 1) % size, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&sent, 1, MPI_INT, (rank + 1) % size, 1, MPI_COMM_WORLD, &requests[2]);
    OK(MPI_Waitall(3, requests, statuses));
    CHECK(token == (rank + size - 1) % size);
    SAME();
    fill(6);
    OK(MPI_File_write_at_all_begin(file, 0, wrote, N, MPI_INT));
    FAILS(MPI_File_read_all_begin(file, found, N, MPI_INT), MPI_ERR_UNSUPPORTED_OPERATION);
    FAILS(MPI_File_write_all_end(file, wrote, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    OK(MPI_File_write_at_all_end(file, wrote, &status));
    CHECK(got(&status, MPI_INT) == N);
    OK(MPI_File_read_at_all_begin(file, 0, found, N, MPI_INT));
    OK(MPI_File_read_at_all_end(file, found, &status));
    SAME();
    fill(7);
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_write_all_begin(file, wrote, N, MPI_INT));
    OK(MPI_File_write_all_end(file, wrote, &status));
    OK(MPI_File_seek(file, 0, MPI_SEEK_SET));
    OK(MPI_File_read_all_begin(file, found, N, MPI_INT));
    OK(MPI_File_read_all_end(file, found, &status));
    CHECK(got(&status, MPI_INT) == N);
    SAME();
    FAILS(MPI_File_read_all_end(file, found, &status), MPI_ERR_UNSUPPORTED_OPERATION);
    OK(MPI_File_close(&file));
}

static void memory(void)
{
    MPI_Status status;
    MPI_Datatype column, absolute;
    MPI_Aint address;
    int elements;
    MPI_File file = open_file(MPI_COMM_WORLD, "memory", NEW);
    fill(8);
    /* Every second int of a buffer. */
    MPI_Type_vector(N / 2, 1, 2, MPI_INT, &column);
    MPI_Type_commit(&column);
    OK(MPI_File_write_at_all(file, (MPI_Offset) rank * N * 2, wrote, 1, column, &status));
    CHECK(got(&status, column) == 1);
    CHECK(got(&status, MPI_INT) == N / 2);
    OK(MPI_File_read_at(file, (MPI_Offset) rank * N * 2, found, N / 2, MPI_INT, &status));
    for (int at = 0; at < N / 2; at++)
        if (found[at] != wrote[2 * at]) {
            CHECK(found[at] == wrote[2 * at]);
            break;
        }
    memset(found, 0, sizeof found);
    OK(MPI_File_read_at_all(file, (MPI_Offset) rank * N * 2, found, 1, column, &status));
    for (int at = 0; at < N; at++)
        if (found[at] != (at % 2 ? 0 : wrote[at])) {
            CHECK(found[at] == (at % 2 ? 0 : wrote[at]));
            break;
        }
    /* Less than an element of it is there. */
    MPI_Offset bytes;
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &bytes));
    OK(MPI_File_read_at(file, bytes - 8, found, 1, column, &status));
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(got(&status, column) == MPI_UNDEFINED);
    MPI_Get_elements(&status, column, &elements);
    CHECK(elements == 2);
    MPI_Type_free(&column);
    /* Absolute addresses. */
    MPI_Get_address(wrote + 17, &address);
    int length = 100;
    MPI_Type_create_hindexed(1, &length, &address, MPI_INT, &absolute);
    MPI_Type_commit(&absolute);
    bytes = (MPI_Offset) size * N * 2 + rank * 400;
    OK(MPI_File_write_at(file, bytes, MPI_BOTTOM, 1, absolute, &status));
    OK(MPI_File_read_at(file, bytes, found, 100, MPI_INT, &status));
    CHECK(memcmp(found, wrote + 17, 400) == 0);
    MPI_Type_free(&absolute);
    OK(MPI_File_close(&file));
}

static void representations(void)
{
    MPI_Status status;
    MPI_Datatype etype, filetype;
    MPI_Offset at;
    MPI_Aint extent;
    char name[MPI_MAX_DATAREP_STRING + 1];
    unsigned char bytes[4];
    MPI_File file = open_file(MPI_COMM_WORLD, "representations", NEW);
    int number = 0x01020304 + rank, back = 0;
    OK(MPI_File_set_view(file, rank * 4, MPI_INT, MPI_INT, "external32", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(file, 0, &number, 1, MPI_INT, &status));
    CHECK(got(&status, MPI_INT) == 1);
    OK(MPI_File_read_at(file, 0, &back, 1, MPI_INT, &status));
    CHECK(back == number);
    OK(MPI_File_get_type_extent(file, MPI_INT, &extent));
    CHECK(extent == 4);
    OK(MPI_File_get_view(file, &at, &etype, &filetype, name));
    CHECK(at == rank * 4 && etype == MPI_INT && filetype == MPI_INT && strcmp(name, "external32") == 0);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "internal", MPI_INFO_NULL));
    OK(MPI_File_read_at_all(file, rank * 4, bytes, 4, MPI_BYTE, &status));
    CHECK(bytes[0] == 1 && bytes[1] == 2 && bytes[2] == 3 && bytes[3] == 4 + rank);
    FAILS(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "no-such", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
    if (size > 1)
        FAILS(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, rank ? "native" : "internal", MPI_INFO_NULL), MPI_ERR_NOT_SAME);
    OK(MPI_File_close(&file));
}

/* Offsets and counts beyond 32 bits. */
static void far(void)
{
    MPI_Status status;
    MPI_Offset at = 5000000000LL + (MPI_Offset) rank * N * 4, bytes;
    MPI_Count elements;
    MPI_Datatype repeated;
    MPI_File file = open_file(MPI_COMM_WORLD, "far", NEW);
    fill(11);
    OK(MPI_File_write_at_all(file, at, wrote, N, MPI_INT, &status));
    OK(MPI_File_read_at_all(file, at, found, N, MPI_INT, &status));
    SAME();
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 5000000000LL + (MPI_Offset) size * N * 4);
    /* 50 MB from one small place: the elements of the buffer lie upon each other. */
    MPI_Type_create_hvector(3 << 18, 1, 0, MPI_INT, &repeated);
    MPI_Type_commit(&repeated);
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    if (rank == 0) {
        OK(MPI_File_write_at(file, 0, wrote, 16, repeated, &status));
        MPI_Get_elements_x(&status, MPI_INT, &elements);
        CHECK(elements == 16 * (3 << 18));
        OK(MPI_File_read_at(file, 12345678, found, 1, MPI_INT, &status));
        CHECK(found[0] == wrote[12345678 / (3 << 18)]);
    }
    MPI_Type_free(&repeated);
    OK(MPI_File_close(&file));
}

static void mistakes(void)
{
    MPI_Status status;
    MPI_Offset at;
    MPI_File file = open_file(MPI_COMM_WORLD, "mistakes", NEW);
    fill(9);
    FAILS(MPI_File_write_at(file, -1, wrote, 1, MPI_INT, &status), MPI_ERR_ARG);
    FAILS(MPI_File_read_at_all(file, -1, found, 1, MPI_INT, &status), MPI_ERR_ARG);
    FAILS(MPI_File_write(file, wrote, -1, MPI_INT, &status), MPI_ERR_COUNT);
    FAILS(MPI_File_write_all(file, wrote, -1, MPI_INT, &status), MPI_ERR_COUNT);
    FAILS(MPI_File_read(file, found, 1, MPI_DATATYPE_NULL, &status), MPI_ERR_TYPE);
    FAILS(MPI_File_write_at(file, 0, NULL, 1, MPI_INT, &status), MPI_ERR_BUFFER);
    FAILS(MPI_File_seek(file, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    FAILS(MPI_File_seek(file, -1, MPI_SEEK_CUR), MPI_ERR_ARG);
    FAILS(MPI_File_seek(file, 0, 12345), MPI_ERR_ARG);
    FAILS(MPI_File_get_byte_offset(file, -1, &at), MPI_ERR_ARG);
    FAILS(MPI_File_set_view(file, -8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    FAILS(MPI_File_set_view(file, 0, MPI_DATATYPE_NULL, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    if (size > 1) {
        FAILS(MPI_File_set_view(file, 0, rank ? MPI_INT : MPI_DOUBLE, rank ? MPI_INT : MPI_DOUBLE, "native", MPI_INFO_NULL),
              MPI_ERR_NOT_SAME);
        /* One rank's mistake does not keep the others waiting. */
        if (rank == 0)
            FAILS(MPI_File_write_at_all(file, 0, wrote, -1, MPI_INT, &status), MPI_ERR_COUNT);
        else
            OK(MPI_File_write_at_all(file, rank * 4, wrote, 1, MPI_INT, &status));
    }
    OK(MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    FAILS(MPI_File_write_at(file, 0, wrote, 3, MPI_BYTE, &status), MPI_ERR_ARG);
    MPI_Datatype backwards;
    int lengths[] = {1, 1}, places[] = {4, 0};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &backwards);
    MPI_Type_commit(&backwards);
    FAILS(MPI_File_set_view(file, 0, MPI_INT, backwards, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Type_free(&backwards);
    OK(MPI_File_close(&file));
}

/* A file of a partition and a plain one, where Pario serves both: they are opened in different ways, and nobody waits for the others. */
static void different_files(const char *directory)
{
    char plain[1024];
    MPI_File file = MPI_FILE_NULL;
    if (size < 2 || directory == NULL || getenv("PARIO_CACHE") == NULL)
        return;
    for (int other = 0; other < size; other++) {
        snprintf(plain, sizeof plain, "%s/plain", directory);
        FAILS(MPI_File_open(MPI_COMM_WORLD, rank == other ? plain : name_of("not-plain"), NEW, MPI_INFO_NULL, &file), MPI_ERR_NOT_SAME);
        CHECK(file == MPI_FILE_NULL);
        snprintf(plain, sizeof plain, "%s/plain-%d", directory, rank == other);
        FAILS(MPI_File_open(MPI_COMM_WORLD, plain, NEW, MPI_INFO_NULL, &file), MPI_ERR_NOT_SAME);
        FAILS(MPI_File_open(MPI_COMM_WORLD, name_of(rank == other ? "one" : "two"), NEW, MPI_INFO_NULL, &file), MPI_ERR_NOT_SAME);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(plain, sizeof plain, "%s/plain", directory);
    OK(MPI_File_open(MPI_COMM_WORLD, plain, NEW | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    OK(MPI_File_close(&file));
}

static void large(void)
{
#if MPI_VERSION >= 4
    MPI_Status status;
    MPI_Count count = 0;
    MPI_Datatype type;
    MPI_Request request;
    MPI_File file = open_file(MPI_COMM_WORLD, "large", NEW);
    fill(10);
    MPI_Type_vector_c(N / 10, 10, 10 * size, MPI_INT, &type);
    MPI_Type_commit(&type);
    OK(MPI_File_set_view(file, (MPI_Offset) rank * 40, MPI_INT, type, "native", MPI_INFO_NULL));
    MPI_Type_free(&type);
    OK(MPI_File_write_at_all_c(file, 0, wrote, N, MPI_INT, &status));
    MPI_Get_count_c(&status, MPI_INT, &count);
    CHECK(count == N);
    OK(MPI_File_read_all_c(file, found, N, MPI_INT, &status));
    SAME();
    memset(found, 0, sizeof found);
    OK(MPI_File_iread_at_c(file, 0, found, N, MPI_INT, &request));
    OK(MPI_Wait(&request, &status));
    SAME();
    memset(found, 0, sizeof found);
    OK(MPI_File_read_at_all_begin_c(file, 0, found, N, MPI_INT));
    OK(MPI_File_read_at_all_end(file, found, &status));
    SAME();
    OK(MPI_File_get_type_extent_c(file, MPI_INT, &count));
    CHECK(count == 4);
    OK(MPI_File_close(&file));
#endif
}

/* File types that repeat at less than their own length: bytes 0 and 3, every two bytes. */
static void interleaving(void)
{
    enum { BYTES = 64, PIECE = 1000 };
    int lengths[2] = {1, 1}, i;
    MPI_Aint places[2] = {0, 3};
    MPI_Datatype pair, woven, twice;
    MPI_Status status;
    unsigned char *mine = malloc(BYTES * PIECE), *back = malloc((BYTES + 2) * PIECE);
    char name[32];
    MPI_File file;
    snprintf(name, sizeof name, "woven%d", rank);
    file = open_file(MPI_COMM_SELF, name, NEW);
    for (i = 0; i < BYTES * PIECE; i++)
        mine[i] = (unsigned char) (i * 7 + i / 256 + rank + 1);
    MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &pair);
    MPI_Type_create_resized(pair, 0, 2, &woven);
    MPI_Type_commit(&woven);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, woven, "native", MPI_INFO_NULL));
    OK(MPI_File_write(file, mine, BYTES, MPI_BYTE, &status));
    OK(MPI_File_read_at(file, 0, back, BYTES, MPI_BYTE, &status));
    CHECK(memcmp(mine, back, BYTES) == 0);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    OK(MPI_File_read(file, back, BYTES + 2, MPI_BYTE, &status));
    for (i = 0; i < BYTES; i++)
        CHECK(back[i / 2 * 2 + i % 2 * 3] == mine[i]);
    /* Many of them, together. */
    OK(MPI_File_set_view(file, 5, MPI_BYTE, woven, "native", MPI_INFO_NULL));
    OK(MPI_File_write_at_all(file, 2, mine, BYTES * PIECE, MPI_BYTE, &status));
    OK(MPI_File_read_at_all(file, 2, back, BYTES * PIECE, MPI_BYTE, &status));
    CHECK(memcmp(mine, back, BYTES * PIECE) == 0);
    OK(MPI_File_sync(file));
    MPI_Type_free(&pair);
    places[1] = 2;
    MPI_Type_create_hindexed(2, lengths, places, MPI_BYTE, &pair);
    MPI_Type_create_resized(pair, 0, 2, &twice);
    MPI_Type_commit(&twice);
    OK(MPI_File_set_view(file, 0, MPI_BYTE, twice, "native", MPI_INFO_NULL));
    FAILS(MPI_File_write_at(file, 0, mine, 4, MPI_BYTE, &status), MPI_ERR_TYPE);
    OK(MPI_File_write_at(file, 0, mine, 2, MPI_BYTE, &status));
    OK(MPI_File_read_at(file, 0, back, 4, MPI_BYTE, &status));
    CHECK(back[0] == mine[0] && back[1] == mine[1] && back[2] == mine[1]);
    MPI_Type_free(&pair);
    MPI_Type_free(&woven);
    MPI_Type_free(&twice);
    OK(MPI_File_close(&file));
    free(mine);
    free(back);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    blocking();
    later();
    memory();
    representations();
    far();
    mistakes();
    different_files(argc > 2 ? argv[2] : NULL);
    large();
    interleaving();
    return end();
}
