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
