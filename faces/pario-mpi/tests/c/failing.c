/* What goes wrong is told: argv: Pario's files, a plain directory, what. */
#define _DEFAULT_SOURCE
#include "suite.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NEW = MPI_MODE_CREATE | MPI_MODE_RDWR, BYTES = 1 << 20 };
static char data[BYTES];

/* A rank is killed after its writes returned: they are there afterwards, as the driver checks. */
static void killed(void)
{
    MPI_File file = open_file(MPI_COMM_WORLD, "killed", NEW);
    memset(data, 'a' + rank, BYTES);
    OK(MPI_File_write_at(file, (MPI_Offset) rank * BYTES, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == size - 1)
        raise(SIGKILL);
    /* The MPI library ends the others. */
    MPI_Barrier(MPI_COMM_WORLD);
    pause();
}

static int is_class(int code, int class)
{
    int found = MPI_SUCCESS;
    return code != MPI_SUCCESS && MPI_Error_class(code, &found) == MPI_SUCCESS && found == class;
}

/* A child of a rank may not use its parent's files, and does not disturb them. */
static void forked(void)
{
    int status = -1, found = 0;
    MPI_File file = open_file(MPI_COMM_WORLD, "forked", NEW);
    OK(MPI_File_write_at(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int refused = is_class(MPI_File_write_at(file, 0, "x", 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_FILE)
            && is_class(MPI_File_sync(file), MPI_ERR_FILE) && is_class(MPI_File_close(&file), MPI_ERR_FILE);
        _exit(refused ? 42 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 42);
    CHECK(system("true") == 0);
    OK(MPI_File_read_at(file, rank * 4, &found, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(found == rank);
    OK(MPI_File_close(&file));
}

/* All servers are killed, by the driver, while files are open; argv[4] is a file that says so, argv[4].ready one that says
 * that every rank has synced what it wrote. */
static void servers(const char *sign)
{
    MPI_File file = open_file(MPI_COMM_WORLD, "servers", NEW);
    OK(MPI_File_write_at_all(file, (MPI_Offset) rank * BYTES, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_File_sync(file));
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        char ready[4096];
        snprintf(ready, sizeof ready, "%s.ready", sign);
        FILE *told = fopen(ready, "w");
        CHECK(told != NULL && fclose(told) == 0);
    }
    while (access(sign, F_OK) != 0)
        usleep(10000); /* until the driver has done it */
    MPI_Barrier(MPI_COMM_WORLD);
    char found[64];
    int code = MPI_File_read_at(file, (MPI_Offset) rank * BYTES + 77, found, 64, MPI_BYTE, MPI_STATUS_IGNORE);
    int synced = MPI_File_sync(file);
    /* Reading may be served by memory that is shared; what needs the servers fails with the right class on every rank. */
    if (code != MPI_SUCCESS)
        FAILS(code, MPI_ERR_IO);
    FAILS(synced, MPI_ERR_IO);
    FAILS(MPI_File_close(&file), MPI_ERR_IO);
    CHECK(file == MPI_FILE_NULL);
}

/* The stores have less room than is written: every rank is told, by a write or at the latest by sync and close, and why. */
static void full(void)
{
    enum { WRITES = 40 };
    char text[MPI_MAX_ERROR_STRING];
    int told = 0, length, class, codes[WRITES + 2];
    MPI_File file = open_file(MPI_COMM_WORLD, "full", NEW);
    MPI_Datatype piece, pieces;
    /* Pieces dealt to the ranks in turn: views, not ranges. */
    MPI_Type_contiguous(4096, MPI_BYTE, &piece);
    MPI_Type_create_resized(piece, 0, 4096 * size, &pieces);
    MPI_Type_commit(&pieces);
    OK(MPI_File_set_view(file, 4096 * rank, MPI_BYTE, pieces, "native", MPI_INFO_NULL));
    memset(data, 'f', BYTES);
    for (int at = 0; at < WRITES; at++)
        codes[at] = MPI_File_write_at_all(file, (MPI_Offset) at * BYTES, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
    codes[WRITES] = MPI_File_sync(file);
    codes[WRITES + 1] = MPI_File_close(&file);
    CHECK(file == MPI_FILE_NULL);
    for (int at = 0; at < WRITES + 2; at++) {
        if (codes[at] == MPI_SUCCESS)
            continue;
        FAILS(codes[at], MPI_ERR_NO_SPACE);
        MPI_Error_class(codes[at], &class);
        told += class == MPI_ERR_NO_SPACE;
        MPI_Error_string(codes[at], text, &length);
        CHECK(strstr(text, "server 1 is full") != NULL);
    }
    CHECK(told > 0);
    /* The others can be worked with, and room that was made is used. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        OK(MPI_File_delete(name_of("full"), MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&piece);
    MPI_Type_free(&pieces);
    if (rank == 0)
        fprintf(stderr, "told %d times, the last time: %s\n", told, text);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (strcmp(argv[3], "killed") == 0)
        killed();
    else if (strcmp(argv[3], "forked") == 0)
        forked();
    else if (strcmp(argv[3], "full") == 0)
        full();
    else
        servers(argv[4]);
    return end();
}
