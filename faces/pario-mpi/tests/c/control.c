/* Opening, closing, deleting, sizes, modes, groups, hints, error handlers, handles: what each does, and its mistakes. */
#include "suite.h"

enum { NEW = MPI_MODE_CREATE | MPI_MODE_RDWR };

static void modes(void)
{
    MPI_File file;
    int mode;
    FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("none"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    CHECK(file == MPI_FILE_NULL);
    file = open_file(MPI_COMM_WORLD, "modes", NEW | MPI_MODE_EXCL);
    OK(MPI_File_get_amode(file, &mode));
    CHECK(mode == (NEW | MPI_MODE_EXCL));
    OK(MPI_File_write_at(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);
    FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("modes"), NEW | MPI_MODE_EXCL, MPI_INFO_NULL, &file), MPI_ERR_FILE_EXISTS);
    int bad[] = {0, MPI_MODE_CREATE, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_MODE_RDONLY | MPI_MODE_CREATE,
                 MPI_MODE_RDONLY | MPI_MODE_EXCL, MPI_MODE_RDWR | MPI_MODE_SEQUENTIAL};
    for (unsigned at = 0; at < sizeof bad / sizeof bad[0]; at++)
        FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("modes"), bad[at], MPI_INFO_NULL, &file), MPI_ERR_AMODE);
    if (size > 1)
        FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("modes"), rank == 0 ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL, &file),
              MPI_ERR_NOT_SAME);
    file = open_file(MPI_COMM_WORLD, "modes", MPI_MODE_RDONLY);
    FAILS(MPI_File_write(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    FAILS(MPI_File_write_all(file, &rank, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    FAILS(MPI_File_set_size(file, 0), MPI_ERR_READ_ONLY);
    OK(MPI_File_close(&file));
    file = open_file(MPI_COMM_WORLD, "modes", MPI_MODE_WRONLY);
    FAILS(MPI_File_read(file, &mode, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ACCESS);
    OK(MPI_File_close(&file));
    MPI_Offset at;
    file = open_file(MPI_COMM_WORLD, "modes", MPI_MODE_RDWR | MPI_MODE_APPEND);
    OK(MPI_File_get_position(file, &at));
    CHECK(at == 4 * size);
    OK(MPI_File_close(&file));
    file = open_file(MPI_COMM_WORLD, "modes", MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    FAILS(MPI_File_write_at(file, 0, &rank, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_UNSUPPORTED_OPERATION);
    FAILS(MPI_File_seek(file, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
    OK(MPI_File_close(&file));
}

static void removing(void)
{
    MPI_File file = open_file(MPI_COMM_WORLD, "gone", NEW | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_UNIQUE_OPEN);
    OK(MPI_File_close(&file));
    FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("gone"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    file = open_file(MPI_COMM_WORLD, "kept", NEW);
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        OK(MPI_File_delete(name_of("kept"), MPI_INFO_NULL));
        FAILS(MPI_File_delete(name_of("kept"), MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(MPI_File_open(MPI_COMM_WORLD, "pario://no-such-partition/x", NEW, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    FAILS(MPI_File_open(MPI_COMM_WORLD, "pario://bad name/x", NEW, MPI_INFO_NULL, &file), MPI_ERR_BAD_FILE);
}

static void sizes(void)
{
    MPI_File file = open_file(MPI_COMM_WORLD, "sizes", NEW);
    MPI_Offset bytes;
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 0);
    OK(MPI_File_set_size(file, 1000));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 1000);
    OK(MPI_File_preallocate(file, 500));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 1000);
    OK(MPI_File_preallocate(file, 5000));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 5000);
    OK(MPI_File_set_size(file, 10));
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 10);
    FAILS(MPI_File_set_size(file, -1), MPI_ERR_ARG);
    FAILS(MPI_File_preallocate(file, -1), MPI_ERR_ARG);
    if (size > 1) {
        FAILS(MPI_File_set_size(file, rank), MPI_ERR_NOT_SAME);
        FAILS(MPI_File_preallocate(file, 100 + rank), MPI_ERR_NOT_SAME);
    }
    OK(MPI_File_sync(file));
    int flag = 9;
    OK(MPI_File_get_atomicity(file, &flag));
    CHECK(flag == 0);
    OK(MPI_File_close(&file));
}

static void groups(void)
{
    MPI_Comm half, inter;
    MPI_Group world, members;
    int same, key;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_File file = open_file(MPI_COMM_WORLD, "group", NEW);
    OK(MPI_File_get_group(file, &members));
    MPI_Group_compare(world, members, &same);
    CHECK(same == MPI_IDENT);
    MPI_Group_free(&members);
    /* Files of a part of the ranks, and of one, while another is open. */
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
    MPI_File part = open_file(half, rank % 2 ? "odd" : "even", NEW);
    MPI_Comm_free(&half);
    OK(MPI_File_write_at_all(part, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    char own[32];
    snprintf(own, sizeof own, "own-%d", rank);
    MPI_File alone = open_file(MPI_COMM_SELF, own, NEW);
    OK(MPI_File_write_all(alone, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at(alone, 0, &key, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(key == rank);
    OK(MPI_File_close(&alone));
    OK(MPI_File_read_at_all(part, rank * 4, &key, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(key == rank);
    OK(MPI_File_close(&part));
    OK(MPI_File_close(&file));
    MPI_Group_free(&world);
    if (size > 1) {
        MPI_Comm_split(MPI_COMM_WORLD, rank == 0, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank == 0 ? 1 : 0, 7, &inter);
        FAILS(MPI_File_open(inter, name_of("inter"), NEW, MPI_INFO_NULL, &file), MPI_ERR_COMM);
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
}

static void hints(void)
{
    MPI_Info info;
    MPI_File file;
    char value[MPI_MAX_INFO_VAL + 1];
    int flag;
    MPI_Info_create(&info);
    MPI_Info_set(info, "striping_unit", "65536");
    MPI_Info_set(info, "striping_factor", "1");
    MPI_Info_set(info, "cb_buffer_size", "nonsense");
    MPI_Info_set(info, "no_such_hint", "1");
    MPI_Info_set(info, "romio_ds_write", "disable");
    OK(MPI_File_open(MPI_COMM_WORLD, name_of("hints"), NEW, info, &file));
    OK(MPI_File_set_info(file, info));
    MPI_Info_free(&info);
    OK(MPI_File_get_info(file, &info));
    MPI_Info_get(info, "striping_unit", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && atoi(value) == 65536);
    MPI_Info_get(info, "striping_factor", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && atoi(value) == 1);
    MPI_Info_get(info, "romio_visibility_immediate", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && strcmp(value, "true") == 0);
    MPI_Info_get(info, "no_such_hint", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(!flag);
    /* What ROMIO's users look for is there: as it was given, or as ROMIO has it. */
    const char *told[][2] = {{"romio_ds_write", "disable"}, {"romio_ds_read", "automatic"}, {"romio_cb_read", "automatic"},
        {"romio_cb_write", "automatic"}, {"cb_buffer_size", "16777216"}, {"ind_rd_buffer_size", "4194304"},
        {"ind_wr_buffer_size", "524288"}, {"romio_no_indep_rw", "false"}, {"cb_nodes", "1"}, {"cb_config_list", "*:1"}};
    for (int at = 0; at < (int) (sizeof told / sizeof told[0]); at++) {
        MPI_Info_get(info, told[at][0], MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && strcmp(value, told[at][1]) == 0);
        if (!flag || strcmp(value, told[at][1]) != 0)
            fprintf(stderr, "%s is %s\n", told[at][0], flag ? value : "not told");
    }
    MPI_Info_free(&info);
    OK(MPI_File_close(&file));
    /* A file lies on as many servers as there are, if more were wished. */
    MPI_Info_create(&info);
    MPI_Info_set(info, "striping_factor", "64");
    OK(MPI_File_open(MPI_COMM_WORLD, name_of("wide"), NEW, info, &file));
    MPI_Info_free(&info);
    OK(MPI_File_get_info(file, &info));
    MPI_Info_get(info, "striping_factor", MPI_MAX_INFO_VAL, value, &flag);
    CHECK(flag && atoi(value) == 2);
    MPI_Info_free(&info);
    OK(MPI_File_close(&file));
}

/* Hints that can change while a file is open do, for all, and what is in force is told. */
static void changed_hints(void)
{
    MPI_Info info;
    char value[MPI_MAX_INFO_VAL + 1];
    int flag, wrote[64], found[64];
    const char *methods[] = {"two-phase", "server-directed"};
    MPI_File file = open_file(MPI_COMM_WORLD, "changed", NEW);
    for (int at = 0; at < 2; at++) {
        MPI_Info_create(&info);
        /* Those of rank 0 count. */
        MPI_Info_set(info, "pario_method", rank == 0 ? methods[at] : "auto");
        MPI_Info_set(info, "cb_buffer_size", "1048576");
        MPI_Info_set(info, "cb_nodes", "1");
        MPI_Info_set(info, "striping_unit", "12288");
        OK(MPI_File_set_info(file, info));
        MPI_Info_free(&info);
        OK(MPI_File_get_info(file, &info));
        MPI_Info_get(info, "pario_method", MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && strcmp(value, methods[at]) == 0);
        MPI_Info_get(info, "romio_cb_write", MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && strcmp(value, at == 0 ? "enable" : "automatic") == 0);
        MPI_Info_get(info, "cb_buffer_size", MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && atoi(value) == 1048576);
        MPI_Info_get(info, "cb_nodes", MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && atoi(value) == 1);
        MPI_Info_get(info, "striping_unit", MPI_MAX_INFO_VAL, value, &flag);
        CHECK(flag && atoi(value) != 12288); /* that is for files that are made */
        MPI_Info_free(&info);
        for (int cell = 0; cell < 64; cell++)
            wrote[cell] = 1000 * at + 100 * rank + cell, found[cell] = -1;
        OK(MPI_File_write_at_all(file, (MPI_Offset) rank * 256, wrote, 64, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at_all(file, (MPI_Offset) rank * 256, found, 64, MPI_INT, MPI_STATUS_IGNORE));
        CHECK(memcmp(found, wrote, sizeof wrote) == 0);
    }
    OK(MPI_File_set_info(file, MPI_INFO_NULL));
    OK(MPI_File_close(&file));
}

static int handled, handlings;
static void handler(MPI_File *file, int *code, ...)
{
    (void) file;
    handlings++;
    MPI_Error_class(*code, &handled);
}

static void handlers(void)
{
    MPI_Errhandler own, found;
    MPI_File file = open_file(MPI_COMM_WORLD, "handlers", NEW);
    OK(MPI_File_get_errhandler(file, &found));
    CHECK(found == MPI_ERRORS_RETURN);
    OK(MPI_File_create_errhandler(handler, &own));
    OK(MPI_File_set_errhandler(file, own));
    FAILS(MPI_File_seek(file, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    CHECK(handled == MPI_ERR_ARG);
    OK(MPI_File_call_errhandler(file, MPI_ERR_IO));
    CHECK(handled == MPI_ERR_IO);
    MPI_Errhandler_free(&own);
    /* Handles go to Fortran and back. */
#ifdef MPI_ABI_VERSION
    MPI_File back = MPI_File_fromint(MPI_File_toint(file));
#else
    MPI_File back = MPI_File_f2c(MPI_File_c2f(file));
#endif
    CHECK(back == file);
    OK(MPI_File_write_at(back, 0, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    /* The default handler is that of MPI_FILE_NULL. */
    OK(MPI_File_create_errhandler(handler, &own));
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, own));
    handled = handlings = 0;
    FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("none"), MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    CHECK(handled == MPI_ERR_NO_SUCH_FILE && handlings == 1);
    FAILS(MPI_File_open(MPI_COMM_WORLD, name_of("none"), MPI_MODE_RDONLY | MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_AMODE);
    CHECK(handled == MPI_ERR_AMODE && handlings == 2);
    FAILS(MPI_File_open(MPI_COMM_WORLD, "pario://bad name/x", NEW, MPI_INFO_NULL, &file), MPI_ERR_BAD_FILE);
    CHECK(handled == MPI_ERR_BAD_FILE && handlings == 3);
    OK(MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN));
    MPI_Errhandler_free(&own);
}

/* A file that is not Pario's goes to the MPI library, as if nothing was preloaded. */
static void others(const char *dir)
{
    char name[512];
    int found = -1;
    MPI_Offset bytes;
    MPI_File file;
    snprintf(name, sizeof name, "%s/plain", dir);
    OK(MPI_File_open(MPI_COMM_WORLD, name, NEW, MPI_INFO_NULL, &file));
    OK(MPI_File_write_at_all(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_read_at_all(file, rank * 4, &found, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(found == rank);
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 4 * size);
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    FILE *plain = fopen(name, "rb");
    CHECK(plain != NULL);
    if (plain)
        fclose(plain);
    /* And below a directory of PARIO_MAP it is Pario's. */
    snprintf(name, sizeof name, "%s/mapped/file", dir);
    OK(MPI_File_open(MPI_COMM_WORLD, name, NEW, MPI_INFO_NULL, &file));
    OK(MPI_File_write_at_all(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    plain = fopen(name, "rb");
    int first = -1;
    CHECK(plain != NULL && fread(&first, 4, 1, plain) == 1 && first == 0 && fclose(plain) == 0);
    file = open_file(MPI_COMM_WORLD, "file", MPI_MODE_RDONLY);
    OK(MPI_File_get_size(file, &bytes));
    CHECK(bytes == 4 * size);
    OK(MPI_File_close(&file));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    modes();
    removing();
    sizes();
    groups();
    hints();
    changed_hints();
    handlers();
    others(argv[2]);
    /* Never closed: MPI_Finalize gives it to the servers. */
    MPI_File left = open_file(MPI_COMM_WORLD, "left", NEW);
    OK(MPI_File_write_at(left, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    return end();
}
