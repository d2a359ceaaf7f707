//! Deliberate bugs: of the state machines, and of the code around them.

use std::str::FromStr;

use pario_server::coherence::Bug;
use pario_server::store::placement;

pario_core::bugs! {
    /// A deliberate bug of clients or servers.
    ClientBug:
    /// A lease is returned before its records are drained.
    ReturnUndrained "client-return-undrained"
    /// A lease is used once more after it was recalled, again and again.
    UseRecalled "client-use-recalled"
    /// An early recall of a lock (before its grant arrived) is forgotten.
    ForgetEarlyRecall "client-forget-early-recall"
    /// Contiguous accesses on several servers acquire no lock.
    NoLock "client-no-lock"
    /// A write in the mixed phase returns before it is drained.
    ReturnUntaken "client-return-untaken"
    /// A restarted manager does not invalidate leases.
    KeepOldLease "client-keep-old-lease"
    /// A process does not wait for its own records before it reads.
    ReadPastOwn "client-read-past-own"
    /// Servers drain the newest record first.
    TakeNewest "server-take-newest"
    /// A write by message does not wait for records that were committed before it.
    MessageOvertakes "server-message-overtakes"
    /// Records of a dead process are not drained before its files are granted again.
    SettleNothing "manager-settle-nothing"
    /// A restarted manager has lost its list of writers.
    ForgetWriters "manager-forget-writers"
    /// A file is not notified of the replacement of a server that had its unsynced bytes in memory.
    ForgetLosses "client-forget-losses"
    /// With the loss of some bytes, bytes written since count as synced.
    ForgetUnsynced "client-forget-unsynced"
    /// Errors that a killed server had counted but not reported are forgotten.
    ForgetUnheard "client-forget-unheard"
    /// Records for a dead server are dropped, and only one of their files is notified.
    AbandonQuietly "client-abandon-quietly"
    /// A lease is returned while records for a dead server wait for its return.
    AbandonNothing "client-abandon-nothing"
    /// A returning server is offered the outbox from its tail, not from its last position.
    OfferFromTail "client-offer-from-tail"
    /// A returning server is offered a drained record again.
    OfferTwice "client-offer-twice"
    /// An old record is offered although the file was granted to other clients meanwhile.
    OfferStale "client-offer-stale"
    /// Records that were overwritten while their server was away are not reported.
    ForgetOverwritten "client-forget-overwritten"
    /// A direct write overtakes records of the same process.
    DirectPastOwn "client-direct-past-own"
    /// A write without reserved space returns before it is drained.
    IgnoreGrant "client-ignore-grant"
    /// All blocks are requested from the nearest server instead of their home.
    AskNearest "client-ask-nearest"
    /// Of a late record, bytes covered by newer ones are applied too.
    TakeLateWhole "server-take-late-whole"
    /// The log of overwrites before late records is lost with its server.
    ForgetAhead "server-forget-ahead"
    /// An error of a record is not kept.
    ForgetError "server-forget-error"
    /// A block that could not be written down counts as clean.
    CleanOnError "server-clean-on-error"
    /// Under memory pressure, dirty blocks are evicted as if they were clean.
    EvictDirty "server-evict-dirty"
    /// An uncached write leaves a stale block in the cache.
    StraightPastCache "server-straight-past-cache"
    /// Sync covers the store before the cache is written back.
    SyncUnstaged "server-sync-unstaged"
    /// A flush is answered without being done.
    FlushNothing "server-flush-nothing"
}

pario_core::bugs! {
    /// A deliberate bug of the code around placement.
    PlacementBug:
    /// A block is cached at the server of the accessing client, though it has a fixed home.
    KeepNearest "place-keep-nearest"
    /// A remote access is served without an ownership check.
    VisitAnything "place-visit-anything"
    /// A block is handed over without a write-back, though a sync has passed its receiver already.
    GivePastSync "place-give-past-sync"
    /// A handover is confirmed before the block is out of the cache.
    AnswerFirst "place-answer-first"
    /// The ownership of a block is returned although its bytes are in the cache.
    LeaveBytes "place-leave-bytes"
    /// An atomic write writes its own blocks before it holds the rest.
    HoldOne "place-hold-one"
    /// An atomic read does not pin its own blocks while it requests the rest.
    LookUnpinned "place-look-unpinned"
    /// An atomic read over several owners does not check the versions again.
    TrustOwners "place-trust-owners"
}

/// A bug of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyBug {
    /// Of the lease or the lock machine.
    Machine(Bug),
    /// Of the code around the lease and lock machines.
    Around(ClientBug),
    /// Of the ownership state machines.
    Ownership(placement::Bug),
    /// Of the code around the ownership machines.
    Placement(PlacementBug),
}

fn all() -> Vec<AnyBug> {
    let machine = Bug::ALL.iter().copied().map(AnyBug::Machine);
    let around = ClientBug::ALL.iter().copied().map(AnyBug::Around);
    let ownership = placement::Bug::ALL.iter().copied().map(AnyBug::Ownership);
    let place = PlacementBug::ALL.iter().copied().map(AnyBug::Placement);
    machine.chain(around).chain(ownership).chain(place).collect()
}

/// All of them.
pub const ALL_BUGS: fn() -> Vec<AnyBug> = all;

impl AnyBug {
    /// Its name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            AnyBug::Machine(bug) => bug.word(),
            AnyBug::Around(bug) => bug.word(),
            AnyBug::Ownership(bug) => bug.word(),
            AnyBug::Placement(bug) => bug.word(),
        }
    }
}

impl FromStr for AnyBug {
    type Err = String;

    fn from_str(word: &str) -> Result<AnyBug, String> {
        all().into_iter().find(|bug| bug.word() == word).ok_or_else(|| {
            let words: Vec<&str> = all().into_iter().map(AnyBug::word).collect();
            format!("there is no bug '{word}', but {}", words.join(", "))
        })
    }
}
