//! Blocking accesses.

use pario_mpi::{AccessOrigin, Result, Together};

use crate::ffi::access::{self, Buffer, tell};
use crate::ffi::api::{Offset, Status};
use crate::ffi::table::OpenHandle;

fn read(
    file: &OpenHandle,
    place: AccessOrigin,
    together: Together,
    buffer: Buffer,
    status: *mut Status,
) -> Result<()> {
    tell(status, access::read(file, place, together, buffer)?)
}

fn write(
    file: &OpenHandle,
    place: AccessOrigin,
    together: Together,
    buffer: Buffer,
    status: *mut Status,
) -> Result<()> {
    tell(status, access::write(file, place, together, buffer)?)
}

counted! {
    MPI_File_read_at PMPI_File_read_at MPI_File_read_at_c PMPI_File_read_at_c "read_at" (offset: Offset) (status: *mut Status)
        |file, buffer| read(&file, AccessOrigin::At(offset), Together::No, buffer, status);
    MPI_File_read_at_all PMPI_File_read_at_all MPI_File_read_at_all_c PMPI_File_read_at_all_c "read_at_all" (offset: Offset) (status: *mut Status)
        |file, buffer| read(&file, AccessOrigin::At(offset), Together::Yes, buffer, status);
    MPI_File_read PMPI_File_read MPI_File_read_c PMPI_File_read_c "read" () (status: *mut Status)
        |file, buffer| read(&file, AccessOrigin::Individual, Together::No, buffer, status);
    MPI_File_read_all PMPI_File_read_all MPI_File_read_all_c PMPI_File_read_all_c "read_all" () (status: *mut Status)
        |file, buffer| read(&file, AccessOrigin::Individual, Together::Yes, buffer, status);
    MPI_File_read_shared PMPI_File_read_shared MPI_File_read_shared_c PMPI_File_read_shared_c "read_shared" () (status: *mut Status)
        |file, buffer| read(&file, AccessOrigin::Shared, Together::No, buffer, status);
    MPI_File_read_ordered PMPI_File_read_ordered MPI_File_read_ordered_c PMPI_File_read_ordered_c "read_ordered" () (status: *mut Status)
        |file, buffer| read(&file, AccessOrigin::Ordered, Together::Yes, buffer, status);
    MPI_File_write_at PMPI_File_write_at MPI_File_write_at_c PMPI_File_write_at_c "write_at" (offset: Offset) (status: *mut Status)
        |file, buffer| write(&file, AccessOrigin::At(offset), Together::No, buffer, status);
    MPI_File_write_at_all PMPI_File_write_at_all MPI_File_write_at_all_c PMPI_File_write_at_all_c "write_at_all" (offset: Offset) (status: *mut Status)
        |file, buffer| write(&file, AccessOrigin::At(offset), Together::Yes, buffer, status);
    MPI_File_write PMPI_File_write MPI_File_write_c PMPI_File_write_c "write" () (status: *mut Status)
        |file, buffer| write(&file, AccessOrigin::Individual, Together::No, buffer, status);
    MPI_File_write_all PMPI_File_write_all MPI_File_write_all_c PMPI_File_write_all_c "write_all" () (status: *mut Status)
        |file, buffer| write(&file, AccessOrigin::Individual, Together::Yes, buffer, status);
    MPI_File_write_shared PMPI_File_write_shared MPI_File_write_shared_c PMPI_File_write_shared_c "write_shared" () (status: *mut Status)
        |file, buffer| write(&file, AccessOrigin::Shared, Together::No, buffer, status);
    MPI_File_write_ordered PMPI_File_write_ordered MPI_File_write_ordered_c PMPI_File_write_ordered_c "write_ordered" () (status: *mut Status)
        |file, buffer| write(&file, AccessOrigin::Ordered, Together::Yes, buffer, status);
}
