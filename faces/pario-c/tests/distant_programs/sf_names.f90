! Shared files from Fortran by their external names; compiled for INTEGERs of 4 and of 8 bytes.
! Arguments: the name of the file, and the number of this process.
program sf_names
   implicit none
   integer, parameter :: record = 30720
   integer, external :: sf_create, sf_create_suffix, sf_destroy, sf_rwtor, sf_open, sf_close, sf_fsync
   integer, external :: sf_write, sf_read, sf_wait, sf_waitall
   external :: sf_errmsg
   character(len=200) :: name
   character(len=80) :: message
   character(len=12) :: text
   integer :: file, other, rank, at, requests(2), wrong, failures
   character(len=1) :: bytes(record), found(record)
   double precision :: offset

   failures = 0
   call get_command_argument(1, name)
   call get_environment_variable('PARIO_RANK', text)
   read (text, *) rank
   do at = 1, record
      bytes(at) = char(mod(at * 3 + rank, 251))
   end do
   call check(sf_create(name, 1d12, 1d11, dble(record), file), 0, 'create')
   offset = dble(rank) * record
   call check(sf_write(file, offset, dble(record), bytes, requests(1)), 0, 'write')
   call check(sf_wait(requests(1)), 0, 'wait')
   call check(requests(1), -1, 'a finished request')
   call check(sf_read(file, offset, dble(record), found, requests(1)), 0, 'read')
   requests(2) = -1
   call check(sf_waitall(requests, 2), 0, 'waitall')
   if (any(bytes /= found)) call check(1, 0, 'the bytes')
   call check(sf_fsync(file), 0, 'fsync')
   call check(sf_close(file), 0, 'close')
   call check(sf_read(file, offset, dble(record), found, requests(1)), -1994, 'a closed file')
   call check(sf_open(file), 0, 'open')
   call check(sf_rwtor(file), 0, 'rwtor')
   call check(sf_write(file, offset, dble(record), bytes, requests(1)), -1993, 'a write to a read-only file')
   call sf_errmsg(-1993, message)
   if (index(message, 'read-only') == 0) call check(1, 0, 'the message')
   wrong = 3
   call check(sf_destroy(wrong), -1994, 'a wrong handle')
   call check(sf_create_suffix(name, 0d0, 0d0, -1d0, other, 9), 0, 'create_suffix')
   call check(sf_destroy(other), 0, 'destroy')
   call check(sf_destroy(file), 0, 'destroy')
   print '(i0, a)', failures, ' failures'
   if (failures /= 0) stop 1

contains

   subroutine check(got, expected, what)
      integer, intent(in) :: got, expected
      character(len=*), intent(in) :: what
      if (got == expected) return
      failures = failures + 1
      call sf_errmsg(got, message)
      print *, what, got, trim(message)
   end subroutine check
end program sf_names
