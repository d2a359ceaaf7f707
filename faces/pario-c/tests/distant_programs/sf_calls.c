/* Every function of sf.h: what it does, and a mistake. Arguments: the name of the file. */
#include "check_distant.h"
#include <math.h>
#include <sf.h>
#include <sys/wait.h>
#include <unistd.h>

#define RECORD 30720

int main(int argc, char **argv) {
    (void)argc;
    int rank = (int)pario_group_rank(), size = (int)pario_group_size();
    int file = -5, other = -5, request, requests[8];
    char *record = malloc(RECORD), *found = malloc(RECORD), message[80];

    CHECK(SF_Create(argv[1], 1e12, 1e11, RECORD, &file) == 0);
    CHECK(file > 0);
    for (int block = 0; block < 8; block++) {
        char *part = malloc(RECORD);
        fill(part, RECORD, rank * 8 + block);
        CHECK(SF_Write(file, (double)(rank * 8 + block) * RECORD, RECORD, part, &requests[block]) == 0);
        CHECK(requests[block] > 0);
    }
    CHECK(SF_Waitall(requests, 8) == 0);
    for (int block = 0; block < 8; block++) CHECK(requests[block] == -1);
    CHECK(SF_Waitall(requests, 8) == 0);
    CHECK(SF_Fsync(file) == 0);
    CHECK(pario_group_barrier() == 0);
    for (int block = 0; block < 8 * size; block++) {
        CHECK(SF_Read(file, (double)block * RECORD, RECORD, found, &request) == 0);
        CHECK(SF_Wait(&request) == 0);
        CHECK(request == -1);
        CHECK(SF_Wait(&request) == 0);
        CHECK(filled(found, RECORD, block));
    }
    /* Beyond 2^40 bytes; never written is zero. */
    CHECK(pario_group_barrier() == 0);
    fill(record, RECORD, 99);
    if (rank == size - 1) {
        CHECK(SF_Write(file, 3e12, RECORD, record, &request) == 0);
        CHECK(SF_Wait(&request) == 0);
    }
    CHECK(pario_group_barrier() == 0);
    CHECK(SF_Read(file, 3e12, RECORD, found, &request) == 0 && SF_Wait(&request) == 0);
    CHECK(filled(found, RECORD, 99));
    CHECK(SF_Read(file, 2e12, RECORD, found, &request) == 0 && SF_Wait(&request) == 0);
    for (int at = 0; at < RECORD; at++) CHECK(found[at] == 0);

    /* Mistakes. */
    CHECK(SF_Read(file, 3e12 + 100, RECORD, found, &request) == 0);
    CHECK(SF_Wait(&request) == SF_EOFFAIL);
    SF_Errmsg(SF_EOFFAIL, message);
    CHECK(strlen(message) < 80 && strstr(pario_error(), "30620 bytes were read") != NULL);
    CHECK(SF_Write(file, -1, 1, record, &request) == SF_SEEKFAIL && request == -1);
    CHECK(SF_Write(file, 0.5, 1, record, &request) == SF_SEEKFAIL);
    CHECK(SF_Read(file, 1e17, 1, record, &request) == SF_SEEKFAIL);
    CHECK(SF_Read(file, NAN, 1, record, &request) == SF_SEEKFAIL);
    CHECK(SF_Read(file, 0, 1, NULL, &request) == SF_SEEKFAIL);
    CHECK(SF_Read(file, 0, 1, record, NULL) == SF_HANDFAIL);
    CHECK(SF_Read(3, 0, 1, record, &request) == SF_HANDFAIL);
    SF_Errmsg(SF_HANDFAIL, message);
    CHECK(strstr(message, "3 is not a handle") != NULL);
    request = 12345;
    CHECK(SF_Wait(&request) == SF_HANDFAIL);
    CHECK(SF_Wait(NULL) == SF_HANDFAIL);
    requests[0] = 4711;
    CHECK(SF_Waitall(requests, 8) == 1);
    SF_Errmsg(1, message);
    CHECK(strstr(message, "4711") != NULL);
    SF_Errmsg(-1990, message);
    CHECK(strlen(message) > 0);
    CHECK(SF_Create(NULL, 0, 0, -1, &other) == SF_OPENFAIL);
    CHECK(SF_Open(0) == SF_HANDFAIL && SF_Close(0) == SF_HANDFAIL && SF_Fsync(0) == SF_HANDFAIL);
    CHECK(SF_Destroy(77) == SF_HANDFAIL && SF_Rwtor(77) == SF_HANDFAIL);

    /* A forked child has no file; its parent's live. */
    pid_t child = fork();
    if (child == 0) _exit(SF_Read(file, 0, 1, record, &request) == SF_HANDFAIL ? 0 : 1);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    /* Closed and read-only for this process. */
    CHECK(SF_Close(file) == 0);
    CHECK(SF_Read(file, 0, 1, record, &request) == SF_HANDFAIL);
    CHECK(SF_Open(file) == 0);
    CHECK(SF_Rwtor(file) == 0);
    CHECK(SF_Write(file, 0, 1, record, &request) == SF_MODEFAIL);
    CHECK(SF_Read(file, 0, 1, record, &request) == 0 && SF_Wait(&request) == 0);

    /* A request under way is completed by the end of the file. */
    CHECK(SF_Create_suffix(argv[1], 0, 0, -1, &other, 3) == 0);
    CHECK(SF_Write(other, (double)rank * RECORD, RECORD, record, &request) == 0);
    CHECK(SF_Destroy(other) == 0);
    CHECK(SF_Wait(&request) == 0);
    CHECK(SF_Destroy(file) == 0);
    CHECK(SF_Destroy(file) == SF_HANDFAIL);
    return check_end();
}
