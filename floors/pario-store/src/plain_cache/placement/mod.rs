//! Dynamic placement of a cached file's blocks: execution of the state machines of [`crate::placement`] by threads and messages.
//!
//! First-touch and last-writer placement are one machine: with the flag [`DynamicPlacement::follows_writers`] a server that overwrites
//! whole blocks requests their handover. Multi-block atomic access needs that flag.
//!
//! Never: used by a file with fixed placement, for which [`super::file::CachedFile::dynamic`] is `None`. Always: the other servers are
//! asked without a lock, a reservation or a block held.

mod atomic;
mod first_touch;
mod last_writer;
mod owners;
mod peer_service;
mod walk;

#[cfg(test)]
mod first_touch_tests;
#[cfg(test)]
mod last_writer_tests;
#[cfg(test)]
mod moment_tests;

pub(super) use self::first_touch::{DynamicPlacement, KEPT_MAX, WriteVisibility};
pub(super) use self::owners::Owners;
