/* Takes the address of every function by its published type. Compiled as C99 and as C++, warnings as errors. */
#include <omp_file.h>
#include <pario.h>
#include <stdio.h>

#define TAKE(pointer) taken += (pointer) != 0

int main(void) {
    int taken = 0;
    /* omp_file.h */
    ssize_t (*volatile omp_file_open_all_at)(int *, const char *, int, ...) = omp_file_open_all;
    ssize_t (*volatile omp_file_close_all_at)(int) = omp_file_close_all;
    ssize_t (*volatile omp_file_fsync_at)(int) = omp_file_fsync;
    ssize_t (*volatile omp_file_write_all_at)(const void *, long, int, int) = omp_file_write_all;
    ssize_t (*volatile omp_file_read_all_at)(void *, long, int, int) = omp_file_read_all;
    ssize_t (*volatile omp_file_write_at_all_at)(const void *, long, off_t, int, int) = omp_file_write_at_all;
    ssize_t (*volatile omp_file_read_at_all_at)(void *, long, off_t, int, int) = omp_file_read_at_all;
    ssize_t (*volatile omp_file_write_list_all_at)(const void *, int, int, int) = omp_file_write_list_all;
    ssize_t (*volatile omp_file_read_list_all_at)(const void *, int, int, int) = omp_file_read_list_all;
    ssize_t (*volatile omp_file_write_list_at_all_at)(const void *, const off_t *, int, int, int) = omp_file_write_list_at_all;
    ssize_t (*volatile omp_file_read_list_at_all_at)(const void *, const off_t *, int, int, int) = omp_file_read_list_at_all;
    ssize_t (*volatile omp_file_write_com_all_at)(const void *, long, int, int) = omp_file_write_com_all;
    ssize_t (*volatile omp_file_read_com_all_at)(void *, long, int, int) = omp_file_read_com_all;
    ssize_t (*volatile omp_file_write_com_at_all_at)(const void *, long, off_t, int, int) = omp_file_write_com_at_all;
    ssize_t (*volatile omp_file_read_com_at_all_at)(void *, long, off_t, int, int) = omp_file_read_com_at_all;
    ssize_t (*volatile omp_file_write_com_list_all_at)(const void *, int, int, int) = omp_file_write_com_list_all;
    ssize_t (*volatile omp_file_read_com_list_all_at)(const void *, int, int, int) = omp_file_read_com_list_all;
    ssize_t (*volatile omp_file_write_com_list_at_all_at)(const void *, const off_t *, int, int, int) = omp_file_write_com_list_at_all;
    ssize_t (*volatile omp_file_read_com_list_at_all_at)(const void *, const off_t *, int, int, int) = omp_file_read_com_list_at_all;
    ssize_t (*volatile omp_file_seek_all_at)(int, off_t) = omp_file_seek_all;
    ssize_t (*volatile omp_file_tell_at)(int) = omp_file_tell;
    ssize_t (*volatile omp_file_size_at)(int) = omp_file_size;
    ssize_t (*volatile omp_file_write_at_at)(const void *, long, off_t, int) = omp_file_write_at;
    ssize_t (*volatile omp_file_read_at_at)(void *, long, off_t, int) = omp_file_read_at;
    ssize_t (*volatile omp_file_write_part_at)(const void *, long, long, long, int) = omp_file_write_part;
    ssize_t (*volatile omp_file_count_at)(void) = omp_file_count;
    ssize_t (*volatile omp_file_errno_at)(void) = omp_file_errno;
    const char *(*volatile omp_file_strerror_at)(void) = omp_file_strerror;
    ssize_t (*volatile omp_file_set_at)(const char *, const char *) = omp_file_set;
    void (*volatile ompc_barrier_init_at)(int) = ompc_barrier_init;
    /* pario.h */
    ssize_t (*volatile pario_mount_at)(const char *) = pario_mount;
    ssize_t (*volatile pario_unmount_at)(int) = pario_unmount;
    ssize_t (*volatile pario_open_at)(int, const char *, int, ...) = pario_open;
    ssize_t (*volatile pario_pread_at)(int, void *, size_t, off_t) = pario_pread;
    ssize_t (*volatile pario_pwrite_at)(int, const void *, size_t, off_t) = pario_pwrite;
    ssize_t (*volatile pario_append_at)(int, const void *, size_t) = pario_append;
    ssize_t (*volatile pario_truncate_at)(int, off_t) = pario_truncate;
    ssize_t (*volatile pario_size_at)(int) = pario_size;
    ssize_t (*volatile pario_sync_at)(int) = pario_sync;
    ssize_t (*volatile pario_close_at)(int) = pario_close;
    ssize_t (*volatile pario_stat_at)(int, const char *, struct pario_stat *) = pario_stat;
    ssize_t (*volatile pario_remove_at)(int, const char *) = pario_remove;
    ssize_t (*volatile pario_mkdir_at)(int, const char *) = pario_mkdir;
    ssize_t (*volatile pario_rmdir_at)(int, const char *) = pario_rmdir;
    ssize_t (*volatile pario_rename_at)(int, const char *, const char *) = pario_rename;
    ssize_t (*volatile pario_group_rank_at)(void) = pario_group_rank;
    ssize_t (*volatile pario_group_size_at)(void) = pario_group_size;
    ssize_t (*volatile pario_group_barrier_at)(void) = pario_group_barrier;
    const char *(*volatile pario_error_at)(void) = pario_error;
    const char *(*volatile pario_version_at)(void) = pario_version;
    TAKE(omp_file_open_all_at);
    TAKE(omp_file_close_all_at);
    TAKE(omp_file_fsync_at);
    TAKE(omp_file_write_all_at);
    TAKE(omp_file_read_all_at);
    TAKE(omp_file_write_at_all_at);
    TAKE(omp_file_read_at_all_at);
    TAKE(omp_file_write_list_all_at);
    TAKE(omp_file_read_list_all_at);
    TAKE(omp_file_write_list_at_all_at);
    TAKE(omp_file_read_list_at_all_at);
    TAKE(omp_file_write_com_all_at);
    TAKE(omp_file_read_com_all_at);
    TAKE(omp_file_write_com_at_all_at);
    TAKE(omp_file_read_com_at_all_at);
    TAKE(omp_file_write_com_list_all_at);
    TAKE(omp_file_read_com_list_all_at);
    TAKE(omp_file_write_com_list_at_all_at);
    TAKE(omp_file_read_com_list_at_all_at);
    TAKE(omp_file_seek_all_at);
    TAKE(omp_file_tell_at);
    TAKE(omp_file_size_at);
    TAKE(omp_file_write_at_at);
    TAKE(omp_file_read_at_at);
    TAKE(omp_file_write_part_at);
    TAKE(omp_file_count_at);
    TAKE(omp_file_errno_at);
    TAKE(omp_file_strerror_at);
    TAKE(omp_file_set_at);
    TAKE(ompc_barrier_init_at);
    TAKE(pario_mount_at);
    TAKE(pario_unmount_at);
    TAKE(pario_open_at);
    TAKE(pario_pread_at);
    TAKE(pario_pwrite_at);
    TAKE(pario_append_at);
    TAKE(pario_truncate_at);
    TAKE(pario_size_at);
    TAKE(pario_sync_at);
    TAKE(pario_close_at);
    TAKE(pario_stat_at);
    TAKE(pario_remove_at);
    TAKE(pario_mkdir_at);
    TAKE(pario_rmdir_at);
    TAKE(pario_rename_at);
    TAKE(pario_group_rank_at);
    TAKE(pario_group_size_at);
    TAKE(pario_group_barrier_at);
    TAKE(pario_error_at);
    TAKE(pario_version_at);
    printf("%d functions\n", taken);
    return 0;
}
