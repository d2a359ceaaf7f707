/* Files that the threads of an OpenMP program read and write together. Guide: docs/guide/teams.md.
 *
 *     #include <omp_file.h>                     cc -fopenmp app.c $(pario env --compile)
 *     int fd;
 *     #pragma omp parallel shared(fd)
 *     {
 *         omp_file_open_all(&fd, "pario://scratch/field", O_CREAT | O_RDWR);
 *         omp_file_write_all(mine, bytes, fd, OMP_FILE_CONTIG);
 *         omp_file_close_all(fd);
 *     }
 *
 * Functions with `_all` in their name, and omp_file_fsync, are collective: all threads below the place where the file was
 * opened call them, in the same order, and get the same result. Results are 0, or -1 for an error; omp_file_errno,
 * omp_file_strerror and omp_file_count tell the calling thread more.
 */
#ifndef PARIO_OMP_FILE_H
#define PARIO_OMP_FILE_H

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Hints: what the caller knows about the parts of all threads together. */
#define OMP_FILE_CONTIG 1     /* each part begins where that of the thread in front ends; checked */
#define OMP_FILE_UNKNOWN 0    /* analysed */
#define OMP_FILE_NONCONTIG -1 /* each part as it is */

/* Errors without a number in <errno.h>. Others are ENOSPC, EDQUOT, EINVAL, ENOENT, EACCES, EBADF and so on. */
#define OMP_FILE_EEOF 1001     /* the file ends inside of the call; counts are exact */
#define OMP_FILE_ENOTSAME 1002 /* threads disagree on function, hint, length, name or flags */
#define OMP_FILE_ECLOSED 1003  /* the handle is closed, or belongs to the parent process */
#define OMP_FILE_ELOST 1004    /* a thread ended, or did not come in time */
#define OMP_FILE_ETWOTEAMS 1005 /* two teams use one handle at once */

/* Opens a file: a plain path, or pario://NAME/path. Flags are those of open(2), and a mode may follow; 0666 without one. The
 * handle is stored in *fd by every thread: a shared and a private variable both work. Called outside of a parallel region,
 * all threads may use the handle; called by the threads of a team, these. */
ssize_t omp_file_open_all(int *fd, const char *name, int flags, ...);
/* A call without a mode passes this one. */
#define omp_file_open_all(...) omp_file_open_all(__VA_ARGS__, 0666)
ssize_t omp_file_close_all(int fd);
/* Puts what was written on stable storage. */
ssize_t omp_file_fsync(int fd);

/* Each thread its own part, at the pointer, in the order of threads. */
ssize_t omp_file_write_all(const void *buffer, long length, int fd, int hint);
ssize_t omp_file_read_all(void *buffer, long length, int fd, int hint);
/* Each thread its own part, at an offset of its own. */
ssize_t omp_file_write_at_all(const void *buffer, long length, off_t offset, int fd, int hint);
ssize_t omp_file_read_at_all(void *buffer, long length, off_t offset, int fd, int hint);
/* Each thread a list of buffers (struct iovec), one after the other. */
ssize_t omp_file_write_list_all(const void *list, int size, int fd, int hint);
ssize_t omp_file_read_list_all(const void *list, int size, int fd, int hint);
/* Each thread a list of buffers, and an offset for each. */
ssize_t omp_file_write_list_at_all(const void *list, const off_t *offsets, int size, int fd, int hint);
ssize_t omp_file_read_list_at_all(const void *list, const off_t *offsets, int size, int fd, int hint);

/* One buffer, the same in all threads: the threads share the work. */
ssize_t omp_file_write_com_all(const void *buffer, long length, int fd, int hint);
ssize_t omp_file_read_com_all(void *buffer, long length, int fd, int hint);
ssize_t omp_file_write_com_at_all(const void *buffer, long length, off_t offset, int fd, int hint);
ssize_t omp_file_read_com_at_all(void *buffer, long length, off_t offset, int fd, int hint);
ssize_t omp_file_write_com_list_all(const void *list, int size, int fd, int hint);
ssize_t omp_file_read_com_list_all(const void *list, int size, int fd, int hint);
ssize_t omp_file_write_com_list_at_all(const void *list, const off_t *offsets, int size, int fd, int hint);
ssize_t omp_file_read_com_list_at_all(const void *list, const off_t *offsets, int size, int fd, int hint);

/* Sets the pointer, by all threads. */
ssize_t omp_file_seek_all(int fd, off_t offset);
/* The pointer; the length of the file. */
ssize_t omp_file_tell(int fd);
ssize_t omp_file_size(int fd);

/* Calls of one thread alone, for tasks and everything else: no other thread takes part, the pointer does not move. */
ssize_t omp_file_write_at(const void *buffer, long length, off_t offset, int fd);
ssize_t omp_file_read_at(void *buffer, long length, off_t offset, int fd);
/* Part `part` of `parts`, from 0 on, at the pointer, behind the parts with lower numbers; in whichever order they come. */
ssize_t omp_file_write_part(const void *buffer, long length, long part, long parts, int fd);

/* The last call of this thread: bytes that it moved for this thread; number and sentence of its error. */
ssize_t omp_file_count(void);
ssize_t omp_file_errno(void);
const char *omp_file_strerror(void);

/* A setting of files that are opened from now on: saturation, active, target, write_behind, buffer. A null value removes it. */
ssize_t omp_file_set(const char *key, const char *value);

/* Does nothing; programs for OpenUH call it. */
void ompc_barrier_init(int threads);

#ifdef __cplusplus
}
#endif
#endif
