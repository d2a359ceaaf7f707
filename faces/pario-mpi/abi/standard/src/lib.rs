//! `libpario_mpi_abi.so`: MPI's file calls for the standard ABI of MPI 5. The constants of this ABI are in `abi.rs`; the rest is
//! the source that all three ABIs share.
//!
//! Never: links an MPI library.

mod abi;
#[path = "../../../ffi/mod.rs"]
mod ffi;
