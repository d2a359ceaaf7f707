//! `libpario_posix.so`: the POSIX calls that the three MPI libraries serve, for programs without MPI.
//!
//! Never: exports a name of MPI, so that it cannot conflict with an MPI program. Always: uses the source that all libraries
//! share.
#![expect(unsafe_code, reason = "these are C functions, called by C and calling C")]

mod errors;
#[path = "../../../ffi/posix/mod.rs"]
mod posix;
