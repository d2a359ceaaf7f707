//! Deliberate bugs: those of the machines, and some of what is around them.

use std::str::FromStr;

use pario_server::coherence::Bug;
use pario_server::store::ownership;

macro_rules! bugs {
    ($(#[$what:meta])* $kind:ident: $($(#[$doc:meta])* $name:ident $word:literal)*) => {
        $(#[$what])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum $kind {
            $($(#[$doc])* $name,)*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [$kind] = &[$($kind::$name,)*];

            /// What it is called where one is asked for.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $($kind::$name => $word,)* }
            }
        }
    };
}

bugs! {
    /// A deliberate bug of clients or servers.
    ClientBug:
    /// A lease goes back before its records are taken.
    ReturnUndrained "client-return-undrained"
    /// A lease is used once more after it was recalled, again and again.
    UseRecalled "client-use-recalled"
    /// A recall of a lock that has not come yet is forgotten.
    ForgetEarlyRecall "client-forget-early-recall"
    /// Contiguous accesses on several servers take no lock.
    NoLock "client-no-lock"
    /// A write of the mixed phase returns before it is taken.
    ReturnUntaken "client-return-untaken"
    /// A manager that came back does not make leases void.
    KeepOldLease "client-keep-old-lease"
    /// A process does not wait for its own records before it reads.
    ReadPastOwn "client-read-past-own"
    /// Servers take the newest record first.
    TakeNewest "server-take-newest"
    /// A write by message does not wait for records that were committed before it.
    MessageOvertakes "server-message-overtakes"
    /// What a dead process left is not taken before its files go on.
    SettleNothing "manager-settle-nothing"
    /// A restarted manager has forgotten who was writing.
    ForgetWriters "manager-forget-writers"
    /// A file is not told that the server which had its unsynced bytes in memory was replaced.
    ForgetLosses "client-forget-losses"
    /// With the loss of some bytes, those that came since count as synced.
    ForgetUnsynced "client-forget-unsynced"
    /// Errors that a server had counted and not told before it was killed are forgotten.
    ForgetUnheard "client-forget-unheard"
    /// Records for a server that is gone are given up, and only one of their files is told.
    AbandonQuietly "client-abandon-quietly"
    /// A lease goes back while records for a server that is gone wait for its return.
    AbandonNothing "client-abandon-nothing"
    /// A server that came back is offered what is written from now on, and not what it had left.
    OfferFromTail "client-offer-from-tail"
    /// A server that came back is offered a record once more that it had taken.
    OfferTwice "client-offer-twice"
    /// An old record is offered although the file was given to others meanwhile.
    OfferStale "client-offer-stale"
    /// Records that were overwritten while their server was away are not told of.
    ForgetOverwritten "client-forget-overwritten"
    /// A direct write overtakes records of the same process.
    DirectPastOwn "client-direct-past-own"
    /// A write for which no room is reserved returns before it is taken.
    IgnoreGrant "client-ignore-grant"
    /// All blocks are asked of the nearest server, whoever is their home.
    AskNearest "client-ask-nearest"
    /// Of a record that comes late also those bytes are taken over which newer ones lie.
    TakeLateWhole "server-take-late-whole"
    /// What a server put down ahead of others is not known to its successor.
    ForgetAhead "server-forget-ahead"
    /// An error of a record is not kept.
    ForgetError "server-forget-error"
    /// A block that could not be written down counts as clean.
    CleanOnError "server-clean-on-error"
    /// For room, dirty blocks are thrown out as if they were clean.
    EvictDirty "server-evict-dirty"
    /// What goes past the cache leaves the block there as it was.
    StraightPastCache "server-straight-past-cache"
    /// Stable storage gets what was below before the cache is put down.
    SyncUnstaged "server-sync-unstaged"
    /// A flush is answered without being done.
    FlushNothing "server-flush-nothing"
}

bugs! {
    /// A deliberate bug of what is around placement.
    PlaceBug:
    /// A block is cached at the server of whoever touches it, though it has a fixed home.
    KeepNearest "place-keep-nearest"
    /// A visitor is let in without a look whose the block is.
    VisitAnything "place-visit-anything"
    /// A block that is given is not put down, though a sync has been at its taker already.
    GivePastSync "place-give-past-sync"
    /// A block is said to be given before it is out of the cache.
    AnswerFirst "place-answer-first"
    /// A block is given back although its bytes are in the cache.
    LeaveBytes "place-leave-bytes"
    /// A write that is to be seen as a whole writes its own blocks before it has the others.
    HoldOne "place-hold-one"
    /// A read at one moment does not keep its own blocks while it asks for the others.
    LookUnpinned "place-look-unpinned"
    /// A read at one moment does not ask several owners whether all is as it came.
    TrustOwners "place-trust-owners"
}

/// A bug of any kind.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AnyBug {
    /// Of the lease or the lock machine.
    Machine(Bug),
    /// Of what is around them.
    Around(ClientBug),
    /// Of the machines that decide whose a block is.
    Ownership(ownership::Bug),
    /// Of what is around those.
    Place(PlaceBug),
}

fn all() -> Vec<AnyBug> {
    let machine = Bug::ALL.iter().copied().map(AnyBug::Machine);
    let around = ClientBug::ALL.iter().copied().map(AnyBug::Around);
    let ownership = ownership::Bug::ALL.iter().copied().map(AnyBug::Ownership);
    let place = PlaceBug::ALL.iter().copied().map(AnyBug::Place);
    machine.chain(around).chain(ownership).chain(place).collect()
}

/// All of them.
pub const ALL_BUGS: fn() -> Vec<AnyBug> = all;

impl AnyBug {
    /// What it is called.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            AnyBug::Machine(bug) => bug.word(),
            AnyBug::Around(bug) => bug.word(),
            AnyBug::Ownership(bug) => bug.word(),
            AnyBug::Place(bug) => bug.word(),
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
