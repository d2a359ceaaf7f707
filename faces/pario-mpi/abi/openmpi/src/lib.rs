//! `libpario_mpi_openmpi.so`: MPI's file calls for Open MPI. The numbers of this ABI are in `abi.rs`; everything else is the
//! source that all three share.
//!
//! Never: links an MPI library.

mod abi;
#[path = "../../../ffi/mod.rs"]
mod ffi;
