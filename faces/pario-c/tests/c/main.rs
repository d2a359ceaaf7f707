//! Programs in C, C++ and Fortran by real compilers, linked with `libpario.so` as users do; headers, modules and symbols compared.
//!
//! Needs `cargo build --workspace` before. A missing compiler skips its tests, and says so.

mod compilers;
mod fixture;
mod flags;
mod fortran;
mod names;
mod partition;
mod runtimes;
mod teams;
