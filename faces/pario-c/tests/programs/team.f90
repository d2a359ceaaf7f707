! Every procedure of pario_omp_file, for what it does and for mistakes; buffers of several types and ranks. Argument: a new file.
program team
    use omp_lib
    use pario_omp_file
    implicit none
    integer :: failures
    character(len=400) :: name
    integer(c_int) :: fd
    failures = 0
    fd = -1
    call get_command_argument(1, name)
    call ompc_barrier_init(2_c_int)
    call omp_file_set('write_behind', 'off')
    call write_and_read()
    call lists()
    call common_arguments()
    call alone()
    call mistakes()
    print '(i0, a)', failures, ' failures'
    if (failures /= 0) stop 1

contains

    subroutine check(good, text)
        logical, intent(in) :: good
        character(len=*), intent(in) :: text
        if (good) return
        !$omp critical (report)
        failures = failures + 1
        print '(4a, i0)', 'not true: ', text, ': ', omp_file_strerror(), omp_file_errno()
        !$omp end critical (report)
    end subroutine check

    ! Opened inside of the region, with a shared variable.
    subroutine write_and_read()
        integer(c_int) :: status, me
        real(8) :: cube(2, 3, 4), back(2, 3, 4)
        integer(c_int) :: number
        character(len=8) :: word
        !$omp parallel num_threads(2) private(status, me, cube, back, number, word)
        me = omp_get_thread_num()
        call omp_file_open_all(fd, name, ior(O_CREAT, O_RDWR), status=status)
        call check(status == 0, 'open')
        cube = real(me + 1, 8)
        call omp_file_write_all(cube, 192_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0 .and. omp_file_count() == 192_c_long, 'write_all of rank 3')
        number = 41_c_int + me
        call omp_file_write_all(number, 4_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0, 'write_all of a scalar')
        call omp_file_fsync(fd, status)
        call check(status == 0, 'fsync')
        call omp_file_seek_all(fd, 0_c_long, status)
        call check(status == 0, 'seek_all')
        call omp_file_read_all(back, 192_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0 .and. all(abs(back - real(me + 1, 8)) < 1d-9), 'read_all of rank 3')
        number = 0
        call omp_file_read_all(number, 4_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0 .and. number == 41_c_int + me, 'read_all of a scalar')
        call omp_file_read_all(number, 4_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == -1 .and. omp_file_errno() == OMP_FILE_EEOF, 'the end of the file')
        word = 'thread '//char(48 + me)
        call omp_file_write_at_all(word, 8_c_long, 400_c_long + 8 * me, fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0, 'write_at_all of a string')
        word = ''
        call omp_file_read_at_all(word, 8_c_long, 408_c_long - 8 * me, fd, OMP_FILE_NONCONTIG, status)
        call check(status == 0 .and. word == 'thread '//char(49 - me), 'read_at_all of a string')
        !$omp end parallel
        call check(omp_file_tell(fd) == 392_c_long, 'tell')
        call check(omp_file_size(fd) == 416_c_long, 'size')
    end subroutine write_and_read

    ! Addresses and lengths.
    subroutine lists()
        integer(c_int), target :: one(5), two(3)
        integer(c_int) :: status, me
        integer(c_long) :: at
        !$omp parallel num_threads(2) private(status, me, one, two, at)
        me = omp_get_thread_num()
        one = 10 + me
        two = 20 + me
        call omp_file_seek_all(fd, 1000_c_long)
        call omp_file_write_list_all([c_loc(one), c_loc(two)], [20_c_long, 12_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0 .and. omp_file_count() == 32_c_long, 'write_list_all')
        one = 0
        two = 0
        call omp_file_seek_all(fd, 1000_c_long)
        call omp_file_read_list_all([c_loc(one), c_loc(two)], [20_c_long, 12_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0 .and. all(one == 10 + me) .and. all(two == 20 + me), 'read_list_all')
        at = 2000_c_long + 100 * me
        call omp_file_write_list_at_all([c_loc(one), c_loc(two)], [20_c_long, 12_c_long], [at, at + 50], fd, &
                                        OMP_FILE_UNKNOWN, status)
        call check(status == 0, 'write_list_at_all')
        one = 0
        two = 0
        call omp_file_read_list_at_all([c_loc(two), c_loc(one)], [12_c_long, 20_c_long], [at + 50, at], fd, &
                                       OMP_FILE_UNKNOWN, status)
        call check(status == 0 .and. all(one == 10 + me) .and. all(two == 20 + me), 'read_list_at_all')
        call omp_file_write_list_all([c_loc(one)], [20_c_long, 12_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == -1 .and. omp_file_errno() == OMP_FILE_EINVAL, 'arrays of different sizes')
        !$omp end parallel
    end subroutine lists

    subroutine common_arguments()
        integer(c_long), target :: table(10, 20), back(10, 20)
        integer(c_int) :: status, at
        table = reshape([(int(at, c_long), at=1, 200)], [10, 20])
        back = 0
        call omp_file_seek_all(fd, 4000_c_long)
        !$omp parallel num_threads(2) private(status) shared(table, back)
        call omp_file_write_com_all(table, 1600_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0 .and. omp_file_tell(fd) == 5600_c_long, 'write_com_all')
        call omp_file_write_com_at_all(table, 800_c_long, 6000_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0, 'write_com_at_all')
        call omp_file_write_com_list_all([c_loc(table)], [80_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0, 'write_com_list_all')
        call omp_file_write_com_list_at_all([c_loc(table)], [80_c_long], [7000_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0, 'write_com_list_at_all')
        call omp_file_seek_all(fd, 4000_c_long)
        call omp_file_read_com_all(back, 1600_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0 .and. all(back == table), 'read_com_all')
        !$omp barrier
        call omp_file_read_com_list_all([c_loc(back)], [80_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0, 'read_com_list_all')
        call omp_file_read_com_at_all(back, 800_c_long, 6000_c_long, fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0 .and. all(back == table), 'read_com_at_all')
        !$omp barrier
        call omp_file_read_com_list_at_all([c_loc(back)], [80_c_long], [7000_c_long], fd, OMP_FILE_UNKNOWN, status)
        call check(status == 0 .and. all(back == table), 'read_com_list_at_all')
        !$omp end parallel
    end subroutine common_arguments

    subroutine alone()
        integer(c_int) :: status, part
        complex(8) :: value
        value = (1d0, 2d0)
        call omp_file_write_at(value, 16_c_long, 8000_c_long, fd, status)
        call check(status == 0, 'write_at')
        value = (0d0, 0d0)
        call omp_file_read_at(value, 16_c_long, 8000_c_long, fd, status)
        call check(status == 0 .and. abs(value - (1d0, 2d0)) < 1d-9, 'read_at')
        call omp_file_read_at(value, 16_c_long, 8010_c_long, fd, status)
        call check(status == -1 .and. omp_file_count() == 6_c_long, 'read_at beyond the end')
        call omp_file_seek_all(fd, 9000_c_long)
        do part = 2, 0, -1
            call omp_file_write_part(char(97 + part), 1_c_long, int(part, c_long), 3_c_long, fd, status)
            call check(status == 0, 'write_part')
        end do
        call check(omp_file_tell(fd) == 9003_c_long, 'tell behind the parts')
    end subroutine alone

    subroutine mistakes()
        integer(c_int) :: status, other
        integer(c_int) :: row(10)
        row = 1
        other = -7
        call omp_file_write_all(row(1:9:2), 20_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == -1 .and. index(omp_file_strerror(), 'not contiguous') > 0, 'a section with gaps')
        call omp_file_write_all(row(3:7), 20_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == 0, 'a section without gaps')
        call omp_file_open_all(other, '/no/such/directory/file', ior(O_CREAT, O_RDWR), int(o'600', c_int), status)
        call check(status == -1 .and. omp_file_errno() == OMP_FILE_ENOENT .and. other == -7, 'a missing directory')
        call omp_file_write_all(row, -1_c_long, fd, OMP_FILE_CONTIG, status)
        call check(status == -1 .and. omp_file_errno() == OMP_FILE_EINVAL, 'a negative length')
        call omp_file_set('speed', 'high', status)
        call check(status == -1 .and. index(omp_file_strerror(), 'speed') > 0, 'an unknown setting')
        call omp_file_set('write_behind', '', status)
        call check(status == 0 .and. len(omp_file_strerror()) == 0, 'a setting removed')
        call omp_file_close_all(fd, status)
        call check(status == 0, 'close_all')
        call omp_file_close_all(fd, status)
        call check(status == -1 .and. omp_file_errno() == OMP_FILE_ECLOSED, 'closed twice')
        call check(omp_file_size(3_c_int) == -1_c_long .and. omp_file_errno() == OMP_FILE_EBADF, 'a descriptor')
    end subroutine mistakes

end program team
