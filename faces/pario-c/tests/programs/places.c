/* Places where a file is opened and used: outside and inside of regions, nested, by private and shared variables, two at once, by
 * two initial threads. Argument: a directory. */
#include "check.h"

#include <omp.h>
#include <pthread.h>

static const char *directory;

static char *name_of(char *name, const char *file) {
    snprintf(name, 512, "%s/%s", directory, file);
    return name;
}

/* The content of a file, as a string. */
static void check_content(const char *file, const char *wanted) {
    char name[512], got[256] = "";
    int fd = -1;
    long length = (long)strlen(wanted);
    CHECK(omp_file_open_all(&fd, name_of(name, file), O_RDONLY) == 0);
    CHECK(omp_file_size(fd) == length);
    CHECK(omp_file_read_at(got, length, 0, fd) == 0);
    if (memcmp(got, wanted, (size_t)length) != 0) {
        fprintf(stderr, "%s: '%s' instead of '%s'\n", file, got, wanted);
        CHECK(0);
    }
    CHECK(omp_file_close_all(fd) == 0);
}

static void opened_outside(void) {
    char name[512];
    int fd = -1;
    CHECK(omp_file_open_all(&fd, name_of(name, "outside"), O_CREAT | O_RDWR) == 0);
    CHECK(omp_file_write_all("<", 1, fd, OMP_FILE_CONTIG) == 0);
    /* The size of the team changes from call to call. */
    for (int threads = 1; threads <= 3; threads++) {
#pragma omp parallel num_threads(threads)
        {
            char byte = (char)('0' + omp_get_thread_num());
            CHECK(omp_file_write_all(&byte, 1, fd, OMP_FILE_CONTIG) == 0);
        }
    }
    CHECK(omp_file_write_all(">", 1, fd, OMP_FILE_CONTIG) == 0);
    CHECK(omp_file_close_all(fd) == 0);
    check_content("outside", "<001012>");
}

