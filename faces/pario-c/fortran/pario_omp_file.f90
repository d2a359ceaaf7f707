! Files that the threads of an OpenMP program read and write together. Guide: docs/guide/teams.md.
!
!     use pario_omp_file                       gfortran -fopenmp app.f90 $(pario env --compile)
!     integer(c_int) :: fd
!     !$omp parallel shared(fd)
!     call omp_file_open_all(fd, 'pario://scratch/field', ior(O_CREAT, O_RDWR))
!     call omp_file_write_all(mine, bytes, fd, OMP_FILE_CONTIG)
!     call omp_file_close_all(fd)
!     !$omp end parallel
!
! Compiled with the program, since module files belong to one compiler. Buffers are of any type and rank, scalars too, and
! contiguous; lengths and offsets are bytes. A list is an array of addresses (c_loc) and one of lengths. `status` is 0, or -1 for
! an error, and the same on all threads of a call.
module pario_omp_file
    use, intrinsic :: iso_c_binding
    implicit none
    private

    ! Hints: what the caller knows about the parts of all threads together.
    integer(c_int), parameter, public :: OMP_FILE_CONTIG = 1_c_int
    integer(c_int), parameter, public :: OMP_FILE_UNKNOWN = 0_c_int
    integer(c_int), parameter, public :: OMP_FILE_NONCONTIG = -1_c_int
    ! Errors, as in omp_file.h; the others are those of C.
    integer(c_long), parameter, public :: OMP_FILE_EEOF = 1001_c_long
    integer(c_long), parameter, public :: OMP_FILE_ENOTSAME = 1002_c_long
    integer(c_long), parameter, public :: OMP_FILE_ECLOSED = 1003_c_long
    integer(c_long), parameter, public :: OMP_FILE_ELOST = 1004_c_long
    integer(c_long), parameter, public :: OMP_FILE_ETWOTEAMS = 1005_c_long
    integer(c_long), parameter, public :: OMP_FILE_ENOENT = 2_c_long
    integer(c_long), parameter, public :: OMP_FILE_EBADF = 9_c_long
    integer(c_long), parameter, public :: OMP_FILE_EINVAL = 22_c_long
    integer(c_long), parameter, public :: OMP_FILE_ENOSPC = 28_c_long
    integer(c_long), parameter, public :: OMP_FILE_EDQUOT = 122_c_long
    ! Flags of open.
    integer(c_int), parameter, public :: O_RDONLY = 0_c_int
    integer(c_int), parameter, public :: O_WRONLY = 1_c_int
    integer(c_int), parameter, public :: O_RDWR = 2_c_int
    integer(c_int), parameter, public :: O_CREAT = 64_c_int
    integer(c_int), parameter, public :: O_EXCL = 128_c_int
    integer(c_int), parameter, public :: O_TRUNC = 512_c_int
    integer(c_int), parameter, public :: O_APPEND = 1024_c_int

    public :: c_int, c_long, c_ptr, c_loc

    public :: omp_file_open_all
    public :: omp_file_close_all
    public :: omp_file_fsync
    public :: omp_file_seek_all
    public :: omp_file_tell
    public :: omp_file_size
    public :: omp_file_write_at
    public :: omp_file_read_at
    public :: omp_file_write_part
    public :: omp_file_count
    public :: omp_file_errno
    public :: omp_file_strerror
    public :: omp_file_set
    public :: ompc_barrier_init
    public :: omp_file_write_all
    public :: omp_file_write_at_all
    public :: omp_file_write_list_all
    public :: omp_file_write_list_at_all
    public :: omp_file_read_all
    public :: omp_file_read_at_all
    public :: omp_file_read_list_all
    public :: omp_file_read_list_at_all
    public :: omp_file_write_com_all
    public :: omp_file_write_com_at_all
    public :: omp_file_write_com_list_all
    public :: omp_file_write_com_list_at_all
    public :: omp_file_read_com_all
    public :: omp_file_read_com_at_all
    public :: omp_file_read_com_list_all
    public :: omp_file_read_com_list_at_all

    ! struct iovec
    type, bind(C) :: buffer_entry
        type(c_ptr) :: address
        integer(c_size_t) :: length
    end type buffer_entry

    interface
        function c_omp_file_open_all(fd, name, flags, mode) bind(C, name='omp_file_open_all') result(status)
            import :: c_int, c_long, c_char
            integer(c_int), intent(out) :: fd
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: flags, mode
            integer(c_long) :: status
        end function c_omp_file_open_all
        function c_omp_file_close_all(fd) bind(C, name='omp_file_close_all') result(status)
            import :: c_int, c_long, c_ptr, c_char
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_close_all
        function c_omp_file_fsync(fd) bind(C, name='omp_file_fsync') result(status)
            import :: c_int, c_long, c_ptr, c_char
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_fsync
        function c_omp_file_seek_all(fd, offset) bind(C, name='omp_file_seek_all') result(status)
            import :: c_int, c_long, c_ptr, c_char
            integer(c_int), value :: fd
            integer(c_long), value :: offset
            integer(c_long) :: status
        end function c_omp_file_seek_all
        function c_omp_file_tell(fd) bind(C, name='omp_file_tell') result(status)
            import :: c_int, c_long, c_ptr, c_char
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_tell
        function c_omp_file_size(fd) bind(C, name='omp_file_size') result(status)
            import :: c_int, c_long, c_ptr, c_char
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_size
        function c_omp_file_write_at(buffer, length, offset, fd) bind(C, name='omp_file_write_at') result(status)
            import :: c_int, c_long, c_ptr, c_char
            type(c_ptr), value :: buffer
            integer(c_long), value :: length, offset
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_write_at
        function c_omp_file_read_at(buffer, length, offset, fd) bind(C, name='omp_file_read_at') result(status)
            import :: c_int, c_long, c_ptr, c_char
            type(c_ptr), value :: buffer
            integer(c_long), value :: length, offset
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_read_at
        function c_omp_file_write_part(buffer, length, part, parts, fd) bind(C, name='omp_file_write_part') result(status)
            import :: c_int, c_long, c_ptr, c_char
            type(c_ptr), value :: buffer
            integer(c_long), value :: length, part, parts
            integer(c_int), value :: fd
            integer(c_long) :: status
        end function c_omp_file_write_part
        function c_omp_file_set(key, val) bind(C, name='omp_file_set') result(status)
            import :: c_int, c_long, c_ptr, c_char
            type(c_ptr), value :: key, val
            integer(c_long) :: status
        end function c_omp_file_set
        function c_omp_file_count() bind(C, name='omp_file_count') result(count)
            import :: c_long
            integer(c_long) :: count
        end function c_omp_file_count
        function c_omp_file_errno() bind(C, name='omp_file_errno') result(number)
            import :: c_long
            integer(c_long) :: number
        end function c_omp_file_errno
        function c_omp_file_strerror() bind(C, name='omp_file_strerror') result(text)
            import :: c_ptr
            type(c_ptr) :: text
        end function c_omp_file_strerror
        subroutine c_ompc_barrier_init(threads) bind(C, name='ompc_barrier_init')
            import :: c_int
            integer(c_int), value :: threads
        end subroutine c_ompc_barrier_init
        function c_strlen(text) bind(C, name='strlen') result(length)
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
            integer(c_size_t) :: length
        end function c_strlen
    end interface

    abstract interface
        function all_call(buffer, length, fd, hint) bind(C) result(status)
            import :: c_int, c_long, c_ptr
            type(c_ptr), value :: buffer
            integer(c_long), value :: length
            integer(c_int), value :: fd, hint
            integer(c_long) :: status
        end function all_call
        function at_all_call(buffer, length, offset, fd, hint) bind(C) result(status)
            import :: c_int, c_long, c_ptr
            type(c_ptr), value :: buffer
            integer(c_long), value :: length, offset
            integer(c_int), value :: fd, hint
            integer(c_long) :: status
        end function at_all_call
        function list_all_call(list, entries, fd, hint) bind(C) result(status)
            import :: c_int, c_long, c_ptr
            type(c_ptr), value :: list
            integer(c_int), value :: entries, fd, hint
            integer(c_long) :: status
        end function list_all_call
        function list_at_all_call(list, offsets, entries, fd, hint) bind(C) result(status)
            import :: c_int, c_long, c_ptr
            type(c_ptr), value :: list
            integer(c_long), intent(in) :: offsets(*)
            integer(c_int), value :: entries, fd, hint
            integer(c_long) :: status
        end function list_at_all_call
    end interface

    procedure(all_call), bind(C, name='omp_file_write_all') :: c_omp_file_write_all
    procedure(at_all_call), bind(C, name='omp_file_write_at_all') :: c_omp_file_write_at_all
    procedure(list_all_call), bind(C, name='omp_file_write_list_all') :: c_omp_file_write_list_all
    procedure(list_at_all_call), bind(C, name='omp_file_write_list_at_all') :: c_omp_file_write_list_at_all
    procedure(all_call), bind(C, name='omp_file_read_all') :: c_omp_file_read_all
    procedure(at_all_call), bind(C, name='omp_file_read_at_all') :: c_omp_file_read_at_all
    procedure(list_all_call), bind(C, name='omp_file_read_list_all') :: c_omp_file_read_list_all
    procedure(list_at_all_call), bind(C, name='omp_file_read_list_at_all') :: c_omp_file_read_list_at_all
    procedure(all_call), bind(C, name='omp_file_write_com_all') :: c_omp_file_write_com_all
    procedure(at_all_call), bind(C, name='omp_file_write_com_at_all') :: c_omp_file_write_com_at_all
    procedure(list_all_call), bind(C, name='omp_file_write_com_list_all') :: c_omp_file_write_com_list_all
    procedure(list_at_all_call), bind(C, name='omp_file_write_com_list_at_all') :: c_omp_file_write_com_list_at_all
    procedure(all_call), bind(C, name='omp_file_read_com_all') :: c_omp_file_read_com_all
    procedure(at_all_call), bind(C, name='omp_file_read_com_at_all') :: c_omp_file_read_com_at_all
    procedure(list_all_call), bind(C, name='omp_file_read_com_list_all') :: c_omp_file_read_com_list_all
    procedure(list_at_all_call), bind(C, name='omp_file_read_com_list_at_all') :: c_omp_file_read_com_list_at_all

