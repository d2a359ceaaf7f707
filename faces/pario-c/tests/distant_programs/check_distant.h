/* Checks of test programs: a failed one is printed, and the program ends with 1. */
#ifndef CHECK_DISTANT_H
#define CHECK_DISTANT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pario.h>

static int check_failures;

#define CHECK(what) \
    do { \
        if (!(what)) { \
            check_failures++; \
            fprintf(stderr, "%s:%d: not true: %s (last error: %s)\n", __FILE__, __LINE__, #what, pario_error()); \
        } \
    } while (0)

static int check_end(void) {
    printf("%d failures\n", check_failures);
    return check_failures != 0;
}

static void fill(char *buffer, int bytes, int seed) {
    for (int at = 0; at < bytes; at++) buffer[at] = (char)(at * 7 + seed * 13 + (at >> 8));
}

static int filled(const char *buffer, int bytes, int seed) {
    for (int at = 0; at < bytes; at++)
        if (buffer[at] != (char)(at * 7 + seed * 13 + (at >> 8))) return 0;
    return 1;
}

#endif
