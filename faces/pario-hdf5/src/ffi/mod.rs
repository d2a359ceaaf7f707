//! The C interface: HDF5 calls these functions, and they call the HDF5 that called.
//!
//! Always: `unsafe` is in this folder; each callback is guarded against panics.

#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "reading a place that HDF5 passes is a dereference and a call; both stand under one promise of HDF5"
)]

mod abi;
mod attribute;
mod class;
mod compat;
mod dataset;
mod datatype;
mod engine;
mod entry;
mod failure;
mod file;
mod group;
mod handle;
mod introspect;
mod library;
mod link;
mod location;
mod object;
mod optional;
mod plists;
mod registry;
mod space;
mod transfer;
mod types;
mod values;
