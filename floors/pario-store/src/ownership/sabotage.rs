//! Deliberate bugs, so that the simulator proves that it sees. Nobody else switches one on.

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident $word:literal)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Bug {
            $($(#[$doc])* $name,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Bug] = &[$(Bug::$name,)*];

            /// What it is called where one is asked for.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self { $(Bug::$name => $word,)* }
            }
        }
    };
}

bugs! {
    /// A home believes what is said of an older number than the one it knows.
    OlderNumber "home-older-number"
    /// A home counts a hand-over that it hears of again once more.
    PassTwice "home-pass-twice"
    /// Who claims a block anew that it gave back has the same ownership, which the earlier message may still end.
    SameNumber "home-same-number"
    /// Who claims its own block anew has another ownership, also if the claim comes late or twice.
    NewNumber "home-new-number"
    /// A home lets whoever claims a block have it.
    GrantTwice "home-grant-twice"
    /// An owner that gives a block to another server keeps it.
    GiveAndKeep "owner-give-and-keep"
    /// An owner that gave a block claims it anew although its home could not be told.
    ClaimUntold "owner-claim-untold"
    /// A block is given back while somebody works on it.
    LeaveInUse "owner-leave-in-use"
    /// A block is given to another server while somebody works on it.
    GiveInUse "owner-give-in-use"
    /// A block is given to a server that asked for an earlier ownership of it.
    GiveLate "owner-give-late"
    /// What is remembered of other owners counts more than the word of the home that sent somebody here.
    DoubtNothing "owner-doubt-nothing"
    /// A block that was taken over is used before it has its new bytes.
    UseUnfilled "owner-use-unfilled"
    /// Who waits for a home's answer is not woken by it.
    WakeNobody "owner-wake-nobody"
    /// A sync does not wait for blocks that are being taken.
    SyncPastTakes "owner-sync-past-takes"
    /// A write that is seen as a whole begins while somebody works on its blocks.
    HoldInUse "moment-hold-in-use"
    /// An owner's answer that was lost counts as a refusal.
    LostIsRefusal "taker-lost-is-refusal"
}

/// Which bug is on; none outside the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sabotage(pub(super) Option<Bug>);

impl Sabotage {
    /// Whether this bug is on.
    pub(super) fn has(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}
