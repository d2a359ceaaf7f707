//! Writing: a range of the file's bytes, or a range of a view's stream.
//!
//! Never: overtakes a record of this client. Always: each part of a write uses the cheapest correct path.

pub(in crate::client) mod direct;
pub(in crate::client) mod memory;
pub(in crate::client) mod plan;
pub(in crate::client) mod range;
pub(in crate::client) mod stream;
