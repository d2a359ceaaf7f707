/* Access patterns of parallel programs on MPI-IO, measured open to close; `pario bench mpi` compiles and runs it.
   argv: file, kernel, how (collective, independent, nonblocking, handwritten), megabytes of the whole file, rounds, milliseconds of
   computing between dumps. Prints one line of JSON with the best round of each time. */
#include <fcntl.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DUMPS = 8, IRREGULAR = 175000 };
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

/* A pattern: one view, dumped several times, one file type after the other. */
struct pattern {
    MPI_Datatype etype, filetype;
    MPI_Offset displacement;
    int etypes_per_dump; /* of this rank */
    int dumps;
    int grid[4], parts[4], starts[4], dims; /* for the handwritten one */
};

static struct pattern subarray(int dims, int bytes_per_cell, long long bytes)
{
    struct pattern made = {.etype = MPI_DOUBLE, .dims = dims, .dumps = DUMPS};
    int grid[4] = {0}, periods[4] = {0}, place[4], sizes[4], parts[4], starts[4], cells = bytes_per_cell / 8;
    MPI_Comm cart;
    /* Of four dimensions the last is the fields of a cell and stays whole. */
    int split = dims == 4 ? 3 : dims;
    MPI_Dims_create(size, split, grid);
    MPI_Cart_create(MPI_COMM_WORLD, split, grid, periods, 0, &cart);
    MPI_Cart_coords(cart, rank, split, place);
    MPI_Comm_free(&cart);
    double edge = pow((double) bytes / DUMPS / (dims == 4 ? bytes_per_cell : 8), 1.0 / split);
    made.etypes_per_dump = 1;
    for (int at = 0; at < dims; at++) {
        if (at < split) {
            parts[at] = (int) (edge / grid[at]) > 0 ? (int) (edge / grid[at]) : 1;
            sizes[at] = parts[at] * grid[at];
            starts[at] = parts[at] * place[at];
        } else {
            parts[at] = sizes[at] = cells;
            starts[at] = 0;
        }
        made.etypes_per_dump *= parts[at];
        made.grid[at] = sizes[at];
        made.parts[at] = parts[at];
        made.starts[at] = starts[at];
    }
    MPI_Type_create_subarray(dims, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &made.filetype);
    return made;
}

/* The NAS benchmark's diagonal multi-partitioning, for a square number of ranks q*q: each has q cubes, one in each slab, on a diagonal. */
static struct pattern btio(long long bytes)
{
    int q = (int) (sqrt((double) size) + 0.5);
    if (q * q != size)
        return subarray(4, 40, bytes);
    struct pattern made = {.etype = MPI_DOUBLE, .dumps = DUMPS};
    int edge = (int) (cbrt((double) bytes / DUMPS / 40) / q), lengths[64];
    edge = edge > 0 ? edge : 1;
    MPI_Aint places[64];
    MPI_Datatype cubes[64], together;
    for (int slab = 0; slab < q && slab < 64; slab++) {
        int sizes[] = {edge * q, edge * q, edge * q, 5}, parts[] = {edge, edge, edge, 5},
            starts[] = {edge * slab, edge * ((rank / q + slab) % q), edge * ((rank % q + slab) % q), 0};
        MPI_Type_create_subarray(4, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &cubes[slab]);
        lengths[slab] = 1;
        places[slab] = 0;
    }
    MPI_Type_create_struct(q, lengths, places, cubes, &together);
    MPI_Type_create_resized(together, 0, (MPI_Aint) edge * q * edge * q * edge * q * 40, &made.filetype);
    MPI_Type_free(&together);
    for (int slab = 0; slab < q; slab++)
        MPI_Type_free(&cubes[slab]);
    made.etypes_per_dump = q * edge * edge * edge * 5;
    return made;
}

static struct pattern strided(int block, long long bytes)
{
    struct pattern made = {.etype = MPI_BYTE, .dumps = DUMPS, .displacement = (MPI_Offset) rank * block};
    long long blocks = bytes / DUMPS / block / size;
    MPI_Datatype one;
    MPI_Type_contiguous(block, MPI_BYTE, &one);
    MPI_Type_create_resized(one, 0, (MPI_Aint) block * size, &made.filetype);
    MPI_Type_free(&one);
    made.etypes_per_dump = (int) (blocks * block);
    return made;
}

static struct pattern contiguous(long long bytes)
{
    struct pattern made = {.etype = MPI_BYTE, .dumps = 1};
    made.etypes_per_dump = (int) (bytes / size);
    made.displacement = (MPI_Offset) rank * made.etypes_per_dump;
    MPI_Type_contiguous(1, MPI_BYTE, &made.filetype);
    return made;
}

