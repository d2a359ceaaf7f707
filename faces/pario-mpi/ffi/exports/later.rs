//! Non-blocking accesses: with requests, and split collective.

use std::ffi::c_void;
use std::sync::Arc;

use pario_mpi::{AccessOrigin, Result, Together};

use crate::abi::Request;
use crate::ffi::access::Buffer;
use crate::ffi::api::{Offset, Status};
use crate::ffi::convert::put;
use crate::ffi::requests::{self, RequestDirection};
use crate::ffi::split;
use crate::ffi::table::OpenHandle;

/// An access and whether it is collective.
type Access = (RequestDirection, AccessOrigin, Together);

fn start(
    file: &Arc<OpenHandle>,
    (way, place, together): Access,
    buffer: Buffer,
    request: *mut Request,
) -> Result<()> {
    put(request, requests::start(file, way, place, together, buffer)?)
}

counted! {
    MPI_File_iread_at PMPI_File_iread_at MPI_File_iread_at_c PMPI_File_iread_at_c "iread_at" (offset: Offset) (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Read, AccessOrigin::At(offset), Together::No), buffer, request);
    MPI_File_iread_at_all PMPI_File_iread_at_all MPI_File_iread_at_all_c PMPI_File_iread_at_all_c "iread_at_all" (offset: Offset) (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Read, AccessOrigin::At(offset), Together::Yes), buffer, request);
    MPI_File_iread PMPI_File_iread MPI_File_iread_c PMPI_File_iread_c "iread" () (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Read, AccessOrigin::Individual, Together::No), buffer, request);
    MPI_File_iread_all PMPI_File_iread_all MPI_File_iread_all_c PMPI_File_iread_all_c "iread_all" () (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Read, AccessOrigin::Individual, Together::Yes), buffer, request);
    MPI_File_iread_shared PMPI_File_iread_shared MPI_File_iread_shared_c PMPI_File_iread_shared_c "iread_shared" () (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Read, AccessOrigin::Shared, Together::No), buffer, request);
    MPI_File_iwrite_at PMPI_File_iwrite_at MPI_File_iwrite_at_c PMPI_File_iwrite_at_c "iwrite_at" (offset: Offset) (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Write, AccessOrigin::At(offset), Together::No), buffer, request);
    MPI_File_iwrite_at_all PMPI_File_iwrite_at_all MPI_File_iwrite_at_all_c PMPI_File_iwrite_at_all_c "iwrite_at_all" (offset: Offset) (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Write, AccessOrigin::At(offset), Together::Yes), buffer, request);
    MPI_File_iwrite PMPI_File_iwrite MPI_File_iwrite_c PMPI_File_iwrite_c "iwrite" () (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Write, AccessOrigin::Individual, Together::No), buffer, request);
    MPI_File_iwrite_all PMPI_File_iwrite_all MPI_File_iwrite_all_c PMPI_File_iwrite_all_c "iwrite_all" () (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Write, AccessOrigin::Individual, Together::Yes), buffer, request);
    MPI_File_iwrite_shared PMPI_File_iwrite_shared MPI_File_iwrite_shared_c PMPI_File_iwrite_shared_c "iwrite_shared" () (request: *mut Request)
        |file, buffer| start(&file, (RequestDirection::Write, AccessOrigin::Shared, Together::No), buffer, request);
    MPI_File_read_at_all_begin PMPI_File_read_at_all_begin MPI_File_read_at_all_begin_c PMPI_File_read_at_all_begin_c "read_at_all_begin" (offset: Offset) ()
        |file, buffer| split::begin(&file, "read_at_all", RequestDirection::Read, AccessOrigin::At(offset), buffer);
    MPI_File_read_all_begin PMPI_File_read_all_begin MPI_File_read_all_begin_c PMPI_File_read_all_begin_c "read_all_begin" () ()
        |file, buffer| split::begin(&file, "read_all", RequestDirection::Read, AccessOrigin::Individual, buffer);
    MPI_File_read_ordered_begin PMPI_File_read_ordered_begin MPI_File_read_ordered_begin_c PMPI_File_read_ordered_begin_c "read_ordered_begin" () ()
        |file, buffer| split::begin(&file, "read_ordered", RequestDirection::Read, AccessOrigin::Ordered, buffer);
    MPI_File_write_at_all_begin PMPI_File_write_at_all_begin MPI_File_write_at_all_begin_c PMPI_File_write_at_all_begin_c "write_at_all_begin" (offset: Offset) ()
        |file, buffer| split::begin(&file, "write_at_all", RequestDirection::Write, AccessOrigin::At(offset), buffer);
    MPI_File_write_all_begin PMPI_File_write_all_begin MPI_File_write_all_begin_c PMPI_File_write_all_begin_c "write_all_begin" () ()
        |file, buffer| split::begin(&file, "write_all", RequestDirection::Write, AccessOrigin::Individual, buffer);
    MPI_File_write_ordered_begin PMPI_File_write_ordered_begin MPI_File_write_ordered_begin_c PMPI_File_write_ordered_begin_c "write_ordered_begin" () ()
        |file, buffer| split::begin(&file, "write_ordered", RequestDirection::Write, AccessOrigin::Ordered, buffer);
}

served! {
    MPI_File_read_at_all_end PMPI_File_read_at_all_end "read_at_all_end" (_buffer: *mut c_void, status: *mut Status)
        |file| split::end(&file, "read_at_all", status);
    MPI_File_read_all_end PMPI_File_read_all_end "read_all_end" (_buffer: *mut c_void, status: *mut Status)
        |file| split::end(&file, "read_all", status);
    MPI_File_read_ordered_end PMPI_File_read_ordered_end "read_ordered_end" (_buffer: *mut c_void, status: *mut Status)
        |file| split::end(&file, "read_ordered", status);
    MPI_File_write_at_all_end PMPI_File_write_at_all_end "write_at_all_end" (_buffer: *mut c_void, status: *mut Status)
        |file| split::end(&file, "write_at_all", status);
    MPI_File_write_all_end PMPI_File_write_all_end "write_all_end" (_buffer: *mut c_void, status: *mut Status)
        |file| split::end(&file, "write_all", status);
    MPI_File_write_ordered_end PMPI_File_write_ordered_end "write_ordered_end" (_buffer: *mut c_void, status: *mut Status)
        |file| split::end(&file, "write_ordered", status);
}
