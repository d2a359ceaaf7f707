//! The program's memory: the only part of this crate that the compiler cannot check.

mod memory;

pub use memory::ProgramMemory;
