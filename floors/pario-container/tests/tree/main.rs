//! Tests of HDF5 trees: names, logs that were cut, writers that died at every step, random data against a model.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed helper is a failed test; seeds are printed"
)]

mod crash;
mod data;
mod logs;
mod names;
mod objects;
mod places;
mod repair;
mod scene;
