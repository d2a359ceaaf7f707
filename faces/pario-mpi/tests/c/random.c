/* Random views and accesses, on Pario and on a plain file with the MPI library's own I/O; what the views cover must be equal.
   argv: Pario's files, a plain directory, a seed, rounds. */
#include "suite.h"

static unsigned long long state;
static unsigned below(unsigned limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned) (state % limit);
}

static MPI_Datatype element(void)
{
    MPI_Datatype all[] = {MPI_CHAR, MPI_SHORT, MPI_INT, MPI_DOUBLE, MPI_FLOAT, MPI_BYTE};
    return all[below(6)];
}

/* A type whose displacements increase, as views want it. */
static MPI_Datatype increasing(MPI_Datatype old, int kind)
{
    MPI_Datatype made;
    MPI_Aint lb, extent;
    int lengths[4], places[4], at = 0;
    MPI_Aint bytes[4];
    MPI_Datatype types[4];
    MPI_Type_get_extent(old, &lb, &extent);
    for (int i = 0; i < 4; i++) {
        lengths[i] = 1 + (int) below(3);
        places[i] = at + (int) below(3);
        bytes[i] = places[i] * extent;
        types[i] = old;
        at = places[i] + lengths[i];
    }
    switch (kind) {
    case 0: MPI_Type_contiguous(1 + (int) below(5), old, &made); break;
    case 1: {
        int block = 1 + (int) below(4);
        MPI_Type_vector(1 + (int) below(5), block, block + (int) below(4), old, &made);
        break;
    }
    case 2: {
        int block = 1 + (int) below(3);
        MPI_Type_create_hvector(1 + (int) below(4), block, (block + (int) below(3)) * extent, old, &made);
        break;
    }
    case 3: MPI_Type_indexed(4, lengths, places, old, &made); break;
    case 4: MPI_Type_create_hindexed(4, lengths, bytes, old, &made); break;
    case 5:
        for (int i = 0; i < 4; i++)
            places[i] = i * 3 + (int) below(2);
        MPI_Type_create_indexed_block(4, 2, places, old, &made);
        break;
    case 6:
        for (int i = 0; i < 4; i++)
            bytes[i] = (i * 3 + (int) below(2)) * extent;
        MPI_Type_create_hindexed_block(4, 2, bytes, old, &made);
        break;
    case 7: MPI_Type_create_struct(4, lengths, bytes, types, &made); break;
    case 8: {
        int sizes[] = {3 + (int) below(3), 4 + (int) below(3)}, parts[] = {2, 3}, starts[] = {(int) below(2), (int) below(2)};
        MPI_Type_create_subarray(2, sizes, parts, starts, below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, old, &made);
        break;
    }
    case 9: {
        int sizes[] = {4 + (int) below(5), 6}, how[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_BLOCK},
            args[] = {below(2) ? 2 : MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[] = {2, 1};
        MPI_Type_create_darray(2, (int) below(2), 2, sizes, how, args, grid, MPI_ORDER_C, old, &made);
        break;
    }
    case 10: MPI_Type_create_resized(old, 0, extent * (1 + (int) below(3)), &made); break;
    default: MPI_Type_dup(old, &made); break;
    }
    return made;
}

/* A view of this rank's own blocks, so that ranks do not write the same bytes. */
static MPI_Datatype own_view(MPI_Datatype etype, MPI_Offset *at)
{
    MPI_Datatype inner = increasing(etype, (int) below(12)), nested = increasing(inner, (int) below(12)), spread;
    MPI_Aint lb, extent;
    MPI_Type_get_extent(nested, &lb, &extent);
    MPI_Aint true_lb, true_extent;
    MPI_Type_get_true_extent(nested, &true_lb, &true_extent);
    MPI_Aint room = lb + extent > true_lb + true_extent ? lb + extent : true_lb + true_extent, widest;
    MPI_Allreduce(&room, &widest, 1, MPI_AINT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Type_create_resized(nested, 0, widest * size, &spread);
    MPI_Type_commit(&spread);
    MPI_Type_free(&inner);
    MPI_Type_free(&nested);
    *at = widest * rank;
    return spread;
}

static void fill(char *bytes, int count)
{
    for (int at = 0; at < count; at++)
        bytes[at] = (char) below(256);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned long long seed = strtoull(argv[3], NULL, 10);
    int rounds = atoi(argv[4]);
    char plain[512];
    for (int round = 0; round < rounds; round++) {
        /* What must be the same on all ranks comes first, from the same state. */
        state = seed * 7919 + (unsigned) round * 104729 + 1;
        MPI_Datatype etype = element(), memory, view;
        int collective = (int) below(2), etype_bytes;
        state += (unsigned long long) rank * 1299709;
        MPI_Offset at;
        view = own_view(etype, &at);
        MPI_Type_size(etype, &etype_bytes);
        memory = increasing(etype, (int) below(12));
        MPI_Type_commit(&memory);
        MPI_Aint lb, extent;
        int memory_bytes, count = 1 + (int) below(40), skip = (int) below(20);
        MPI_Type_get_extent(memory, &lb, &extent);
        MPI_Type_size(memory, &memory_bytes);
        size_t room = (size_t) (extent * count + lb + 4096);
        char *wrote = malloc(room), *ours = calloc(1, room), *theirs = calloc(1, room);
        fill(wrote, (int) room);
        snprintf(plain, sizeof plain, "%s/random-%d", argv[2], round);
        char tail[64];
        snprintf(tail, sizeof tail, "random-%d", round);
        MPI_File files[2] = {open_file(MPI_COMM_WORLD, tail, MPI_MODE_CREATE | MPI_MODE_RDWR), MPI_FILE_NULL};
        OK(MPI_File_open(MPI_COMM_WORLD, plain, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &files[1]));
        MPI_Offset places[2];
        for (int which = 0; which < 2; which++) {
            MPI_Status status;
            MPI_File file = files[which];
            char *target = which ? theirs : ours;
            OK(MPI_File_set_view(file, at, etype, view, "native", MPI_INFO_NULL));
            if (collective)
                OK(MPI_File_write_at_all(file, skip, wrote, count, memory, &status));
            else
                OK(MPI_File_write_at(file, skip, wrote, count, memory, &status));
            CHECK(got(&status, memory) == (memory_bytes ? count : 0));
            if (collective)
                OK(MPI_File_read_at_all(file, skip, target, count, memory, &status));
            else
                OK(MPI_File_read_at(file, skip, target, count, memory, &status));
            OK(MPI_File_get_byte_offset(file, skip, &places[which]));
        }
        CHECK(places[0] == places[1]);
        checks++;
        if (memcmp(ours, theirs, room) != 0) {
            char why[128];
            snprintf(why, sizeof why, "round %d of seed %llu reads otherwise than MPI's own I/O", round, seed);
            wrong(__FILE__, __LINE__, "random", why);
        }
        /* The bytes in the file, through no view, where this rank wrote. */
        OK(MPI_File_sync(files[0]));
        OK(MPI_File_sync(files[1]));
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Offset sizes[2];
        OK(MPI_File_get_size(files[0], &sizes[0]));
        OK(MPI_File_get_size(files[1], &sizes[1]));
        CHECK(sizes[0] == sizes[1]);
        OK(MPI_File_close(&files[0]));
        OK(MPI_File_close(&files[1]));
        MPI_Type_free(&memory);
        MPI_Type_free(&view);
        free(wrote);
        free(ours);
        free(theirs);
    }
    return end();
}