static void opened_inside(void) {
    int shared_fd = -1, first_fd = -1;
#pragma omp parallel num_threads(4) shared(shared_fd, first_fd)
    {
        char name[512], byte = (char)('a' + omp_get_thread_num());
        int private_fd = -2;
        CHECK(omp_file_open_all(&shared_fd, name_of(name, "inside"), O_CREAT | O_RDWR, 0600) == 0);
        CHECK(omp_file_open_all(&private_fd, name_of(name, "private"), O_CREAT | O_RDWR, 0600) == 0);
#pragma omp master
        first_fd = private_fd;
#pragma omp barrier
        CHECK(private_fd == first_fd && private_fd != shared_fd);
        /* Two files at once, closed in the order of opening. */
        CHECK(omp_file_write_all(&byte, 1, shared_fd, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_write_all(&byte, 1, private_fd, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_close_all(shared_fd) == 0);
        CHECK(omp_file_write_all(&byte, 1, private_fd, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_close_all(private_fd) == 0);
    }
    check_content("inside", "abcd");
    check_content("private", "abcdabcd");
}

/* Variables for the handle that are neither shared nor on a thread's stack: elements of an array, memory of each thread's own. */
static void other_variables(void) {
    int elements[4] = {-1, -1, -1, -1};
#pragma omp parallel num_threads(4) shared(elements)
    {
        int me = omp_get_thread_num(), *own = (int *)malloc(sizeof *own);
        char name[512], byte = (char)('a' + me);
        CHECK(omp_file_open_all(&elements[me], name_of(name, "elements"), O_CREAT | O_RDWR) == 0);
        CHECK(omp_file_open_all(own, name_of(name, "own"), O_CREAT | O_RDWR) == 0);
        CHECK(omp_file_write_all(&byte, 1, elements[me], OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_write_all(&byte, 1, *own, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_close_all(elements[me]) == 0);
        CHECK(omp_file_close_all(*own) == 0);
        free(own);
    }
    check_content("elements", "abcd");
    check_content("own", "abcd");
}

/* Opened outside, used in teams of 2 and 3 inside of a team of 2. */
static void nested(void) {
    char name[512];
    int fd = -1;
    CHECK(omp_file_open_all(&fd, name_of(name, "nested"), O_CREAT | O_RDWR) == 0);
#pragma omp parallel num_threads(2)
    {
        int outer = omp_get_thread_num();
#pragma omp parallel num_threads(2 + outer) firstprivate(outer)
        {
            char text[3] = {(char)('0' + outer), (char)('a' + omp_get_thread_num()), ' '};
            CHECK(omp_get_level() == 2 && omp_get_num_threads() == 2 + outer);
            CHECK(omp_file_write_all(text, 3, fd, OMP_FILE_CONTIG) == 0);
        }
    }
    CHECK(omp_file_close_all(fd) == 0);
    check_content("nested", "0a 0b 1a 1b 1c ");
}

/* Each inner team opens a file of its own: its members are the threads of that team. */
static void inner_teams(void) {
#pragma omp parallel num_threads(2)
    {
        int outer = omp_get_thread_num(), fd = -1;
#pragma omp parallel num_threads(3) shared(fd) firstprivate(outer)
        {
            char name[512], byte = (char)('a' + omp_get_thread_num());
            CHECK(omp_file_open_all(&fd, name_of(name, outer ? "inner1" : "inner0"), O_CREAT | O_RDWR) == 0);
            CHECK(omp_file_write_all(&byte, 1, fd, OMP_FILE_CONTIG) == 0);
            if (outer == 1) CHECK(omp_file_write_all(&byte, 1, fd, OMP_FILE_CONTIG) == 0);
            CHECK(omp_file_close_all(fd) == 0);
        }
    }
    check_content("inner0", "abc");
    check_content("inner1", "abcabc");
}

/* Two initial threads with regions of their own do not mix, also with one name and equal flags. */
static void *initial(void *argument) {
    const char *file = (const char *)argument;
    int fd = -1;
    for (int again = 0; again < 20; again++) {
#pragma omp parallel num_threads(2) shared(fd)
        {
            char name[512], mine[2] = {*file, (char)('0' + omp_get_thread_num())}, all[4];
            CHECK(omp_file_open_all(&fd, name_of(name, "initial"), O_CREAT | O_RDWR) == 0);
            CHECK(omp_file_seek_all(fd, *file == 'x' ? 0 : 4) == 0);
            CHECK(omp_file_write_all(mine, 2, fd, OMP_FILE_CONTIG) == 0);
            CHECK(omp_file_fsync(fd) == 0);
            CHECK(omp_file_read_at_all(all, 4, *file == 'x' ? 0 : 4, fd, OMP_FILE_UNKNOWN) == 0);
            CHECK(all[0] == *file && all[1] == '0' && all[2] == *file && all[3] == '1');
            CHECK(omp_file_close_all(fd) == 0);
        }
    }
    return NULL;
}

static void two_initial_threads(void) {
    pthread_t other;
    char one[] = "x", two[] = "y";
    CHECK(pthread_create(&other, NULL, initial, two) == 0);
    initial(one);
    CHECK(pthread_join(other, NULL) == 0);
    check_content("initial", "x0x1y0y1");
}

/* Threads that disagree on the name, with one variable. */
static void different_names(void) {
    int fd = -1;
#pragma omp parallel num_threads(2) shared(fd)
    {
        char name[512];
        const char *file = omp_get_thread_num() ? "name1" : "name0";
        CHECK_FAILS(omp_file_open_all(&fd, name_of(name, file), O_CREAT | O_RDWR), OMP_FILE_ENOTSAME, "do not agree");
    }
}

/* Threads that take different handles wait for each other: all are told. */
static void different_handles(void) {
    int one = -1, two = -1;
#pragma omp parallel num_threads(3) shared(one, two)
    {
        char name[512], byte = (char)('a' + omp_get_thread_num());
        CHECK(omp_file_open_all(&one, name_of(name, "handle1"), O_CREAT | O_RDWR) == 0);
        CHECK(omp_file_open_all(&two, name_of(name, "handle2"), O_CREAT | O_RDWR) == 0);
        int wrong = omp_get_thread_num() == 1 ? two : one;
        CHECK_FAILS(omp_file_seek_all(wrong, 0), OMP_FILE_ENOTSAME, "seek_all on ");
        CHECK(omp_file_write_all(&byte, 1, one, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_close_all(one) == 0);
        CHECK(omp_file_close_all(two) == 0);
    }
    check_content("handle1", "abc");
}

/* Two handles of one file, closed in the opposite order; tasks between collective calls. */
static void two_handles(void) {
    char name[512];
    int one = -1, two = -1;
    CHECK(omp_file_open_all(&one, name_of(name, "two"), O_CREAT | O_RDWR) == 0);
    CHECK(omp_file_open_all(&two, name_of(name, "other"), O_CREAT | O_RDWR) == 0);
#pragma omp parallel num_threads(3)
    {
        char byte = (char)('a' + omp_get_thread_num());
        CHECK(omp_file_write_all(&byte, 1, one, OMP_FILE_CONTIG) == 0);
#pragma omp single
        for (int task = 0; task < 4; task++) {
#pragma omp task firstprivate(task)
            {
                char digit = (char)('0' + task);
                CHECK(omp_file_write_at(&digit, 1, task, two) == 0);
            }
        }
        CHECK(omp_file_write_all(&byte, 1, one, OMP_FILE_CONTIG) == 0);
        CHECK(omp_file_close_all(two) == 0);
        CHECK(omp_file_close_all(one) == 0);
    }
    check_content("two", "abcabc");
    check_content("other", "0123");
}

int main(int count, char **words) {
    if (count < 2) return 2;
    directory = words[1];
    omp_set_max_active_levels(4);
    omp_set_dynamic(0);
    opened_outside();
    opened_inside();
    other_variables();
    nested();
    inner_teams();
    two_initial_threads();
    different_names();
    different_handles();
    two_handles();
    return check_end();
}
