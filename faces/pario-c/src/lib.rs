//! `libpario.so`: Pario for programs in C and Fortran. Headers are in `include`, Fortran modules in `fortran`.
//!
//! | module | content |
//! |---|---|
//! | `last_error` | what the last call of this thread failed with, and its count |
//! | `handles` | tables of the numbers that programs hold |
//! | `ffi` | one file for each header with its exported functions; OpenMP runtimes of the process |
//!
//! Never: links an OpenMP runtime; lets a panic through into the program. Always: a number that is not a handle of the called
//! interface is refused.

mod ffi;
mod handles;
mod last_error;