contains

    subroutine omp_file_open_all(fd, name, flags, mode, status)
        integer(c_int), intent(inout) :: fd
        character(len=*), intent(in) :: name
        integer(c_int), intent(in) :: flags
        integer(c_int), intent(in), optional :: mode
        integer(c_int), intent(out), optional :: status
        integer(c_int) :: permissions
        permissions = int(o'666', c_int)
        if (present(mode)) permissions = mode
        call report(c_omp_file_open_all(fd, trim(name)//c_null_char, flags, permissions), status)
    end subroutine omp_file_open_all

    subroutine omp_file_close_all(fd, status)
        integer(c_int), intent(in) :: fd
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_close_all(fd), status)
    end subroutine omp_file_close_all

    subroutine omp_file_fsync(fd, status)
        integer(c_int), intent(in) :: fd
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_fsync(fd), status)
    end subroutine omp_file_fsync

    subroutine omp_file_seek_all(fd, offset, status)
        integer(c_int), intent(in) :: fd
        integer(c_long), intent(in) :: offset
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_seek_all(fd, offset), status)
    end subroutine omp_file_seek_all

    function omp_file_tell(fd) result(offset)
        integer(c_int), intent(in) :: fd
        integer(c_long) :: offset
        offset = c_omp_file_tell(fd)
    end function omp_file_tell

    function omp_file_size(fd) result(length)
        integer(c_int), intent(in) :: fd
        integer(c_long) :: length
        length = c_omp_file_size(fd)
    end function omp_file_size

    function omp_file_count() result(count)
        integer(c_long) :: count
        count = c_omp_file_count()
    end function omp_file_count

    function omp_file_errno() result(number)
        integer(c_long) :: number
        number = c_omp_file_errno()
    end function omp_file_errno

    function omp_file_strerror() result(text)
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: bytes(:)
        type(c_ptr) :: address
        integer :: at
        address = c_omp_file_strerror()
        call c_f_pointer(address, bytes, [c_strlen(address)])
        allocate (character(len=size(bytes)) :: text)
        do at = 1, size(bytes)
            text(at:at) = bytes(at)
        end do
    end function omp_file_strerror

    ! An empty value removes the setting.
    subroutine omp_file_set(key, val, status)
        character(len=*), intent(in) :: key, val
        integer(c_int), intent(out), optional :: status
        character(kind=c_char, len=len_trim(key) + 1), target :: c_key
        character(kind=c_char, len=len_trim(val) + 1), target :: c_val
        c_key = trim(key)//c_null_char
        c_val = trim(val)//c_null_char
        if (len_trim(val) == 0) then
            call report(c_omp_file_set(c_loc(c_key), c_null_ptr), status)
        else
            call report(c_omp_file_set(c_loc(c_key), c_loc(c_val)), status)
        end if
    end subroutine omp_file_set

    ! Does nothing; programs for OpenUH call it.
    subroutine ompc_barrier_init(threads)
        integer(c_int), intent(in) :: threads
        call c_ompc_barrier_init(threads)
    end subroutine ompc_barrier_init

    subroutine omp_file_write_at(buffer, length, offset, fd, status)
        type(*), dimension(..), target, intent(in) :: buffer
        integer(c_long), intent(in) :: length, offset
        integer(c_int), intent(in) :: fd
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_write_at(address_of(buffer), length, offset, fd), status)
    end subroutine omp_file_write_at

    subroutine omp_file_read_at(buffer, length, offset, fd, status)
        type(*), dimension(..), target, intent(inout) :: buffer
        integer(c_long), intent(in) :: length, offset
        integer(c_int), intent(in) :: fd
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_read_at(address_of(buffer), length, offset, fd), status)
    end subroutine omp_file_read_at

    subroutine omp_file_write_part(buffer, length, part, parts, fd, status)
        type(*), dimension(..), target, intent(in) :: buffer
        integer(c_long), intent(in) :: length, part, parts
        integer(c_int), intent(in) :: fd
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_write_part(address_of(buffer), length, part, parts, fd), status)
    end subroutine omp_file_write_part

    subroutine omp_file_write_all(buffer, length, fd, hint, status)
        type(*), dimension(..), target, intent(in) :: buffer
        integer(c_long), intent(in) :: length
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_write_all(address_of(buffer), length, fd, hint), status)
    end subroutine omp_file_write_all

    subroutine omp_file_write_at_all(buffer, length, offset, fd, hint, status)
        type(*), dimension(..), target, intent(in) :: buffer
        integer(c_long), intent(in) :: length, offset
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_write_at_all(address_of(buffer), length, offset, fd, hint), status)
    end subroutine omp_file_write_at_all

    subroutine omp_file_write_list_all(addresses, lengths, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths)
        call fill(list, addresses, lengths)
        call report(c_omp_file_write_list_all(c_loc(list), entries, fd, hint), status)
    end subroutine omp_file_write_list_all

    subroutine omp_file_write_list_at_all(addresses, lengths, offsets, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_long), intent(in) :: offsets(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths, offsets)
        call fill(list, addresses, lengths)
        call report(c_omp_file_write_list_at_all(c_loc(list), offsets, entries, fd, hint), status)
    end subroutine omp_file_write_list_at_all

    subroutine omp_file_read_all(buffer, length, fd, hint, status)
        type(*), dimension(..), target, intent(inout) :: buffer
        integer(c_long), intent(in) :: length
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_read_all(address_of(buffer), length, fd, hint), status)
    end subroutine omp_file_read_all

    subroutine omp_file_read_at_all(buffer, length, offset, fd, hint, status)
        type(*), dimension(..), target, intent(inout) :: buffer
        integer(c_long), intent(in) :: length, offset
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_read_at_all(address_of(buffer), length, offset, fd, hint), status)
    end subroutine omp_file_read_at_all

    subroutine omp_file_read_list_all(addresses, lengths, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths)
        call fill(list, addresses, lengths)
        call report(c_omp_file_read_list_all(c_loc(list), entries, fd, hint), status)
    end subroutine omp_file_read_list_all

    subroutine omp_file_read_list_at_all(addresses, lengths, offsets, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_long), intent(in) :: offsets(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths, offsets)
        call fill(list, addresses, lengths)
        call report(c_omp_file_read_list_at_all(c_loc(list), offsets, entries, fd, hint), status)
    end subroutine omp_file_read_list_at_all

    subroutine omp_file_write_com_all(buffer, length, fd, hint, status)
        type(*), dimension(..), target, intent(in) :: buffer
        integer(c_long), intent(in) :: length
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_write_com_all(address_of(buffer), length, fd, hint), status)
    end subroutine omp_file_write_com_all

    subroutine omp_file_write_com_at_all(buffer, length, offset, fd, hint, status)
        type(*), dimension(..), target, intent(in) :: buffer
        integer(c_long), intent(in) :: length, offset
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_write_com_at_all(address_of(buffer), length, offset, fd, hint), status)
    end subroutine omp_file_write_com_at_all

    subroutine omp_file_write_com_list_all(addresses, lengths, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths)
        call fill(list, addresses, lengths)
        call report(c_omp_file_write_com_list_all(c_loc(list), entries, fd, hint), status)
    end subroutine omp_file_write_com_list_all

    subroutine omp_file_write_com_list_at_all(addresses, lengths, offsets, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_long), intent(in) :: offsets(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths, offsets)
        call fill(list, addresses, lengths)
        call report(c_omp_file_write_com_list_at_all(c_loc(list), offsets, entries, fd, hint), status)
    end subroutine omp_file_write_com_list_at_all

    subroutine omp_file_read_com_all(buffer, length, fd, hint, status)
        type(*), dimension(..), target, intent(inout) :: buffer
        integer(c_long), intent(in) :: length
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_read_com_all(address_of(buffer), length, fd, hint), status)
    end subroutine omp_file_read_com_all

    subroutine omp_file_read_com_at_all(buffer, length, offset, fd, hint, status)
        type(*), dimension(..), target, intent(inout) :: buffer
        integer(c_long), intent(in) :: length, offset
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        call report(c_omp_file_read_com_at_all(address_of(buffer), length, offset, fd, hint), status)
    end subroutine omp_file_read_com_at_all

    subroutine omp_file_read_com_list_all(addresses, lengths, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths)
        call fill(list, addresses, lengths)
        call report(c_omp_file_read_com_list_all(c_loc(list), entries, fd, hint), status)
    end subroutine omp_file_read_com_list_all

    subroutine omp_file_read_com_list_at_all(addresses, lengths, offsets, fd, hint, status)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_long), intent(in) :: offsets(:)
        integer(c_int), intent(in) :: fd, hint
        integer(c_int), intent(out), optional :: status
        type(buffer_entry), target :: list(max(1, size(addresses)))
        integer(c_int) :: entries
        entries = entries_of(addresses, lengths, offsets)
        call fill(list, addresses, lengths)
        call report(c_omp_file_read_com_list_at_all(c_loc(list), offsets, entries, fd, hint), status)
    end subroutine omp_file_read_com_list_at_all

    ! The address of a buffer; null, which is refused, for a section with gaps.
    function address_of(buffer) result(address)
        type(*), dimension(..), target, intent(in) :: buffer
        type(c_ptr) :: address
        address = c_null_ptr
        if (is_contiguous(buffer)) address = c_loc(buffer)
    end function address_of

    ! Entries of a list; -1, which is refused, if its arrays differ in size.
    function entries_of(addresses, lengths, offsets) result(entries)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer(c_long), intent(in), optional :: offsets(:)
        integer(c_int) :: entries
        entries = size(addresses, kind=c_int)
        if (size(lengths) /= size(addresses)) entries = -1_c_int
        if (present(offsets)) then
            if (size(offsets) /= size(addresses)) entries = -1_c_int
        end if
    end function entries_of

    subroutine fill(list, addresses, lengths)
        type(buffer_entry), intent(out) :: list(:)
        type(c_ptr), intent(in) :: addresses(:)
        integer(c_long), intent(in) :: lengths(:)
        integer :: at
        do at = 1, min(size(addresses), size(lengths))
            list(at)%address = addresses(at)
            list(at)%length = int(lengths(at), c_size_t)
        end do
    end subroutine fill

    subroutine report(result, status)
        integer(c_long), intent(in) :: result
        integer(c_int), intent(out), optional :: status
        if (present(status)) status = int(result, c_int)
    end subroutine report

end module pario_omp_file
