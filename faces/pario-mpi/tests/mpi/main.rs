//! Real programs under real MPI libraries, with Pario preloaded: C, Fortran, Python.
//!
//! Always: a program's success counts only if Pario reports that it served its calls; a missing MPI is a failure, not a skip.
#![expect(clippy::unwrap_used, reason = "a test helper that fails is a failed test")]

mod doctor;
mod exports;
mod failing;
mod fixture;
mod fortran;
mod hosts;
mod installations;
mod libraries;
mod nodes;
mod profiled;
mod python;
mod serial;
mod starting;
mod suite;
mod suites;
