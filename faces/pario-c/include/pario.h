/* Partitions and their files from C. Guide: docs/guide/c.md.
 *
 *     #include <pario.h>                                     cc app.c $(pario env --compile)
 *     int scratch = pario_mount("scratch");
 *     int file = pario_open(scratch, "run1/field", O_CREAT | O_RDWR);
 *     if (file < 0) { fprintf(stderr, "%s\n", pario_error()); exit(1); }
 *     pario_pwrite(file, bytes, sizeof bytes, 0);
 *     pario_close(file);
 *     pario_unmount(scratch);
 *
 * Any thread may call any function. A result below 0 is an error: errno has its number, pario_error its sentence.
 */
#ifndef PARIO_H
#define PARIO_H

#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Mounts a running partition by its name; NULL: that of PARIO_PARTITION. A name that ends with `.toml` is a partition file,
 * and its partition is started if it does not run. Returns a number above 0. */
ssize_t pario_mount(const char *name);
/* Open files stay open. */
ssize_t pario_unmount(int partition);

/* Opens a file of a partition; flags are those of open(2) without O_APPEND, and a mode may follow; 0666 without one. Returns
 * a number above 0, which is not a descriptor. */
ssize_t pario_open(int partition, const char *path, int flags, ...);
/* A call without a mode passes this one. */
#define pario_open(...) pario_open(__VA_ARGS__, 0666)
/* Returns bytes read: fewer than asked for at the end of the file only. */
ssize_t pario_pread(int file, void *buffer, size_t bytes, off_t offset);
/* Writes all bytes and returns their number. */
ssize_t pario_pwrite(int file, const void *buffer, size_t bytes, off_t offset);
/* Writes behind the end of the file, atomically among all processes; returns the offset. */
ssize_t pario_append(int file, const void *buffer, size_t bytes);
ssize_t pario_truncate(int file, off_t length);
ssize_t pario_size(int file);
/* Puts what was written on stable storage. */
ssize_t pario_sync(int file);
/* Fails with EBUSY while another thread is in a call on the file. */
ssize_t pario_close(int file);

#define PARIO_KIND_FILE 1
#define PARIO_KIND_DIRECTORY 2
#define PARIO_KIND_SYMLINK 3
#define PARIO_KIND_FIFO 4
#define PARIO_KIND_SOCKET 5
#define PARIO_KIND_CHAR_DEVICE 6
#define PARIO_KIND_BLOCK_DEVICE 7

struct pario_stat {
    uint64_t inode;
    uint64_t size;         /* bytes; of a directory, its entries */
    uint64_t modified_ns;  /* since 1970 */
    uint64_t stripe_bytes;
    uint32_t stripe_count; /* servers */
    uint32_t kind;         /* PARIO_KIND_... */
    uint32_t mode;         /* permission bits */
    uint32_t uid;
    uint32_t gid;
    uint32_t links;
};

ssize_t pario_stat(int partition, const char *path, struct pario_stat *stat);
/* Removes a file or a symbolic link. */
ssize_t pario_remove(int partition, const char *path);
ssize_t pario_mkdir(int partition, const char *path);
ssize_t pario_rmdir(int partition, const char *path);
ssize_t pario_rename(int partition, const char *from, const char *to);

/* The group that `pario run -n N` started, or this process alone. The first call joins, and returns when all ranks have called. */
ssize_t pario_group_rank(void);
ssize_t pario_group_size(void);
/* Returns when all ranks have called it; an error if a rank is gone. */
ssize_t pario_group_barrier(void);

/* The sentence of this thread's last error; empty after a call that succeeded. Valid until the thread's next call. */
const char *pario_error(void);
/* The version of the library, such as "0.1.0". */
const char *pario_version(void);

#ifdef __cplusplus
}
#endif
#endif
