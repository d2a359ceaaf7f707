//! Deliberate bugs: the simulator switches one on and must detect it. Off in every other build and test.

pario_core::bugs! {
    /// A deliberate bug of block ownership.
    Bug:
    /// A home accepts messages about an older ownership number than the recorded one.
    OlderNumber "home-older-number"
    /// A home applies a repeated handover report again.
    PassTwice "home-pass-twice"
    /// A server that claims a block it gave back gets the same number, which the delayed give-back may still end.
    SameNumber "home-same-number"
    /// A server that claims its own block again gets a new number, also for a delayed or repeated claim.
    NewNumber "home-new-number"
    /// A home grants a block that has an owner.
    GrantTwice "home-grant-twice"
    /// An owner that hands a block over keeps it.
    GiveAndKeep "owner-give-and-keep"
    /// An owner claims a block again although the handover is unreported.
    ClaimUntold "owner-claim-untold"
    /// A block is given back while an access uses it.
    LeaveInUse "owner-leave-in-use"
    /// A block is handed over while an access uses it.
    GiveInUse "owner-give-in-use"
    /// A block is handed over on a request for an earlier ownership.
    GiveLate "owner-give-late"
    /// Remembered owners take precedence over the home that has just sent a request here.
    DoubtNothing "owner-doubt-nothing"
    /// A block that was handed over is used before its new bytes are written.
    UseUnfilled "owner-use-unfilled"
    /// Waiting accesses are not woken by a home's answer.
    WakeNobody "owner-wake-nobody"
    /// A sync does not wait for handovers in progress.
    SyncPastTakes "owner-sync-past-takes"
    /// An atomic write begins while an access uses its blocks.
    HoldInUse "moment-hold-in-use"
    /// A lost answer of an owner counts as a refusal.
    LostIsRefusal "taker-lost-is-refusal"
}
