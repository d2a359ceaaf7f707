//! The C interface: exported functions, one file for each header; lookups in the running process.
//!
//! A new header is a file here with its exported functions, a `mod` line below, the header in `include`, and a Fortran module
//! in `fortran` if it has one; `tests/c/names.rs` compares them name by name.
#![expect(unsafe_code, reason = "exported functions take addresses of the program")]

pub(crate) mod call;
pub(crate) mod distant;
pub(crate) mod fortran;
pub(crate) mod memory;
pub(crate) mod omp_file;
pub(crate) mod openmp;
pub(crate) mod pario;
pub(crate) mod per_process;
