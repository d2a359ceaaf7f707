//! Deliberate bugs that prove that the checkers of random histories detect violations. Only tests and the simulator enable one.

use pario_core::Sabotage;

pario_core::bugs! {
    /// A deliberate bug of leases or locks.
    Bug:
    /// A newcomer that fits the present phase overtakes waiting requests.
    Overtake "lease-overtake"
    /// Nothing is recalled while more than one request waits.
    ForgetRecall "lease-forget-recall"
    /// A dead writer's lease is free before its records are recovered.
    ReleaseUnsettled "lease-release-unsettled"
    /// A lease that is being returned is granted once more.
    RegrantRecalled "lease-regrant-recalled"
    /// A stop barrier in force blocks no request.
    GrantInStop "lease-grant-in-stop"
    /// A lease is recalled again for each waiter.
    RecallTwice "lease-recall-twice"
    /// A look does not wait for dead holders.
    LookPastDead "lease-look-past-dead"
    /// A second writer joins an exclusive one.
    ShareExclusive "lease-share-exclusive"
    /// A lock request overtakes all waiting ones.
    LockOvertake "lock-overtake"
    /// Lock requests are granted regardless of older waiting ones.
    LockIgnoreQueue "lock-ignore-queue"
    /// No lock is recalled.
    LockForgetRecall "lock-forget-recall"
    /// A dead holder's lock is free before its records are recovered.
    LockFreeUnsettled "lock-free-unsettled"
    /// A dead holder's lock is never released.
    LockKeepDead "lock-keep-dead"
    /// Deadlocks of waiting locks are not detected.
    LockNoCircles "lock-no-circles"
    /// Conflicting locks are granted together.
    LockShareExclusive "lock-share-exclusive"
    /// The kept part of a returned lock is dropped.
    LockForgetKept "lock-forget-kept"
}

/// The enabled bug; none outside tests and the simulator.
pub(super) type LeaseSabotage = Sabotage<Bug>;
