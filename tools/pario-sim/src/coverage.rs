//! Coverage of runs: states and transitions reached, by name.

use std::collections::BTreeMap;

/// Names that a long enough series of runs must reach.
pub const EXPECTED: &[&str] = &[
    "grant exclusive",
    "grant write",
    "grant read",
    "grant mixed",
    "lease recalled",
    "lease recalled in use",
    "lease recalled before its grant",
    "lease returned",
    "lease waited for",
    "look quiet",
    "stop quiet",
    "stop ended",
    "lock granted whole",
    "lock granted exactly",
    "lock granted ahead",
    "lock recalled",
    "lock recalled before its grant",
    "lock in use",
    "lock returned",
    "lock kept in part",
    "lock found here",
    "lock refused in use",
    "lock refused in a circle",
    "lock refused in time",
    "lock cancelled",
    "lock of the dead freed",
    "access under a lock",
    "record taken",
    "record of the dead taken",
    "write by message",
    "read by message",
    "process killed",
    "process killed in an access",
    "process killed under a lock",
    "process stopped",
    "server stopped",
    "manager restarted",
    "manager restarted in an access",
    "ghost reclaimed",
    "ghost buried",
    "settled",
    "access failed",
    "access without its server",
    "block staged",
    "bytes lost with the power",
    "bytes lost with their server",
    "bytes went with their server",
    "client recovered",
    "direct write refused",
    "error collected",
    "error went with its server",
    "fault told",
    "fault told by a write",
    "grant withdrawn",
    "memory short",
    "message refused",
    "node killed",
    "power cut",
    "put down",
    "record of the dead lost",
    "record offered again",
    "record refused",
    "record taken behind newer ones",
    "record void",
    "records given up",
    "records of a lost manager given up",
    "records overwritten",
    "server killed",
    "server killed before all were back",
    "server restarted",
    "server seen to be gone",
    "staging refused",
    "store full",
    "sync or flush refused",
    "synced",
    "waiter told that a file cannot be settled",
    "write cached",
    "write directly",
    "write past the cache",
    "write through to the store",
    "write without a grant",
    // Of placement.
    "access failed and names the dead",
    "access failed on the way",
    "block another's",
    "block asked for",
    "block cached",
    "block filled",
    "block given back",
    "block held",
    "block given back unheard",
    "block gone on",
    "block granted",
    "block in use",
    "block leaving",
    "block missed",
    "block not given after all",
    "block out of use",
    "block passed on",
    "block passed on untold",
    "block reached for",
    "block taken",
    "block thrown out",
    "block told of later",
    "block's home silent",
    "blocks passed by",
    "bytes lost with a write that failed",
    "bytes lost with their owner",
    "connection cut",
    "file not synced",
    "file synced",
    "given to nobody who listens",
    "home believed against memory",
    "home granted",
    "home named an owner",
    "message doubled",
    "message late",
    "owner killed",
    "owner stopped",
    "placed at home",
    "placed by first touch",
    "placed by last writer",
    "plain file full",
    "pool short",
    "put down before it is given",
    "read at once",
    "read at once in vain",
    "read at once met a writer",
    "read at once moved",
    "sync waited for a take",
    "take asked for again",
    "take granted",
    "take looked up at home",
    "take looked up in vain",
    "take refused",
    "taker out of patience",
    "visit",
    "visitor sent on",
    "visitor sent where nothing is known",
    "written at once",
];

/// Number of visits per name.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    visits: BTreeMap<&'static str, u64>,
}

impl Coverage {
    pub(crate) fn visit(&mut self, what: &'static str) {
        *self.visits.entry(what).or_default() += 1;
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Coverage) {
        for (what, count) in &other.visits {
            *self.visits.entry(what).or_default() += count;
        }
    }

    /// The names reached, with the number of visits.
    pub fn visits(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.visits.iter().map(|(what, count)| (*what, *count))
    }

    /// Expected names never reached.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.iter().copied().filter(|what| !self.visits.contains_key(what)).collect()
    }
}
