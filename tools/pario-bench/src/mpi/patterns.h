/* Access patterns: what each rank has of a file. One view, dumped several times, one file type after the other. */
enum { DUMPS = 8, IRREGULAR = 175000, VARIABLES = 24, BLOCK = 16, GUARDS = 4 };

struct pattern {
    MPI_Datatype etype, filetype;
    MPI_Offset displacement;
    MPI_Datatype memory;  /* of one dump, or MPI_DATATYPE_NULL where it is etypes in a row */
    size_t memory_bytes;  /* of one dump, with what the datatype leaves out */
    int etypes_per_dump;  /* of this rank */
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
    if (q * q != size || q > 64)
        return subarray(4, 40, bytes);
    struct pattern made = {.etype = MPI_DOUBLE, .dumps = DUMPS};
    int edge = (int) (cbrt((double) bytes / DUMPS / 40) / q), lengths[64] = {0};
    edge = edge > 0 ? edge : 1;
    MPI_Aint places[64] = {0};
    MPI_Datatype cubes[64] = {MPI_DATATYPE_NULL}, together;
    for (int slab = 0; slab < q; slab++) {
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

/* A checkpoint of 24 variables on cubes of cells with guard cells around them: memory has a datatype, and one call writes one variable. */
static struct pattern flash(long long bytes)
{
    int whole = BLOCK + 2 * GUARDS, sizes[] = {whole, whole, whole}, parts[] = {BLOCK, BLOCK, BLOCK},
        starts[] = {GUARDS, GUARDS, GUARDS};
    long long cells = BLOCK * BLOCK * BLOCK, blocks = bytes / VARIABLES / size / (cells * 8);
    struct pattern made = {.etype = MPI_DOUBLE, .dumps = VARIABLES};
    MPI_Datatype block, one;
    blocks = blocks > 0 ? blocks : 1;
    made.etypes_per_dump = (int) (blocks * cells);
    made.memory_bytes = (size_t) (blocks * whole * whole * whole * 8);
    made.displacement = (MPI_Offset) rank * made.etypes_per_dump * 8;
    MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_DOUBLE, &block);
    MPI_Type_contiguous((int) blocks, block, &made.memory);
    MPI_Type_commit(&made.memory);
    MPI_Type_contiguous(made.etypes_per_dump, MPI_DOUBLE, &one);
    MPI_Type_create_resized(one, 0, (MPI_Aint) made.etypes_per_dump * 8 * size, &made.filetype);
    MPI_Type_free(&block);
    MPI_Type_free(&one);
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

static struct pattern chosen(const char *name, long long bytes)
{
    if (strcmp(name, "strided8k") == 0)
        return strided(8192, bytes);
    if (strcmp(name, "strided64k") == 0)
        return strided(1 << 16, bytes);
    if (strcmp(name, "flash") == 0)
        return flash(bytes);
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

/* A kernel's pattern, with its memory if that is without gaps. */
static struct pattern find(const char *name, long long bytes)
{
    int etype_bytes;
    struct pattern made = chosen(name, bytes);
    MPI_Type_commit(&made.filetype);
    MPI_Type_size(made.etype, &etype_bytes);
    if (made.memory_bytes == 0) {
        made.memory = MPI_DATATYPE_NULL;
        made.memory_bytes = (size_t) made.etypes_per_dump * (size_t) etype_bytes;
    }
    return made;
}

static void release(struct pattern *made)
{
    MPI_Type_free(&made->filetype);
    if (made->memory != MPI_DATATYPE_NULL)
        MPI_Type_free(&made->memory);
}
