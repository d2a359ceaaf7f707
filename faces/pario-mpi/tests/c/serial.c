/* POSIX calls of a program without MPI: locks, duplicated descriptors, private mappings, and what is refused. argv: a directory of
 * Pario's. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int checks, failures;
#define CHECK(condition) (checks++, (condition) ? (void) 0 : wrong(__LINE__, #condition))
static void wrong(int line, const char *what)
{
    failures++;
    fprintf(stderr, "serial.c:%d: %s is not so (errno %d)\n", line, what, errno);
}

static const char *base;
static const char *name_of(const char *tail)
{
    static char names[8][4096];
    static int next;
    char *name = names[next++ % 8];
    snprintf(name, sizeof names[0], "%s/%s", base, tail);
    return name;
}

static int lock(int fd, int command, int type, off_t start, off_t bytes)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes};
    return fcntl(fd, command, &lock);
}

static int found(int fd, int command, int type, off_t start, off_t bytes, struct flock *lock)
{
    memset(lock, 0, sizeof *lock);
    *lock = (struct flock) {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = bytes};
    return fcntl(fd, command, lock);
}

/* Another process, which has the file open for itself: exits with what `work` returns. */
static int elsewhere(const char *program, const char *what, const char *tail)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, base, what, tail, (char *) NULL);
        _exit(99);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

/* What the other process says: 0 if it got the lock, 1 if that is in use, 2 for anything else. */
static int other(const char *what, const char *tail)
{
    int fd = open(name_of(tail), O_RDWR), code;
    if (fd < 0)
        return 3;
    if (strcmp(what, "flock") == 0)
        code = flock(fd, LOCK_EX | LOCK_NB);
    else if (strcmp(what, "flock-shared") == 0)
        code = flock(fd, LOCK_SH | LOCK_NB);
    else if (strcmp(what, "ofd") == 0)
        code = lock(fd, F_OFD_SETLK, F_WRLCK, 0, 10);
    else if (strcmp(what, "read") == 0)
        code = lock(fd, F_SETLK, F_RDLCK, 0, 10);
    else
        code = lock(fd, F_SETLK, F_WRLCK, 0, 10);
    int result = code == 0 ? 0 : errno == EAGAIN || errno == EACCES ? 1 : 2;
    /* Not closed: the end of the process ends its locks. */
    return result;
}

