//! Hints of the user for a collectively opened file.

use crate::partition::choices::Method;

/// Hints for one open of a file; `None` is chosen from the partition's settings and the known facts. All ranks must pass the
/// same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// Method of collective accesses.
    pub method: Option<Method>,
    /// Number of processes that merge for the others (client-directed, two-phase).
    pub aggregators: Option<usize>,
    /// Memory of one aggregator for merging in two-phase.
    pub buffer_bytes: Option<u64>,
    /// Memory of one aggregator's cache (client-directed).
    pub cache_bytes: Option<u64>,
    /// Whether clean blocks stay in the node cache of the application; `Some(false)` switches the node cache off.
    pub cache: Option<bool>,
    /// Block size, if the file is created.
    pub stripe_bytes: Option<u64>,
    /// Number of servers that hold the file, if it is created.
    pub stripe_count: Option<u16>,
    /// The server that this group is tied to: it forwards to all others.
    pub tied_server: Option<u16>,
}

impl Hints {
    /// Byte encoding, for comparison.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }
}
