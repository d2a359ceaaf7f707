//! Reading: a range of the file's bytes, or a range of a view's stream.
//!
//! Never: returns bytes beyond the file's end. Always: waits for the drain of own records first.

pub(in crate::client) mod ahead;
pub(in crate::client) mod mapping;
pub(in crate::client) mod range;
pub(in crate::client) mod sieve;
pub(in crate::client) mod stream;
