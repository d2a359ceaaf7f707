/* What is measured apart from the patterns: opening and closing, and how much of writing is hidden behind computing. */
enum { OPENINGS = 40 };

/* A file that is there is opened and closed; nothing else. */
static void open_close(const char *name)
{
    double seconds[OPENINGS];
    MPI_File file;
    for (int at = -2; at < OPENINGS; at++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double before = MPI_Wtime();
        check(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file), "open");
        check(MPI_File_close(&file), "close");
        double took = later(MPI_Wtime() - before);
        /* The first creates it and connects. */
        if (at >= 0)
            seconds[at] = took;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_File_delete(name, MPI_INFO_NULL);
        printf("{\"bytes\": 0");
        print_times("open_close_s", seconds, OPENINGS);
        printf("}\n");
    }
}

/* Dumps by MPI_File_iwrite_at, each followed by so much work and MPI_Wait; seconds from open to close. */
static double dumps_and_work(const struct run *run, long long turns)
{
    make_way(run);
    double begin = MPI_Wtime();
    MPI_File file = open_with_view(run, MPI_MODE_CREATE | MPI_MODE_RDWR);
    for (int dump = 0; dump < run->p.dumps; dump++) {
        MPI_Request request = MPI_REQUEST_NULL;
        put(run, file, dump, &request);
        work(turns);
        check(MPI_Wait(&request, MPI_STATUS_IGNORE), "wait");
    }
    check(MPI_File_close(&file), "close");
    return later(MPI_Wtime() - begin);
}

static double work_alone(const struct run *run, long long turns)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int dump = 0; dump < run->p.dumps; dump++)
        work(turns);
    return later(MPI_Wtime() - begin);
}

/* The same amount of work alone, the same writing alone, and both together. A dump's work takes `ms` while all ranks work. */
static void overlap(struct run *run, long long bytes, int rounds, double ms)
{
    double io[ROUNDS_MAX], computing[ROUNDS_MAX], both[ROUNDS_MAX];
    long long turns = 1000000;
    run->nonblocking = 1;
    run->data = malloc(run->p.memory_bytes);
    memset(run->data, 1 + rank, run->p.memory_bytes);
    work_alone(run, turns);
    turns = (long long) ((double) turns * ms / 1e3 / (work_alone(run, turns) / run->p.dumps));
    /* The slowest decides, so that all have the same. */
    MPI_Bcast(&turns, 1, MPI_LONG_LONG, 0, MPI_COMM_WORLD);
    dumps_and_work(run, 0);
    for (int round = 0; round < rounds; round++) {
        io[round] = dumps_and_work(run, 0);
        computing[round] = work_alone(run, turns);
        both[round] = dumps_and_work(run, turns);
    }
    make_way(run);
    if (rank == 0) {
        printf("{\"bytes\": %lld", bytes);
        print_times("io_s", io, rounds);
        print_times("compute_s", computing, rounds);
        print_times("both_s", both, rounds);
        printf("}\n");
    }
    free(run->data);
}