static void flocks(const char *program)
{
    int one = open(name_of("flock"), O_RDWR | O_CREAT, 0644), two = open(name_of("flock"), O_RDWR);
    CHECK(one >= 0 && two >= 0 && one != two);
    CHECK(flock(one, LOCK_EX) == 0);
    CHECK(flock(two, LOCK_SH | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    CHECK(elsewhere(program, "flock", "flock") == 1);
    /* A lock belongs to the open file: a copy of its descriptor has it too, and may end it. */
    int copy = dup(one);
    CHECK(copy >= 0 && close(one) == 0);
    CHECK(elsewhere(program, "flock", "flock") == 1);
    CHECK(flock(copy, LOCK_SH) == 0);
    CHECK(elsewhere(program, "flock-shared", "flock") == 0);
    CHECK(elsewhere(program, "flock", "flock") == 1);
    CHECK(flock(copy, LOCK_UN) == 0);
    CHECK(elsewhere(program, "flock", "flock") == 0);
    CHECK(flock(copy, LOCK_EX | LOCK_NB) == 0);
    CHECK(close(copy) == 0);
    CHECK(elsewhere(program, "flock", "flock") == 0);
    CHECK(flock(two, 77) == -1 && errno == EINVAL);
    CHECK(close(two) == 0);
    CHECK(flock(two, LOCK_EX) == -1 && errno == EBADF);
}

static void records(const char *program)
{
    struct flock about;
    int one = open(name_of("records"), O_RDWR | O_CREAT, 0644), two = open(name_of("records"), O_RDWR);
    CHECK(lock(one, F_SETLK, F_WRLCK, 0, 100) == 0);
    CHECK(lock(two, F_SETLK, F_WRLCK, 50, 100) == 0); /* of the same process */
    CHECK(elsewhere(program, "write", "records") == 1);
    CHECK(elsewhere(program, "read", "records") == 1);
    CHECK(lock(one, F_SETLKW, F_RDLCK, 0, 20) == 0);
    CHECK(elsewhere(program, "read", "records") == 0);
    CHECK(elsewhere(program, "write", "records") == 1);
    CHECK(found(one, F_GETLK, F_WRLCK, 0, 0, &about) == 0 && about.l_type == F_UNLCK);
    /* The description of a descriptor is another owner. */
    CHECK(found(two, F_OFD_GETLK, F_WRLCK, 30, 5, &about) == 0 && about.l_type == F_WRLCK && about.l_pid == getpid());
    CHECK(about.l_start <= 30 && (about.l_len == 0 || about.l_start + about.l_len > 30));
    CHECK(lock(two, F_OFD_SETLK, F_WRLCK, 0, 10) == -1 && errno == EAGAIN);
    /* Any close of the file by the process ends its locks, whichever descriptor took them. */
    CHECK(close(two) == 0);
    CHECK(elsewhere(program, "write", "records") == 0);
    CHECK(lock(one, F_OFD_SETLK, F_WRLCK, 5, 1) == 0);
    CHECK(elsewhere(program, "ofd", "records") == 1);
    CHECK(lock(one, F_SETLK, F_RDLCK, 5, 1) == -1 && errno == EAGAIN);
    CHECK(lock(one, F_OFD_SETLK, F_UNLCK, 0, 0) == 0);
    CHECK(lseek(one, 1000, SEEK_SET) == 1000 && lockf(one, F_TLOCK, -1000) == 0);
    CHECK(elsewhere(program, "write", "records") == 1);
    CHECK(lockf(one, F_ULOCK, -1000) == 0 && elsewhere(program, "write", "records") == 0);
    CHECK(lock(one, F_SETLK, 77, 0, 1) == -1 && errno == EINVAL);
    CHECK(lock(one, F_SETLK, F_WRLCK, -1, 1) == -1 && errno == EINVAL);
    int reader = open(name_of("records"), O_RDONLY);
    CHECK(lock(reader, F_SETLK, F_WRLCK, 0, 1) == -1 && errno == EBADF);
    CHECK(close(reader) == 0 && close(one) == 0);
}

static void copies(void)
{
    char bytes[16] = {0};
    int one = open(name_of("copies"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(write(one, "hello", 5) == 5);
    int two = dup(one), three = fcntl(one, F_DUPFD, 50), four = dup2(one, 60), five = dup3(one, 61, O_CLOEXEC);
    CHECK(two >= 0 && three >= 50 && four == 60 && five == 61);
    CHECK(lseek(three, 0, SEEK_CUR) == 5); /* one position */
    CHECK(write(four, " world", 6) == 6 && lseek(two, 0, SEEK_SET) == 0);
    CHECK(read(one, bytes, 16) == 11 && memcmp(bytes, "hello world", 11) == 0);
    CHECK(close(one) == 0 && pread(five, bytes, 5, 6) == 5 && memcmp(bytes, "world", 5) == 0);
    CHECK((fcntl(two, F_GETFL) & O_ACCMODE) == O_RDWR && (fcntl(two, F_GETFL) & O_APPEND) == 0);
    CHECK(fcntl(two, F_SETFL, O_APPEND) == 0 && (fcntl(three, F_GETFL) & O_APPEND) != 0);
    CHECK(pwrite(two, "H", 1, 0) == 1 && lseek(two, 0, SEEK_SET) == 0 && write(two, "!", 1) == 1);
    CHECK(pread(two, bytes, 16, 0) == 12 && memcmp(bytes, "Hello world!", 12) == 0);
    /* A plain file takes the number, and one of Pario's that of a plain one. */
    int plain = open("/dev/zero", O_RDONLY);
    CHECK(dup2(plain, four) == four && read(four, bytes, 4) == 4 && bytes[0] == 0);
    CHECK(dup2(two, plain) == plain && pread(plain, bytes, 5, 0) == 5 && memcmp(bytes, "Hello", 5) == 0);
    CHECK(close(two) == 0 && close(three) == 0 && close(four) == 0 && close(five) == 0 && close(plain) == 0);
    CHECK(close(plain) == -1 && errno == EBADF);
}

static void vectors(void)
{
    char one[4] = {0}, two[16] = {0};
    struct iovec from[] = {{"abc", 3}, {"", 0}, {"defgh", 5}}, to[] = {{one, 4}, {two, 16}};
    int fd = open(name_of("vectors"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    CHECK(writev(fd, from, 3) == 8 && lseek(fd, 1, SEEK_SET) == 1);
    CHECK(readv(fd, to, 2) == 7 && memcmp(one, "bcde", 4) == 0 && memcmp(two, "fgh", 3) == 0);
    CHECK(pwritev(fd, from, 1, 8) == 3 && preadv(fd, to, 2, 5) == 6 && memcmp(one, "fgha", 4) == 0 && memcmp(two, "bc", 2) == 0);
    CHECK(writev(fd, from, -1) == -1 && errno == EINVAL && close(fd) == 0);
}

static void mappings(void)
{
    int fd = open(name_of("mapped"), O_RDWR | O_CREAT | O_TRUNC, 0644);
    char block[4096];
    memset(block, 'a', sizeof block);
    CHECK(write(fd, block, sizeof block) == sizeof block && write(fd, "tail", 4) == 4);
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    CHECK(memory != MAP_FAILED && memory[0] == 'a' && memcmp(memory + 4096, "tail", 5) == 0);
    memory[0] = 'b';
    CHECK(pread(fd, block, 1, 0) == 1 && block[0] == 'a' && munmap(memory, 8192) == 0);
    memory = mmap(NULL, 4, PROT_READ, MAP_PRIVATE, fd, 4096);
    CHECK(memory != MAP_FAILED && memcmp(memory, "tail", 4) == 0 && munmap(memory, 4) == 0);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
    CHECK(close(fd) == 0);
}

static void streams(void)
{
    char text[64] = {0};
    struct stat about;
    CHECK(fopen(name_of("no-stream"), "r") == NULL && errno == ENOENT);
    CHECK(fopen(name_of("stream"), "q") == NULL && errno == EINVAL);
    FILE *stream = fopen(name_of("stream"), "w+");
    CHECK(stream != NULL && fprintf(stream, "%d lines\n", 2) == 8 && fputs("second\n", stream) >= 0);
    CHECK(ftell(stream) == 15 && fseek(stream, 2, SEEK_SET) == 0 && fgets(text, 64, stream) && strcmp(text, "lines\n") == 0);
    CHECK(fstat(fileno(stream), &about) == 0 && about.st_size == 15);
    CHECK(fclose(stream) == 0);
    stream = fopen(name_of("stream"), "a");
    CHECK(stream != NULL && fputs("third\n", stream) >= 0 && fflush(stream) == 0 && fclose(stream) == 0);
    CHECK(fopen(name_of("stream"), "wx") == NULL && errno == EEXIST);
    int fd = open(name_of("stream"), O_RDONLY);
    CHECK(fdopen(fd, "w") == NULL && errno == EINVAL);
    stream = fdopen(fd, "r");
    CHECK(stream != NULL && fileno(stream) == fd && fread(text, 1, 64, stream) == 21 && feof(stream));
    CHECK(memcmp(text, "2 lines\nsecond\nthird\n", 21) == 0);
    CHECK(fputc('x', stream) == EOF);
    CHECK(fclose(stream) == 0 && read(fd, text, 1) == -1 && errno == EBADF);
    stream = fopen("/dev/null", "w");
    CHECK(stream != NULL && fileno(stream) >= 0 && fclose(stream) == 0);
}

static void refused(void)
{
    errno = 0;
    CHECK(opendir(base) == NULL && errno == ENOTSUP);
    CHECK(opendir(base) == NULL && errno == ENOTSUP);
    DIR *plain = opendir("/");
    CHECK(plain != NULL && readdir(plain) != NULL && closedir(plain) == 0);
}

/* The directory itself, however it is named. */
static void directory(void)
{
    struct stat about;
    char name[4096];
    CHECK(stat(base, &about) == 0 && S_ISDIR(about.st_mode));
    snprintf(name, sizeof name, "%s/", base);
    CHECK(stat(name, &about) == 0 && S_ISDIR(about.st_mode));
    CHECK(mkdir(name_of("sub"), 0755) == 0 && stat(name_of("sub"), &about) == 0 && remove(name_of("sub")) == 0);
    CHECK(remove(name_of("sub")) == -1 && errno == ENOENT);
}

int main(int argc, char **argv)
{
    base = argv[1];
    if (argc > 3)
        return other(argv[2], argv[3]);
    directory();
    flocks(argv[0]);
    records(argv[0]);
    copies();
    vectors();
    mappings();
    streams();
    refused();
    printf("%d checks, %d failures\n", checks, failures);
    return failures != 0;
}
