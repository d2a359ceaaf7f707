//! Handles, error handlers and representations. Handles of Pario's files are created by the MPI library, which therefore serves
//! these calls.

use std::ffi::{c_char, c_int, c_void};

use crate::abi::{self, Errhandler, File};
use crate::ffi::convert::text;
use crate::ffi::datareps::{Convert, ConvertFn, ConvertLargeFn, ExtentFn, RegisteredRep, register};
use crate::ffi::errors::serve;

/// Functions that the MPI library serves for every handle: `NAME PNAME (arguments) -> result, if there is none`.
macro_rules! passed_on {
    ($($name:ident $pname:ident ($($arg:ident: $ty:ty),*) -> $ret:ty, $without:expr;)*) => { $(
        named! {
            $name $pname ($($arg: $ty),*) -> $ret {
                let Some(real) = real!(stringify!($pname), fn($($ty),*) -> $ret) else { return $without };
                // SAFETY: the program's arguments unchanged, to the function that it called.
                unsafe { real($($arg),*) }
            }
        }
    )* };
}

passed_on! {
    MPI_File_c2f PMPI_File_c2f (file: File) -> c_int, 0;
    MPI_File_f2c PMPI_File_f2c (file: c_int) -> File, abi::file_null();
    MPI_File_toint PMPI_File_toint (file: File) -> c_int, 0;
    MPI_File_fromint PMPI_File_fromint (file: c_int) -> File, abi::file_null();
    MPI_File_create_errhandler PMPI_File_create_errhandler (function: *const c_void, handler: *mut Errhandler) -> c_int,
        super::absent(abi::file_null(), "PMPI_File_create_errhandler");
    MPI_File_set_errhandler PMPI_File_set_errhandler (file: File, handler: Errhandler) -> c_int,
        super::absent(file, "PMPI_File_set_errhandler");
    MPI_File_get_errhandler PMPI_File_get_errhandler (file: File, handler: *mut Errhandler) -> c_int,
        super::absent(file, "PMPI_File_get_errhandler");
    MPI_File_call_errhandler PMPI_File_call_errhandler (file: File, code: c_int) -> c_int,
        super::absent(file, "PMPI_File_call_errhandler");
}

// RegisteredRep at the MPI library too, for its own files.
named! {
    MPI_Register_datarep PMPI_Register_datarep (name: *const c_char, read: Option<ConvertFn>, write: Option<ConvertFn>, extent: ExtentFn, extra: *mut c_void) -> c_int {
        let code = serve(abi::file_null(), || {
            let functions =
                RegisteredRep { read: Convert::Small(read), write: Convert::Small(write), extent, extra };
            register(&text(name, "a data representation")?, functions)
        });
        type Function = Option<ConvertFn>;
        let real =
            real!("PMPI_Register_datarep", fn(*const c_char, Function, Function, ExtentFn, *mut c_void) -> c_int);
        if let Some(real) = real.filter(|_| code == 0) {
            // A library without registered representations reports it when a file of its own uses one.
            // SAFETY: the program's arguments unchanged.
            let _ = unsafe { real(name, read, write, extent, extra) };
        }
        code
    }
}

named! {
    MPI_Register_datarep_c PMPI_Register_datarep_c (name: *const c_char, read: Option<ConvertLargeFn>, write: Option<ConvertLargeFn>, extent: ExtentFn, extra: *mut c_void) -> c_int {
        serve(abi::file_null(), || {
            let functions =
                RegisteredRep { read: Convert::Large(read), write: Convert::Large(write), extent, extra };
            register(&text(name, "a data representation")?, functions)
        })
    }
}
