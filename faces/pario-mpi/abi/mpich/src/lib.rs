//! `libpario_mpi_mpich.so`: MPI's file calls for MPICH and libraries with its ABI. The constants of this ABI are in `abi.rs`; the
//! rest is the source that all three ABIs share.
//!
//! Never: links an MPI library.

mod abi;
#[path = "../../../ffi/mod.rs"]
mod ffi;
