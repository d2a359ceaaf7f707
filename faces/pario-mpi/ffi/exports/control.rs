//! Open and close, sizes, views, pointers, modes.

use std::ffi::{c_char, c_int};

use pario_mpi::{Class, InfoHints, MpiError};

use crate::abi::{self, Comm, Datatype, File, Group, Info};
use crate::ffi::api::{self, Aint, Count, Offset};
use crate::ffi::convert::{put, seek};
use crate::ffi::errors::{protected, raise, serve};
use crate::ffi::{info, open, table, views};

named! {
    MPI_File_open PMPI_File_open (comm: Comm, name: *const c_char, mode: c_int, hints: Info, handle: *mut File) -> c_int {
        match protected(|| open::ours_to_open(name)) {
            Ok(Some(target)) => serve(abi::file_null(), || open::open(comm, target, mode, hints, handle)),
            Err(problem) => raise(abi::file_null(), &problem),
            Ok(None) => {
                let real = real!("PMPI_File_open", fn(Comm, *const c_char, c_int, Info, *mut File) -> c_int);
                let Some(real) = real else { return super::absent(abi::file_null(), "PMPI_File_open") };
                // SAFETY: the program's arguments unchanged, to the function that it called.
                unsafe { real(comm, name, mode, hints, handle) }
            }
        }
    }
}

named! {
    MPI_File_close PMPI_File_close (handle: *mut File) -> c_int {
        // SAFETY: the program passes the address of a handle, or null by mistake.
        let found = unsafe { handle.as_ref() }.copied().and_then(table::find);
        let Some(file) = found else {
            let Some(real) = real!("PMPI_File_close", fn(*mut File) -> c_int) else {
                return super::absent(abi::file_null(), "PMPI_File_close");
            };
            // SAFETY: the program's argument unchanged.
            return unsafe { real(handle) };
        };
        file.file.served().note("close");
        // The file's own handler is called while the handle lives; afterwards the default one.
        match protected(|| open::close(handle, &file)) {
            Ok(()) => 0,
            Err(problem) => raise(abi::file_null(), &problem),
        }
    }
}

named! {
    MPI_File_delete PMPI_File_delete (name: *const c_char, hints: Info) -> c_int {
        match protected(|| open::ours(name)) {
            Ok(Some(target)) => serve(abi::file_null(), || open::delete(&target)),
            Err(problem) => raise(abi::file_null(), &problem),
            Ok(None) => {
                let real = real!("PMPI_File_delete", fn(*const c_char, Info) -> c_int);
                let Some(real) = real else { return super::absent(abi::file_null(), "PMPI_File_delete") };
                // SAFETY: the program's arguments unchanged.
                unsafe { real(name, hints) }
            }
        }
    }
}

served! {
    MPI_File_set_size PMPI_File_set_size "set_size" (bytes: Offset) |file| file.file.set_size(bytes);
    MPI_File_preallocate PMPI_File_preallocate "preallocate" (bytes: Offset) |file| file.file.preallocate(bytes);
    MPI_File_get_size PMPI_File_get_size "get_size" (bytes: *mut Offset) |file| put(bytes, file.file.size()?);
    MPI_File_get_group PMPI_File_get_group "get_group" (group: *mut Group) |file| {
        // Excluding no rank: a group of the same ranks, which the program may free.
        let mut made = abi::group_none();
        api::group_excl(file.members(), 0, std::ptr::null(), &raw mut made)?;
        put(group, made)
    };
    MPI_File_get_amode PMPI_File_get_amode "get_amode" (mode: *mut c_int) |file| put(mode, file.mode);
    MPI_File_set_info PMPI_File_set_info "set_info" (hints: Info) |opened| {
        opened.file.set_info(info::pairs(hints).map(InfoHints::of_info))
    };
    MPI_File_get_info PMPI_File_get_info "get_info" (hints: *mut Info) |file| {
        put(hints, info::make(&file.file.info()?)?)
    };
    MPI_File_set_view PMPI_File_set_view "set_view" (displacement: Offset, etype: Datatype, filetype: Datatype, datarep: *const c_char, _hints: Info)
        |file| views::set(&file, displacement, (etype, filetype), datarep);
    MPI_File_get_view PMPI_File_get_view "get_view" (displacement: *mut Offset, etype: *mut Datatype, filetype: *mut Datatype, datarep: *mut c_char)
        |file| views::get(&file, displacement, (etype, filetype), datarep);
    MPI_File_seek PMPI_File_seek "seek" (offset: Offset, whence: c_int) |file| file.file.seek(seek(offset, whence)?);
    MPI_File_get_position PMPI_File_get_position "get_position" (offset: *mut Offset) |file| put(offset, file.file.position()?);
    MPI_File_get_byte_offset PMPI_File_get_byte_offset "get_byte_offset" (offset: Offset, byte: *mut Offset)
        |file| put(byte, file.file.byte_offset(offset)?);
    MPI_File_seek_shared PMPI_File_seek_shared "seek_shared" (offset: Offset, whence: c_int)
        |file| file.file.seek_shared(seek(offset, whence)?);
    MPI_File_get_position_shared PMPI_File_get_position_shared "get_position_shared" (offset: *mut Offset)
        |file| put(offset, file.file.position_shared()?);
    MPI_File_get_type_extent PMPI_File_get_type_extent "get_type_extent" (datatype: Datatype, extent: *mut Aint) |file| {
        let found = views::type_extent(&file, datatype)?;
        let large = |_| MpiError::new(Class::ValueTooLarge, format!("an extent of {found}"));
        put(extent, Aint::try_from(found).map_err(large)?)
    };
    MPI_File_get_type_extent_c PMPI_File_get_type_extent_c "get_type_extent" (datatype: Datatype, extent: *mut Count)
        |file| put(extent, views::type_extent(&file, datatype)?);
    MPI_File_set_atomicity PMPI_File_set_atomicity "set_atomicity" (flag: c_int) |file| file.file.set_atomicity(flag != 0);
    MPI_File_get_atomicity PMPI_File_get_atomicity "get_atomicity" (flag: *mut c_int)
        |file| put(flag, c_int::from(file.file.atomicity()?));
    MPI_File_sync PMPI_File_sync "sync" () |file| file.file.sync();
}
