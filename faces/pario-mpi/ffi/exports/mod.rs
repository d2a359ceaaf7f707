//! The exported C names. Each function finds its file; calls on files of the MPI library are passed on unchanged.
//!
//! Always: a function checks and converts, calls one function of this crate, and converts back.

use std::ffi::c_int;

use pario_mpi::{Class, MpiError};

use super::errors;
use crate::abi::File;

/// A function under its own name and its profiling name, which Fortran bindings and profilers call. Neither calls the other: a
/// preloaded profiler defines the first name, and would be called back without end.
macro_rules! named {
    ($name:ident $pname:ident ($($arg:ident: $ty:ty),*) -> $ret:ty $body:block) => {
        const _: () = {
            unsafe extern "C" fn both($($arg: $ty),*) -> $ret $body

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: the program's arguments unchanged.
                unsafe { both($($arg),*) }
            }

            #[unsafe(no_mangle)]
            unsafe extern "C" fn $pname($($arg: $ty),*) -> $ret {
                // SAFETY: the same.
                unsafe { both($($arg),*) }
            }
        };
    };
}

/// Functions on a file that is open: `NAME PNAME "call" (arguments) |file| what to do`.
macro_rules! served {
    ($($name:ident $pname:ident $call:literal ($($arg:ident: $ty:ty),*) |$file:ident| $work:expr;)*) => { $(
        named! {
            $name $pname (fh: $crate::abi::File $(, $arg: $ty)*) -> std::ffi::c_int {
                let Some($file) = $crate::ffi::table::find(fh) else {
                    let real = real!(stringify!($pname), fn($crate::abi::File $(, $ty)*) -> std::ffi::c_int);
                    let Some(real) = real else { return $crate::ffi::exports::absent(fh, stringify!($pname)) };
                    // SAFETY: the program's arguments unchanged, to the function that it called.
                    return unsafe { real(fh $(, $arg)*) };
                };
                $file.file.served().note($call);
                $crate::ffi::errors::serve(fh, || $work)
            }
        }
    )* };
}

/// Functions that take a buffer, each with a count of 32 and of 64 bits:
/// `NAME PNAME NAME_c PNAME_c "call" (before the buffer) (after it) |file, buffer| what to do`.
macro_rules! counted {
    ($($name:ident $pname:ident $large:ident $plarge:ident $call:literal ($($pre:ident: $prety:ty),*) ($($post:ident: $postty:ty),*)
        |$file:ident, $buffer:ident| $work:expr;)*) => { $(
        served! {
            $name $pname $call ($($pre: $prety,)* address: *mut std::ffi::c_void, count: std::ffi::c_int, datatype: $crate::abi::Datatype $(, $post: $postty)*) |$file| {
                let $buffer = $crate::ffi::access::Buffer::new(address, count, datatype);
                $work
            };
            $large $plarge $call ($($pre: $prety,)* address: *mut std::ffi::c_void, count: $crate::ffi::api::Count, datatype: $crate::abi::Datatype $(, $post: $postty)*) |$file| {
                let $buffer = $crate::ffi::access::Buffer::new(address, count, datatype);
                $work
            };
        }
    )* };
}

mod blocking;
mod control;
mod handles;
mod later;

/// The error for a function that the MPI library lacks, called for a file of the MPI library.
fn absent(file: File, name: &str) -> c_int {
    let text = format!("the MPI library has no {name}");
    errors::raise(file, &MpiError::new(Class::UnsupportedOperation, text))
}
