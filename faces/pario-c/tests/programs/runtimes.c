/* A program without OpenMP that loads two libraries locally, each with a runtime of its own. Arguments: file, two libraries. */
#include "check.h"

#include <dlfcn.h>

typedef int (*write_by_region_type)(int fd, int threads, char first);
typedef int (*call_in_region_type)(int threads, int (*call)(int fd), int fd);

static void *symbol(const char *path, const char *name) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

static const char *inner_library;

/* A region inside of a region of the other runtime. */
static int write_one(int fd) {
    write_by_region_type write = NULL;
    *(void **)&write = symbol(inner_library, "write_by_region");
    return write(fd, 1, 'z');
}

int main(int count, char **words) {
    if (count < 4) return 2;
    int fd = -1;
    char got[64] = "";
    write_by_region_type one = NULL, two = NULL;
    call_in_region_type outer = NULL;
    CHECK(omp_file_open_all(&fd, words[1], O_CREAT | O_RDWR) == 0);
    CHECK(omp_file_write_all("<", 1, fd, OMP_FILE_CONTIG) == 0);
    /* Each runtime is loaded after the file was opened. */
    *(void **)&one = symbol(words[2], "write_by_region");
    CHECK(one(fd, 3, 'a') == 0);
    *(void **)&two = symbol(words[3], "write_by_region");
    /* With a choice, threads of the other runtime are in no region. */
    if (!getenv("PARIO_OMP")) CHECK(two(fd, 2, 'k') == 0);
    CHECK(one(fd, 2, 'p') == 0);
    CHECK(omp_file_write_all(">", 1, fd, OMP_FILE_CONTIG) == 0);
    const char *wanted = getenv("PARIO_OMP") ? "<abcpq>" : "<abcklpq>";
    long length = (long)strlen(wanted);
    CHECK(omp_file_size(fd) == length);
    CHECK(omp_file_read_at(got, length, 0, fd) == 0 && strcmp(got, wanted) == 0);
    /* A thread in regions of both. */
    *(void **)&outer = symbol(words[2], "call_in_region");
    inner_library = words[3];
    int failed = outer(1, write_one, fd);
    if (getenv("PARIO_OMP")) {
        CHECK(failed == 0);
    } else {
        CHECK(failed == 1);
        CHECK(strstr(omp_file_strerror(), "choose by PARIO_OMP=") != NULL);
    }
    CHECK(omp_file_close_all(fd) == 0);
    return check_end();
}
