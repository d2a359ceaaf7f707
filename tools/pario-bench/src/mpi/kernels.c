/* Access patterns of parallel programs on MPI-IO; `pario bench mpi` compiles and runs it.
   argv: file, kernel, how (collective, independent, nonblocking, handwritten), megabytes of the whole file, rounds, milliseconds of
   computing between dumps, whether the page cache is emptied once (cold). Prints one line of JSON, with the seconds of every round. */
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS_MAX = 64 };
static int rank, size;

static void check(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (code == MPI_SUCCESS)
        return;
    MPI_Error_string(code, text, &length);
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

#include "patterns.h"
#include "byhand.h"

/* The longest of all ranks. */
static double later(double seconds)
{
    double all;
    MPI_Allreduce(&seconds, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

static void print_times(const char *name, const double *seconds, int count)
{
    printf(", \"%s\": [", name);
    for (int at = 0; at < count; at++)
        printf("%s%.6f", at ? ", " : "", seconds[at]);
    printf("]");
}

/* What is measured, and how. */
struct run {
    const char *name;
    struct pattern p;
    int collective, by_hand, nonblocking;
    double compute_ms;
    char *data, *found;
};

struct times {
    double open, write, total, read;
};

/* So many turns of work that the compiler cannot leave out. */
static volatile double sink;
static void work(long long turns)
{
    double sum = 0;
    for (long long at = 1; at <= turns; at++)
        sum += 1.0 / (double) at;
    sink = sum;
}

static void compute(double ms)
{
    for (double end = MPI_Wtime() + ms / 1e3; MPI_Wtime() < end;)
        work(1000);
}

static void put(const struct run *run, MPI_File file, int dump, MPI_Request *request)
{
    const struct pattern *p = &run->p;
    MPI_Offset at = (MPI_Offset) dump * p->etypes_per_dump;
    int spread = p->memory != MPI_DATATYPE_NULL, count = spread ? 1 : p->etypes_per_dump;
    MPI_Datatype type = spread ? p->memory : p->etype;
    if (run->collective)
        check(MPI_File_write_at_all(file, at, run->data, count, type, MPI_STATUS_IGNORE), "write");
    else if (run->nonblocking)
        check(MPI_File_iwrite_at(file, at, run->data, count, type, request), "write");
    else
        check(MPI_File_write_at(file, at, run->data, count, type, MPI_STATUS_IGNORE), "write");
}

static void get(const struct run *run, MPI_File file, int dump)
{
    const struct pattern *p = &run->p;
    MPI_Offset at = (MPI_Offset) dump * p->etypes_per_dump;
    int spread = p->memory != MPI_DATATYPE_NULL, count = spread ? 1 : p->etypes_per_dump;
    MPI_Datatype type = spread ? p->memory : p->etype;
    if (run->collective)
        check(MPI_File_read_at_all(file, at, run->found, count, type, MPI_STATUS_IGNORE), "read");
    else
        check(MPI_File_read_at(file, at, run->found, count, type, MPI_STATUS_IGNORE), "read");
}

static MPI_File open_with_view(const struct run *run, int mode)
{
    MPI_File file;
    check(MPI_File_open(MPI_COMM_WORLD, run->name, mode, MPI_INFO_NULL, &file), "open");
    check(MPI_File_set_view(file, run->p.displacement, run->p.etype, run->p.filetype, "native", MPI_INFO_NULL), "view");
    return file;
}

static void make_way(const struct run *run)
{
    if (rank == 0)
        run->by_hand ? (void) unlink(run->name) : (void) MPI_File_delete(run->name, MPI_INFO_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A fresh file, open to close; what is in `data` afterwards is the last dump. Computing and making the data are not counted. */
static void write_file(const struct run *run, int round, struct times *times)
{
    const struct pattern *p = &run->p;
    double begin = MPI_Wtime(), writing = 0, elsewhere = 0, before;
    MPI_File file = MPI_FILE_NULL;
    int fd = -1;
    if (run->by_hand)
        fd = open(run->name, O_CREAT | O_RDWR, 0666);
    else
        check(MPI_File_open(MPI_COMM_WORLD, run->name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
    times->open = later(MPI_Wtime() - begin);
    if (!run->by_hand)
        check(MPI_File_set_view(file, p->displacement, p->etype, p->filetype, "native", MPI_INFO_NULL), "view");
    for (int dump = 0; dump < p->dumps; dump++) {
        MPI_Request request = MPI_REQUEST_NULL;
        before = MPI_Wtime();
        memset(run->data, 1 + (rank + dump + round) % 100, p->memory_bytes);
        elsewhere += MPI_Wtime() - before;
        before = MPI_Wtime();
        if (run->by_hand)
            handwritten(fd, p, (double *) run->data, dump);
        else
            put(run, file, dump, &request);
        writing += MPI_Wtime() - before;
        before = MPI_Wtime();
        if (run->compute_ms > 0)
            compute(run->compute_ms);
        elsewhere += MPI_Wtime() - before;
        before = MPI_Wtime();
        if (request != MPI_REQUEST_NULL)
            check(MPI_Wait(&request, MPI_STATUS_IGNORE), "wait");
        writing += MPI_Wtime() - before;
    }
    if (run->by_hand)
        close(fd);
    else
        check(MPI_File_close(&file), "close");
    times->total = later(MPI_Wtime() - begin - elsewhere);
    times->write = later(writing);
}

/* Reads all of it, by an open of its own, and compares the last dump. */
static double read_file(const struct run *run)
{
    const struct pattern *p = &run->p;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File file = open_with_view(run, MPI_MODE_RDONLY);
    char last = run->data[0];
    memset(run->found, last ^ 0x7f, p->memory_bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    double before = MPI_Wtime();
    for (int dump = 0; dump < p->dumps; dump++)
        get(run, file, dump);
    double reading = later(MPI_Wtime() - before);
    check(MPI_File_close(&file), "close");
    int etype_bytes;
    MPI_Type_size(p->etype, &etype_bytes);
    size_t right = 0, wanted = (size_t) p->etypes_per_dump * (size_t) etype_bytes;
    for (size_t at = 0; at < p->memory_bytes; at++)
        right += run->found[at] == last;
    if (right != wanted)
        check(MPI_ERR_OTHER, "what was read is not what was written");
    return reading;
}

/* Empties the page cache; returns whether that is allowed. */
static int empty_page_cache(void)
{
    int done = 1;
    if (rank == 0) {
        sync();
        int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);
        done = fd >= 0 && write(fd, "1", 1) == 1;
        if (fd >= 0)
            close(fd);
    }
    MPI_Bcast(&done, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return done;
}

static void pattern_kernel(struct run *run, int rounds, int cold)
{
    double open_s[ROUNDS_MAX], write_s[ROUNDS_MAX], total_s[ROUNDS_MAX], read_s[ROUNDS_MAX], cold_s[ROUNDS_MAX];
    int colds = 0, etype_bytes;
    struct times times = {0};
    run->data = malloc(run->p.memory_bytes);
    run->found = malloc(run->p.memory_bytes);
    for (int round = 0; round < rounds; round++) {
        make_way(run);
        write_file(run, round, &times);
        open_s[round] = times.open, write_s[round] = times.write, total_s[round] = times.total;
        read_s[round] = run->by_hand ? 0 : read_file(run);
    }
    /* A file that nobody has read: what was read once may be mapped, and stays in memory. */
    for (int round = 0; cold && !run->by_hand && round < (rounds < 3 ? rounds : 3); round++) {
        make_way(run);
        write_file(run, round, &times);
        if (!empty_page_cache())
            break;
        cold_s[colds++] = read_file(run);
    }
    make_way(run);
    MPI_Type_size(run->p.etype, &etype_bytes);
    double all = (double) run->p.etypes_per_dump * etype_bytes * run->p.dumps, sum;
    MPI_Allreduce(&all, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("{\"bytes\": %.0f", sum);
        print_times("open_s", open_s, rounds);
        print_times("write_s", write_s, rounds);
        print_times("total_s", total_s, rounds);
        print_times("read_s", read_s, run->by_hand ? 0 : rounds);
        print_times("cold_read_s", cold_s, colds);
        printf("}\n");
    }
    free(run->data);
    free(run->found);
}

#include "apart.h"

int main(int argc, char **argv)
{
    int level, together = argc > 2 && strcmp(argv[2], "overlap") == 0;
    if (argc != 8)
        return 2;
    MPI_Init_thread(&argc, &argv, together ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *kernel = argv[2], *how = argv[3];
    long long bytes = atoll(argv[4]) << 20;
    int rounds = atoi(argv[5]);
    rounds = rounds < 1 ? 1 : rounds > ROUNDS_MAX ? ROUNDS_MAX : rounds;
    struct run run = {.name = argv[1],
                      .collective = strcmp(how, "collective") == 0,
                      .by_hand = strcmp(how, "handwritten") == 0,
                      .nonblocking = strcmp(how, "nonblocking") == 0,
                      .compute_ms = atof(argv[6])};
    if (strcmp(kernel, "open_close") == 0) {
        open_close(argv[1]);
    } else {
        run.p = find(together ? "strided8k" : kernel, bytes);
        together ? overlap(&run, bytes, rounds, run.compute_ms) : pattern_kernel(&run, rounds, strcmp(argv[7], "cold") == 0);
        release(&run.p);
    }
    MPI_Finalize();
    return 0;
}
