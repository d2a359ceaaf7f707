! The binding by `use mpi`: handles are integers.
program binding
  use mpi
  implicit none

  integer :: file, filetype, status(MPI_STATUS_SIZE), ierr
  integer :: rank, ranks, at, count, request, wrote(100), found(100)
  integer(kind=MPI_OFFSET_KIND) :: place
  character(len=256) :: name
  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
  call get_command_argument(1, name)
  wrote = [(rank * 1000 + at, at = 1, 100)]
  call MPI_FILE_OPEN(MPI_COMM_WORLD, trim(name), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file, ierr)
  if (ierr /= MPI_SUCCESS) call MPI_ABORT(MPI_COMM_WORLD, 2, ierr)
  call MPI_TYPE_VECTOR(10, 10, 10 * ranks, MPI_INTEGER, filetype, ierr)
  call MPI_TYPE_COMMIT(filetype, ierr)
  place = rank * 40
  call MPI_FILE_SET_VIEW(file, place, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL, ierr)
  call MPI_FILE_IWRITE(file, wrote, 100, MPI_INTEGER, request, ierr)
  call MPI_WAIT(request, status, ierr)
  place = 0
  call MPI_FILE_READ_AT_ALL(file, place, found, 100, MPI_INTEGER, status, ierr)
  call MPI_GET_COUNT(status, MPI_INTEGER, count, ierr)
  call MPI_FILE_CLOSE(file, ierr)
  if (count /= 100 .or. any(found /= wrote)) then
    print *, 'rank', rank, 'reads', count, 'otherwise'
    call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
  end if
  if (rank == 0) print *, 'fortran is well'
  call MPI_FINALIZE(ierr)
end program