static struct pattern irregular(void)
{
    struct pattern made = {.etype = MPI_INT, .dumps = 1};
    int count = IRREGULAR / size, *places = malloc(sizeof(int) * (size_t) count);
    /* Every rank has its share of all places, in order and without a rule. */
    unsigned state = 12345;
    int mine = 0;
    for (int at = 0; at < IRREGULAR && mine < count; at++) {
        state = state * 1103515245u + 12345u;
        if ((int) ((state >> 16) % (unsigned) size) == rank || IRREGULAR - at <= count - mine)
            places[mine++] = at * size + rank;
    }
    MPI_Type_create_indexed_block(mine, 1, places, MPI_INT, &made.filetype);
    made.etypes_per_dump = mine;
    free(places);
    return made;
}

static struct pattern find(const char *name, long long bytes)
{
    if (strcmp(name, "strided8k") == 0)
        return strided(8192, bytes);
    if (strcmp(name, "flash") == 0)
        return strided(1 << 16, bytes);
    if (strcmp(name, "subarray3d") == 0)
        return subarray(3, 8, bytes);
    if (strcmp(name, "subarray4d") == 0)
        return subarray(4, 40, bytes);
    if (strcmp(name, "btio") == 0)
        return btio(bytes);
    if (strcmp(name, "tile") == 0)
        return subarray(2, 8, bytes);
    if (strcmp(name, "irregular") == 0)
        return irregular();
    return contiguous(bytes);
}

static double compute(double ms)
{
    double end = MPI_Wtime() + ms / 1e3, sum = 0;
    for (int at = 1; MPI_Wtime() < end; at++)
        sum += 1.0 / at;
    return sum;
}

/* What users write by hand: slabs are exchanged so that each rank writes one piece of the file with pwrite. */
static void handwritten(int fd, const struct pattern *p, const double *data, int dump)
{
    long long total = 1;
    for (int at = 0; at < p->dims; at++)
        total *= p->grid[at];
    long long each = (total + size - 1) / size, run = 1;
    int last = p->dims - 1;
    while (last >= 0 && p->parts[last] == p->grid[last])
        run *= p->parts[last--];
    if (last >= 0)
        run *= p->parts[last];
    long long runs = p->etypes_per_dump / run;
    int *sends = calloc((size_t) size, sizeof(int)), *receives = calloc((size_t) size, sizeof(int)),
        *from = calloc((size_t) size, sizeof(int)), *to = calloc((size_t) size, sizeof(int));
    double *packed = malloc(sizeof(double) * (size_t) (p->etypes_per_dump + 2 * (runs + size)));
    /* Each run, cut at the borders of ranks' pieces, as: place, length, cells. */
    for (int round = 0; round < 2; round++) {
        long long used = 0;
        for (int at = 0, sum = 0; round == 1 && at < size; sum += sends[at++])
            from[at] = sum;
        int *fill = calloc((size_t) size, sizeof(int));
        for (long long number = 0; number < runs; number++) {
            long long rest = number, place = 0, index[4];
            for (int at = last - 1; at >= 0; at--) {
                index[at] = rest % p->parts[at];
                rest /= p->parts[at];
            }
            for (int at = 0; at < p->dims; at++)
                place = place * p->grid[at] + p->starts[at] + (at < last ? index[at] : 0);
            for (long long done = 0; done < run;) {
                long long here = place + done, owner = here / each, length = run - done;
                if (length > (owner + 1) * each - here)
                    length = (owner + 1) * each - here;
                if (round == 0) {
                    sends[owner] += (int) (2 + length);
                } else {
                    double *out = packed + from[owner] + fill[owner];
                    out[0] = (double) here;
                    out[1] = (double) length;
                    memcpy(out + 2, data + used, sizeof(double) * (size_t) length);
                    fill[owner] += (int) (2 + length);
                }
                used += length;
                done += length;
            }
        }
        free(fill);
    }
    MPI_Alltoall(sends, 1, MPI_INT, receives, 1, MPI_INT, MPI_COMM_WORLD);
    int sum = 0;
    for (int at = 0; at < size; sum += receives[at++])
        to[at] = sum;
    double *got = malloc(sizeof(double) * (size_t) sum), *piece = malloc(sizeof(double) * (size_t) each);
    MPI_Alltoallv(packed, sends, from, MPI_DOUBLE, got, receives, to, MPI_DOUBLE, MPI_COMM_WORLD);
    long long first = each * rank, behind = first;
    for (int at = 0; at < sum; at += 2 + (int) got[at + 1]) {
        memcpy(piece + ((long long) got[at] - first), got + at + 2, sizeof(double) * (size_t) got[at + 1]);
        if ((long long) got[at] + (long long) got[at + 1] > behind)
            behind = (long long) got[at] + (long long) got[at + 1];
    }
    if (pwrite(fd, piece, sizeof(double) * (size_t) (behind - first), (off_t) sizeof(double) * (dump * total + first)) < 0)
        check(MPI_ERR_IO, "pwrite");
    free(packed), free(got), free(piece), free(sends), free(receives), free(from), free(to);
}

