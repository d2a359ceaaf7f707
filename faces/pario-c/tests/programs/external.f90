! A program without our module: the old external names, by reference, as subroutines and as functions. Argument: a new file.
program external_names
    use omp_lib
    implicit none
    integer(8), external :: omp_file_errno, omp_file_count, omp_file_tell, omp_file_size, omp_file_strerror
    external :: omp_file_open_all, omp_file_write_all, omp_file_read_at_all, omp_file_write_list_all, omp_file_close_all
    external :: omp_file_read_list_at_all, omp_file_seek_all, omp_file_fsync, omp_file_set, omp_file_write_com_at_all
    external :: omp_file_write_part, omp_file_write_at, omp_file_read_at, ompc_barrier_init
    character(len=300) :: name, text
    integer(4) :: fd, me, failures, one(4), two(4)
    integer(8) :: length
    failures = 0
    call get_command_argument(1, name)
    call ompc_barrier_init(2)
    call omp_file_set('active', '2')
    !$omp parallel num_threads(2) private(me, one, two) shared(fd) reduction(+:failures)
    me = omp_get_thread_num()
    call omp_file_open_all(fd, name, 66)
    if (omp_file_errno() /= 0) failures = failures + 1
    one = me + 1
    two = me + 5
    call omp_file_write_all(one, 16_8, fd, 1)
    if (omp_file_errno() /= 0 .or. omp_file_count() /= 16) failures = failures + 1
    call omp_file_write_list_all([loc(one), loc(two)], [16_8, 16_8], 2, fd, 0)
    call omp_file_fsync(fd)
    if (omp_file_errno() /= 0) failures = failures + 1
    one = 0
    two = 0
    call omp_file_read_at_all(one, 16_8, int(16 * me, 8), fd, 0)
    if (any(one /= me + 1)) failures = failures + 1
    call omp_file_read_list_at_all([loc(one), loc(two)], [16_8, 16_8], [32_8 + 32 * me, 48_8 + 32 * me], 2, fd, 0)
    if (any(one /= me + 1) .or. any(two /= me + 5)) failures = failures + 1
    call omp_file_read_at_all(one, 16_8, -1_8, fd, 0)
    if (omp_file_errno() /= 22) failures = failures + 1
    call omp_file_write_com_at_all('common', 6_8, 96_8, fd, 0)
    if (omp_file_errno() /= 0) failures = failures + 1
    !$omp end parallel
    if (omp_file_tell(fd) /= 96 .or. omp_file_size(fd) /= 102) failures = failures + 1
    call omp_file_seek_all(fd, 200_8)
    call omp_file_write_part('b', 1_8, 1_8, 2_8, fd)
    call omp_file_write_part('a', 1_8, 0_8, 2_8, fd)
    call omp_file_write_at('c', 1_8, 202_8, fd)
    call omp_file_read_at(text, 3_8, 200_8, fd)
    if (text(1:3) /= 'abc') failures = failures + 1
    call omp_file_close_all(fd)
    call omp_file_close_all(fd)
    length = omp_file_strerror(text)
    if (index(text, 'is closed') == 0 .or. length /= len_trim(text)) failures = failures + 1
    print '(i0, a)', failures, ' failures'
    if (failures /= 0) stop 1
end program external_names
