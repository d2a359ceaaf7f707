/* The POSIX calls that libraries make beside MPI-IO, on the same paths. argv: Pario's files, a plain directory. */
#define _XOPEN_SOURCE 700
#include "suite.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void alone(void)
{
    struct stat about;
    char bytes[16] = {0};
    CHECK(access(name_of("posix"), F_OK) == -1 && errno == ENOENT);
    CHECK(open(name_of("posix"), O_RDONLY) == -1 && errno == ENOENT);
    int fd = open(name_of("posix"), O_CREAT | O_EXCL | O_RDWR, 0640);
    CHECK(fd >= 0);
    CHECK(open(name_of("posix"), O_CREAT | O_EXCL | O_RDWR, 0640) == -1 && errno == EEXIST);
    CHECK(write(fd, "hello world", 11) == 11);
    CHECK(lseek(fd, 6, SEEK_SET) == 6);
    CHECK(read(fd, bytes, 16) == 5 && memcmp(bytes, "world", 5) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == 11);
    CHECK(read(fd, bytes, 16) == 0);
    CHECK(pwrite(fd, "W", 1, 6) == 1);
    CHECK(pread(fd, bytes, 5, 6) == 5 && memcmp(bytes, "World", 5) == 0);
    CHECK(lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
    CHECK(fstat(fd, &about) == 0 && about.st_size == 11 && S_ISREG(about.st_mode));
    CHECK(fsync(fd) == 0);
    CHECK(ftruncate(fd, 5) == 0);
    CHECK(close(fd) == 0);
    CHECK(close(fd) == -1 && errno == EBADF);
    CHECK(stat(name_of("posix"), &about) == 0 && about.st_size == 5);
    CHECK(access(name_of("posix"), R_OK) == 0);
    fd = open(name_of("posix"), O_WRONLY | O_APPEND);
    CHECK(write(fd, "!", 1) == 1);
    CHECK(close(fd) == 0);
    CHECK(truncate(name_of("posix"), 3) == 0);
    CHECK(lstat(name_of("posix"), &about) == 0 && about.st_size == 3);
    CHECK(mkdir(name_of("dir"), 0777) == 0);
    CHECK(mkdir(name_of("dir"), 0777) == -1 && errno == EEXIST);
    CHECK(stat(name_of("dir"), &about) == 0 && S_ISDIR(about.st_mode));
    CHECK(rename(name_of("posix"), name_of("dir/moved")) == 0);
    CHECK(rename(name_of("dir/moved"), "/tmp/elsewhere") == -1 && errno == EXDEV);
    CHECK(unlink(name_of("dir/moved")) == 0);
    CHECK(unlink(name_of("dir/moved")) == -1 && errno == ENOENT);
    CHECK(rmdir(name_of("dir")) == 0);
}

/* What is not Pario's is not touched. */
static void plain(const char *dir)
{
    char name[512], bytes[4];
    snprintf(name, sizeof name, "%s/posix-plain-%d", dir, rank);
    int fd = open(name, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && write(fd, "abc", 3) == 3 && lseek(fd, 0, SEEK_SET) == 0 && read(fd, bytes, 4) == 3 && close(fd) == 0);
    FILE *stream = fopen(name, "r");
    CHECK(stream != NULL && fgetc(stream) == 'a' && fclose(stream) == 0);
    CHECK(unlink(name) == 0);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    if (rank == 0)
        alone();
    plain(argv[2]);
    /* Together with MPI-IO: what one wrote the other sees. */
    MPI_File file = open_file(MPI_COMM_WORLD, "both", MPI_MODE_CREATE | MPI_MODE_RDWR);
    OK(MPI_File_write_at_all(file, rank * 4, &rank, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&file));
    MPI_Barrier(MPI_COMM_WORLD);
    int numbers[64], fd = open(name_of("both"), O_RDONLY);
    CHECK(read(fd, numbers, sizeof numbers) == 4 * size);
    for (int at = 0; at < size; at++)
        CHECK(numbers[at] == at);
    CHECK(close(fd) == 0);
    return end();
}
