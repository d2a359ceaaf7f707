//! The program's own memory: the one thing here that the compiler cannot check.

mod memory;

pub use memory::Memory;