static double later(double seconds)
{
    double all;
    MPI_Allreduce(&seconds, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *name = argv[1], *kernel = argv[2], *how = argv[3];
    struct pattern p = find(kernel, atoll(argv[4]) << 20);
    int rounds = atoi(argv[5]), collective = strcmp(how, "collective") == 0, by_hand = strcmp(how, "handwritten") == 0,
        nonblocking = strcmp(how, "nonblocking") == 0, etype_bytes;
    double ms = atof(argv[6]), best_write = 1e9, best_total = 1e9, best_read = 1e9, best_open = 1e9;
    MPI_Type_commit(&p.filetype);
    MPI_Type_size(p.etype, &etype_bytes);
    size_t bytes = (size_t) p.etypes_per_dump * (size_t) etype_bytes;
    char *data = malloc(bytes), *found = malloc(bytes);
    for (int round = 0; round < rounds; round++) {
        if (rank == 0)
            by_hand ? (void) unlink(name) : (void) MPI_File_delete(name, MPI_INFO_NULL);
        MPI_Barrier(MPI_COMM_WORLD);
        double begin = MPI_Wtime(), writing = 0, computing = 0;
        MPI_File file = MPI_FILE_NULL;
        int fd = -1;
        if (by_hand)
            fd = open(name, O_CREAT | O_RDWR, 0666);
        else
            check(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
        double opened = MPI_Wtime() - begin;
        if (!by_hand)
            check(MPI_File_set_view(file, p.displacement, p.etype, p.filetype, "native", MPI_INFO_NULL), "view");
        for (int dump = 0; dump < p.dumps; dump++) {
            memset(data, 1 + (rank + dump + round) % 100, bytes);
            double before = MPI_Wtime();
            MPI_Offset at = (MPI_Offset) dump * p.etypes_per_dump;
            MPI_Request request = MPI_REQUEST_NULL;
            if (by_hand)
                handwritten(fd, &p, (double *) data, dump);
            else if (collective)
                check(MPI_File_write_at_all(file, at, data, p.etypes_per_dump, p.etype, MPI_STATUS_IGNORE), "write");
            else if (nonblocking)
                check(MPI_File_iwrite_at(file, at, data, p.etypes_per_dump, p.etype, &request), "write");
            else
                check(MPI_File_write_at(file, at, data, p.etypes_per_dump, p.etype, MPI_STATUS_IGNORE), "write");
            writing += MPI_Wtime() - before;
            before = MPI_Wtime();
            if (ms > 0)
                compute(ms);
            computing += MPI_Wtime() - before;
            before = MPI_Wtime();
            if (nonblocking)
                check(MPI_Wait(&request, MPI_STATUS_IGNORE), "wait");
            writing += MPI_Wtime() - before;
        }
        if (by_hand)
            close(fd);
        else
            check(MPI_File_close(&file), "close");
        double total = later(MPI_Wtime() - begin - computing);
        writing = later(writing);
        opened = later(opened);
        /* Read back what the last dump was, and compare. */
        double reading = 0;
        if (!by_hand) {
            MPI_Barrier(MPI_COMM_WORLD);
            check(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), "open");
            check(MPI_File_set_view(file, p.displacement, p.etype, p.filetype, "native", MPI_INFO_NULL), "view");
            double before = MPI_Wtime();
            for (int dump = 0; dump < p.dumps; dump++) {
                MPI_Offset at = (MPI_Offset) dump * p.etypes_per_dump;
                if (collective)
                    check(MPI_File_read_at_all(file, at, found, p.etypes_per_dump, p.etype, MPI_STATUS_IGNORE), "read");
                else
                    check(MPI_File_read_at(file, at, found, p.etypes_per_dump, p.etype, MPI_STATUS_IGNORE), "read");
            }
            reading = later(MPI_Wtime() - before);
            check(MPI_File_close(&file), "close");
            if (memcmp(data, found, bytes) != 0)
                check(MPI_ERR_OTHER, "what was read is not what was written");
        }
        best_write = writing < best_write ? writing : best_write;
        best_total = total < best_total ? total : best_total;
        best_open = opened < best_open ? opened : best_open;
        best_read = reading < best_read ? reading : best_read;
    }
    double all = (double) bytes * p.dumps, sum;
    MPI_Allreduce(&all, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("{\"bytes\": %.0f, \"open_s\": %.6f, \"write_s\": %.6f, \"total_s\": %.6f, \"read_s\": %.6f}\n", sum, best_open, best_write,
               best_total, best_read);
    MPI_Type_free(&p.filetype);
    MPI_Finalize();
    return 0;
}
