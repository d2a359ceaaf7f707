//! The C ABI: every `MPI_File_*` and `PMPI_File_*`. One source, compiled once per ABI beside that ABI's `abi.rs`.
//!
//! A call finds its file by its handle. Pario's files are served here; all others are passed to the MPI library unchanged.
//!
//! Never: needs an MPI library to be built or loaded; lets a panic cross into C; calls MPI from a thread of Pario's, except to
//! complete a request where the program has MPI_THREAD_MULTIPLE. Always: `unsafe` is in this folder only, and every handle that a
//! program holds was created by its MPI library, so that calls that are not served work natively.
#![expect(unsafe_code, reason = "these are C functions, called by C and calling C")]

#[macro_use]
mod library;

mod access;
mod api;
mod comm;
mod convert;
mod datareps;
mod datatypes;
mod errors;
mod exports;
mod external;
mod info;
mod open;
mod posix;
mod requests;
mod split;
mod table;
mod views;

pub(crate) use library::Symbol;
