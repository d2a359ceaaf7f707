! The newest Fortran binding: typed handles.
program f08
  use mpi_f08
  implicit none
  type(MPI_File) :: file
  type(MPI_Datatype) :: filetype
  type(MPI_Status) :: status
  integer :: rank, ranks, at, count, wrote(100), found(100)
  integer(kind=MPI_OFFSET_KIND) :: place
  character(len=256) :: name
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call get_command_argument(1, name)
  wrote = [(rank * 1000 + at, at = 1, 100)]
  call MPI_File_open(MPI_COMM_WORLD, trim(name), MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, file)
  call MPI_Type_vector(10, 10, 10 * ranks, MPI_INTEGER, filetype)
  call MPI_Type_commit(filetype)
  place = rank * 40
  call MPI_File_set_view(file, place, MPI_INTEGER, filetype, 'native', MPI_INFO_NULL)
  call MPI_File_write_all(file, wrote, 100, MPI_INTEGER, MPI_STATUS_IGNORE)
  place = 0
  call MPI_File_read_at_all(file, place, found, 100, MPI_INTEGER, status)
  call MPI_Get_count(status, MPI_INTEGER, count)
  call MPI_File_close(file)
  if (count /= 100 .or. any(found /= wrote)) then
    print *, 'rank', rank, 'reads', count, 'otherwise'
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end if
  if (rank == 0) print *, 'fortran is well'
  call MPI_Finalize()
end program
