/* Checks of test programs: a failed one is printed with its thread, and the program ends with 1. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <omp_file.h>

static int check_failures;

static void check_failed(const char *file, int line, const char *text) {
#pragma omp critical(check)
    {
        check_failures++;
        fprintf(stderr, "%s:%d: not true: %s (last error: %ld %s)\n", file, line, text, (long)omp_file_errno(),
                omp_file_strerror());
    }
}

#define CHECK(what) \
    do { \
        if (!(what)) check_failed(__FILE__, __LINE__, #what); \
    } while (0)

/* A call that must fail with a number, and a sentence that contains a text. */
#define CHECK_FAILS(call, number, text) \
    do { \
        CHECK((call) == -1); \
        CHECK(omp_file_errno() == (number)); \
        CHECK(strstr(omp_file_strerror(), (text)) != NULL); \
    } while (0)

static int check_end(void) {
    printf("%d failures\n", check_failures);
    return check_failures != 0;
}

#endif
