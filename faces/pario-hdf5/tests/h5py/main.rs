//! Stock h5py on the connector: proof that Pario serves, random programs beside native HDF5, kills, h5py's own suite.
//!
//! `./test` installs h5py into `target/hdf5/venv`. A missing h5py is a failure.

#![expect(clippy::unwrap_used, reason = "a failed helper is a failed test")]

mod killed;
mod partitions;
mod programs;
mod served;
mod suite;
mod world;
