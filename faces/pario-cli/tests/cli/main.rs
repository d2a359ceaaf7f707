//! The `pario` command, driven as a user would: the real binary, real server processes, a registry of its own per test.

mod copying;
mod doctoring;
mod files;
mod lifecycle;
mod mistakes;
mod ranks;
mod running;
mod streams;
mod support;
