//! Distant files and shared files: what they do, what they refuse, what they cost, and what remains when a member dies.

#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(clippy::cast_possible_truncation, reason = "ranks and lengths of tests are small")]

#[path = "../common/mod.rs"]
mod common;

mod calls;
mod counted;
mod full;
mod histories;
mod hosts;
mod killed;
mod members;
mod mistakes;
