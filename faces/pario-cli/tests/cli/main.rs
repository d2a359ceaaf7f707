//! The `pario` command as a user runs it: the real binary, real server processes, one registry per test.

mod containers;
mod copying;
mod copying_options;
mod damage;
mod doctoring;
mod dying;
mod everyday;
mod files;
mod h5;
mod hostile;
mod lifecycle;
mod looking;
mod mistakes;
mod names;
mod ranks;
mod running;
mod streams;
mod support;
mod tuning;
mod wedged;
