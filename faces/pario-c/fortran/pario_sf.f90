! Shared files: one file for all processes of a program, on the disks of all its nodes. Guide: docs/guide/distant.md.
!
!     use pario_sf                             gfortran app.f90 $(pario env --compile)
!     status = sf_create('/local/scratch/vectors', 1d12, 1d11, 30720d0, file)
!     status = sf_write(file, offset, bytes, record, request)
!     status = sf_wait(request)
!     status = sf_destroy(file)
!
! Compiled with the program, since module files belong to one compiler, and with its INTEGERs: of 4 bytes for libpario.so, of 8
! for libpario_i8.so. Sizes and offsets are whole numbers of bytes in double precision. Buffers are of any type, contiguous, and
! left alone until the wait. A status is 0, or a number with a sentence of sf_errmsg.
module pario_sf
    implicit none
    public

    integer, parameter :: SF_SEEKFAIL = -2000
    integer, parameter :: SF_WRITFAIL = -1999
    integer, parameter :: SF_READFAIL = -1997
    integer, parameter :: SF_HANDFAIL = -1994
    integer, parameter :: SF_MODEFAIL = -1993
    integer, parameter :: SF_OPENFAIL = -1990
    integer, parameter :: SF_DELFAIL = -1987
    integer, parameter :: SF_LONGFAIL = -1983
    integer, parameter :: SF_EOFFAIL = -1977
    integer, parameter :: SF_FSYNCFAIL = -1976
    integer, parameter :: SF_UNKNFAIL = -1975

    interface
        ! Collective. Limits are hints; request is the usual one, -1 if unknown.
        integer function sf_create(fname, hard_limit, soft_limit, request, handle)
            character(len=*), intent(in) :: fname
            double precision, intent(in) :: hard_limit, soft_limit, request
            integer, intent(out) :: handle
        end function sf_create

        ! Collective: named components, FNAME.SUFFIX.RANK.
        integer function sf_create_suffix(fname, hard_limit, soft_limit, request, handle, suffix)
            character(len=*), intent(in) :: fname
            double precision, intent(in) :: hard_limit, soft_limit, request
            integer, intent(out) :: handle
            integer, intent(in) :: suffix
        end function sf_create_suffix

        ! Collective.
        integer function sf_destroy(handle)
            integer, intent(in) :: handle
        end function sf_destroy

        integer function sf_rwtor(handle)
            integer, intent(in) :: handle
        end function sf_rwtor

        integer function sf_open(handle)
            integer, intent(in) :: handle
        end function sf_open

        integer function sf_close(handle)
            integer, intent(in) :: handle
        end function sf_close

        integer function sf_fsync(handle)
            integer, intent(in) :: handle
        end function sf_fsync

        integer function sf_write(handle, offset, bytes, buffer, request)
            integer, intent(in) :: handle
            double precision, intent(in) :: offset, bytes
            type(*), dimension(*), asynchronous, intent(in) :: buffer
            integer, intent(out) :: request
        end function sf_write

        integer function sf_read(handle, offset, bytes, buffer, request)
            integer, intent(in) :: handle
            double precision, intent(in) :: offset, bytes
            type(*), dimension(*), asynchronous :: buffer
            integer, intent(out) :: request
        end function sf_read

        integer function sf_wait(request)
            integer, intent(inout) :: request
        end function sf_wait

        integer function sf_waitall(list, count)
            integer, intent(inout) :: list(*)
            integer, intent(in) :: count
        end function sf_waitall

        subroutine sf_errmsg(code, message)
            integer, intent(in) :: code
            character(len=*), intent(out) :: message
        end subroutine sf_errmsg
    end interface
end module pario_sf
