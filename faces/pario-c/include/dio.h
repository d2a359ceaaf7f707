/* Distant files: each process reads and writes files of all others. Guide: docs/guide/distant.md.
 *
 *     #include <dio.h>                                         cc app.c $(pario env --compile); pario run -n 4 -- ./a.out
 *     dio_init("/local/scratch");                              all processes
 *     dio_register(descriptor, &files);                        all processes: an open file of each, or -1
 *     dio_read(files, 4096, record, bytes, 2, &request);       from the file of process 2; returns at once
 *     dio_wait(&request);
 *     dio_read(files, 4096, record, bytes, 2, NULL);           the same, complete when it returns
 *
 * A result below 0 is an error: errno has its number, dio_error its sentence. Processes keep out of each other's bytes
 * themselves. A process that MPI started calls pario_group_from_comm of pario_group.h first.
 */
#ifndef DIO_H
#define DIO_H

#include <fcntl.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The process of a handle of dio_open or dio_lookup may be given as this. */
#define DIO_HOME (-1)

/* Collective. Files below the directory can be opened by all processes; NULL: there is none. */
int64_t dio_init(const char *directory);
/* Collective: files are served until all processes have called it. */
int64_t dio_finalize(void);

/* Collective: one handle for an open file of each process; -1 brings none. The descriptor stays the program's. */
int64_t dio_register(int descriptor, int *handle);
int64_t dio_unregister(int handle);

/* Opens a file below the directory of a process: O_RDONLY, O_RDWR, or O_RDWR | O_CREAT. */
int64_t dio_open(int proc, const char *path, int flags, int *handle);
int64_t dio_close(int handle);
/* Makes the file of a process known under a name. */
int64_t dio_publish(int handle, int proc, const char *name);
int64_t dio_lookup(const char *name, int *handle);

/* Bytes moved: of a read, fewer than asked for at the end of the file only. With a request: 0, and the buffer is left alone until
 * the wait. */
int64_t dio_read(int handle, int64_t offset, void *buffer, int64_t bytes, int proc, int *request);
int64_t dio_write(int handle, int64_t offset, const void *buffer, int64_t bytes, int proc, int *request);
/* *flag is 1 if dio_wait would return at once. */
int64_t dio_test(const int *request, int *flag);
/* Bytes moved by the request, which becomes -1; waiting for -1 succeeds. */
int64_t dio_wait(int *request);
int64_t dio_waitall(int *list, int count);

int64_t dio_length(int handle, int proc);
int64_t dio_truncate(int handle, int proc, int64_t length);
/* Puts completed writes on stable storage. */
int64_t dio_sync(int handle, int proc);
/* Removes a file from the directory of a process. */
int64_t dio_remove(int proc, const char *path);

/* The sentence of this thread's last error; valid until its next call. */
const char *dio_error(void);
/* Bytes that the last call of this thread moved. */
int64_t dio_count(void);

#ifdef __cplusplus
}
#endif
#endif
