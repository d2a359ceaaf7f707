//! Teams of threads: calls, results, errors and counts, on plain files and on a partition.

mod calls;
mod common;
mod counted;
mod errors;
mod opening;
mod random;
