! Distant files: each process reads and writes files of all others. Guide: docs/guide/distant.md.
!
!     use pario_dio                            gfortran app.f90 $(pario env --compile)
!     status = dio_init('/local/scratch' // c_null_char)
!     status = dio_open(2, 'vectors' // c_null_char, ior(DIO_RDWR, DIO_CREAT), file)
!     moved = dio_write(file, 0_c_int64_t, record, bytes, 2, c_null_ptr)
!
! Compiled with the program, since module files belong to one compiler. Names end with c_null_char. A request is c_null_ptr for
! a blocking call, or c_loc of an integer(c_int). Buffers are of any type, contiguous, and left alone until the wait.
module pario_dio
    use, intrinsic :: iso_c_binding
    implicit none
    public

    ! Flags of dio_open, and the process of a handle that has one home.
    integer(c_int), parameter :: DIO_RDONLY = 0_c_int
    integer(c_int), parameter :: DIO_RDWR = 2_c_int
    integer(c_int), parameter :: DIO_CREAT = 64_c_int
    integer(c_int), parameter :: DIO_HOME = -1_c_int

    interface
        ! Collective.
        integer(c_int64_t) function dio_init(directory) bind(C, name='dio_init')
            import
            character(kind=c_char), intent(in) :: directory(*)
        end function dio_init

        ! Collective.
        integer(c_int64_t) function dio_finalize() bind(C, name='dio_finalize')
            import
        end function dio_finalize

        ! Collective; -1 brings no file.
        integer(c_int64_t) function dio_register(descriptor, handle) bind(C, name='dio_register')
            import
            integer(c_int), value :: descriptor
            integer(c_int), intent(out) :: handle
        end function dio_register

        ! Collective.
        integer(c_int64_t) function dio_unregister(handle) bind(C, name='dio_unregister')
            import
            integer(c_int), value :: handle
        end function dio_unregister

        integer(c_int64_t) function dio_open(proc, path, flags, handle) bind(C, name='dio_open')
            import
            integer(c_int), value :: proc, flags
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int), intent(out) :: handle
        end function dio_open

        integer(c_int64_t) function dio_close(handle) bind(C, name='dio_close')
            import
            integer(c_int), value :: handle
        end function dio_close

        integer(c_int64_t) function dio_publish(handle, proc, name) bind(C, name='dio_publish')
            import
            integer(c_int), value :: handle, proc
            character(kind=c_char), intent(in) :: name(*)
        end function dio_publish

        integer(c_int64_t) function dio_lookup(name, handle) bind(C, name='dio_lookup')
            import
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), intent(out) :: handle
        end function dio_lookup

        integer(c_int64_t) function dio_read(handle, offset, buffer, bytes, proc, request) bind(C, name='dio_read')
            import
            integer(c_int), value :: handle, proc
            integer(c_int64_t), value :: offset, bytes
            type(*), dimension(*), asynchronous :: buffer
            type(c_ptr), value :: request
        end function dio_read

        integer(c_int64_t) function dio_write(handle, offset, buffer, bytes, proc, request) bind(C, name='dio_write')
            import
            integer(c_int), value :: handle, proc
            integer(c_int64_t), value :: offset, bytes
            type(*), dimension(*), asynchronous, intent(in) :: buffer
            type(c_ptr), value :: request
        end function dio_write

        integer(c_int64_t) function dio_test(request, flag) bind(C, name='dio_test')
            import
            integer(c_int), intent(in) :: request
            integer(c_int), intent(out) :: flag
        end function dio_test

        integer(c_int64_t) function dio_wait(request) bind(C, name='dio_wait')
            import
            integer(c_int), intent(inout) :: request
        end function dio_wait

        integer(c_int64_t) function dio_waitall(list, count) bind(C, name='dio_waitall')
            import
            integer(c_int), intent(inout) :: list(*)
            integer(c_int), value :: count
        end function dio_waitall

        integer(c_int64_t) function dio_length(handle, proc) bind(C, name='dio_length')
            import
            integer(c_int), value :: handle, proc
        end function dio_length

        integer(c_int64_t) function dio_truncate(handle, proc, length) bind(C, name='dio_truncate')
            import
            integer(c_int), value :: handle, proc
            integer(c_int64_t), value :: length
        end function dio_truncate

        integer(c_int64_t) function dio_sync(handle, proc) bind(C, name='dio_sync')
            import
            integer(c_int), value :: handle, proc
        end function dio_sync

        integer(c_int64_t) function dio_remove(proc, path) bind(C, name='dio_remove')
            import
            integer(c_int), value :: proc
            character(kind=c_char), intent(in) :: path(*)
        end function dio_remove

        ! A string of C.
        type(c_ptr) function dio_error() bind(C, name='dio_error')
            import
        end function dio_error

        integer(c_int64_t) function dio_count() bind(C, name='dio_count')
            import
        end function dio_count
    end interface
end module pario_dio
