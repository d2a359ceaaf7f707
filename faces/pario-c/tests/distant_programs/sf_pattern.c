/* The call pattern of the SF test of Global Arrays: five writes of 64 KiB under way on each process, a sync, and each process reads the
 * part of another. Arguments: the name of the file. */
#include "check_distant.h"
#include <sf.h>

#define COUNT 5
#define BYTES 65536
static char buffers[COUNT][BYTES];

int main(int argc, char **argv) {
    (void)argc;
    int rank = (int)pario_group_rank(), size = (int)pario_group_size(), file, requests[COUNT];
    double part = (double)COUNT * BYTES;
    CHECK(SF_Create(argv[1], part * size, part * size, part, &file) == 0);
    for (int number = 0; number < COUNT; number++) {
        fill(buffers[number], BYTES, rank * COUNT + number);
        CHECK(SF_Write(file, part * rank + (double)number * BYTES, BYTES, buffers[number], &requests[number]) == 0);
    }
    CHECK(SF_Waitall(requests, COUNT) == 0);
    CHECK(SF_Fsync(file) == 0);
    CHECK(pario_group_barrier() == 0);
    int other = (rank + 1) % size;
    for (int number = 0; number < COUNT; number++)
        CHECK(SF_Read(file, part * other + (double)number * BYTES, BYTES, buffers[number], &requests[number]) == 0);
    CHECK(SF_Waitall(requests, COUNT) == 0);
    for (int number = 0; number < COUNT; number++) CHECK(filled(buffers[number], BYTES, other * COUNT + number));
    CHECK(pario_group_barrier() == 0);
    CHECK(SF_Destroy(file) == 0);
    return check_end();
}
