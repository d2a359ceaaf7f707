//! `libpario_mpi_mpich.so`: MPI's file calls for MPICH and what has its ABI. The numbers of this ABI are in `abi.rs`; everything else is the
//! source that all three share.
//!
//! Never: links an MPI library.

mod abi;
#[path = "../../../ffi/mod.rs"]
mod ffi;
