//! `libpario_mpi_abi.so`: MPI's file calls for the standard ABI of MPI 5. The numbers of this ABI are in `abi.rs`; everything else is the
//! source that all three share.
//!
//! Never: links an MPI library.

mod abi;
#[path = "../../../ffi/mod.rs"]
mod ffi;
