//! Pario's public Rust interface.

pub mod partition;
