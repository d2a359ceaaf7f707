! The modules pario_sf and pario_dio. Arguments: a directory with one directory of each process.
program modules
    use, intrinsic :: iso_c_binding
    use pario_dio
    use pario_sf
    implicit none
    character(len=200) :: dir
    character(len=12) :: text
    character(len=80) :: message
    integer :: file, request, rank, failures
    integer(c_int) :: handle, home
    integer(c_int), target :: pending
    double precision, asynchronous :: values(1000), found(1000)

    failures = 0
    call get_command_argument(1, dir)
    call get_environment_variable('PARIO_RANK', text)
    read (text, *) rank
    values = dble(rank) + 0.5d0
    call check(dio_init(trim(dir) // '/' // trim(text) // c_null_char) == 0, 'dio_init')
    call check(sf_create(trim(dir) // '/vectors', 0d0, 0d0, 8000d0, file) == 0, 'sf_create')
    call check(sf_write(file, dble(rank) * 8000d0, 8000d0, values, request) == 0, 'sf_write')
    call check(sf_wait(request) == 0, 'sf_wait')
    call check(sf_read(file, dble(rank) * 8000d0, 8000d0, found, request) == 0, 'sf_read')
    call check(sf_wait(request) == 0, 'sf_wait')
    call check(all(found == values), 'the values')
    call check(sf_read(file, 1d15, 8d0, found, request) == 0, 'sf_read beyond the end')
    call check(sf_wait(request) == SF_EOFFAIL, 'the end')
    call sf_errmsg(SF_EOFFAIL, message)
    call check(len_trim(message) > 0, 'sf_errmsg')
    home = int(mod(rank + 1, 2), c_int)
    call check(dio_open(home, trim(text) // c_null_char, ior(DIO_RDWR, DIO_CREAT), handle) == 0, 'dio_open')
    call check(dio_write(handle, 16_c_int64_t, values, 8000_c_int64_t, home, c_null_ptr) == 8000, 'dio_write')
    found = 0
    call check(dio_read(handle, 16_c_int64_t, found, 8000_c_int64_t, DIO_HOME, c_loc(pending)) == 0, 'dio_read')
    call check(dio_wait(pending) == 8000, 'dio_wait')
    call check(all(found == values), 'the values of dio_read')
    call check(dio_length(handle, home) == 8016, 'dio_length')
    call check(dio_close(handle) == 0, 'dio_close')
    call check(dio_remove(home, trim(text) // c_null_char) == 0, 'dio_remove')
    call check(sf_destroy(file) == 0, 'sf_destroy')
    call check(dio_finalize() == 0, 'dio_finalize')
    print '(i0, a)', failures, ' failures'
    if (failures /= 0) stop 1

contains

    subroutine check(is_right, what)
        logical, intent(in) :: is_right
        character(len=*), intent(in) :: what
        if (is_right) return
        failures = failures + 1
        print *, 'not true: ', what
    end subroutine check
end program modules
