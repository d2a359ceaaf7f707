//! What a user may wish for a file of a group.

use crate::partition::choices::Method;

/// Wishes for one open of a file; what is `None` is chosen from the partition's settings and what is known. All ranks must wish
/// the same.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hints {
    /// How accesses are put together.
    pub method: Option<Method>,
    /// How many processes merge for the others (client-directed, two-phase).
    pub aggregators: Option<usize>,
    /// Memory of one aggregator for merging in two-phase.
    pub buffer_bytes: Option<u64>,
    /// Memory of one aggregator's cache (client-directed).
    pub cache_bytes: Option<u64>,
    /// Whether clean blocks are kept in the application's own tier; `Some(false)` switches that tier off.
    pub cache: Option<bool>,
    /// Block size, if the file is created.
    pub stripe_bytes: Option<u64>,
    /// Servers that it lies on, if it is created.
    pub stripe_count: Option<u16>,
    /// The server that this group is tied to: it answers for all others.
    pub tied_server: Option<u16>,
}

impl Hints {
    /// As bytes, for comparing.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        format!("{self:?}").into_bytes()
    }
}
