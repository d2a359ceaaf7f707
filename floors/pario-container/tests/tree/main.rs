//! Tests of HDF5 trees: names, logs that were cut, writers that died at every step, random data against a model.

mod crash;
mod data;
mod logs;
mod names;
mod objects;
mod repair;
mod scene;
