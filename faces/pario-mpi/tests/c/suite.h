/* What the programs of this suite share: checks that are counted, and calls that must succeed or fail with a class. */
#ifndef SUITE_H
#define SUITE_H
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, checks, failures;

static void wrong(const char *file, int line, const char *what, const char *why)
{
    failures++;
    fprintf(stderr, "%s:%d: rank %d: %s: %s\n", file, line, rank, what, why);
}

static void ok(const char *file, int line, const char *what, int code)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    checks++;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    wrong(file, line, what, text);
}

static void fails(const char *file, int line, const char *what, int code, int class)
{
    char text[MPI_MAX_ERROR_STRING];
    int length, found = MPI_SUCCESS;
    checks++;
    if (code != MPI_SUCCESS)
        MPI_Error_class(code, &found);
    if (found == class)
        return;
    MPI_Error_string(code, text, &length);
    wrong(file, line, what, code == MPI_SUCCESS ? "it succeeded" : text);
}

#define OK(call) ok(__FILE__, __LINE__, #call, (call))
#define FAILS(call, class) fails(__FILE__, __LINE__, #call, (call), (class))
#define CHECK(condition) (checks++, (condition) ? (void) 0 : wrong(__FILE__, __LINE__, #condition, "is not so"))

/* A file of this test's own, below the first argument. */
static const char *base;
static const char *name_of(const char *tail)
{
    static char names[8][512];
    static int next;
    char *name = names[next++ % 8];
    snprintf(name, sizeof names[0], "%s%s", base, tail);
    return name;
}

static MPI_File open_file(MPI_Comm comm, const char *tail, int mode)
{
    MPI_File file = MPI_FILE_NULL;
    OK(MPI_File_open(comm, name_of(tail), mode, MPI_INFO_NULL, &file));
    return file;
}

static int got(MPI_Status *status, MPI_Datatype type)
{
    int count = -1;
    MPI_Get_count(status, type, &count);
    return count;
}

static void begin(int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    base = *argc > 1 ? (*argv)[1] : "pario:///";
}

static int end(void)
{
    int all = 0, sum = 0;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&checks, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d checks, %d failures\n", sum, all);
    MPI_Finalize();
    return all != 0;
}
#endif
