//! Deliberate bugs, so that checkers of random histories prove that they see. Only tests and the simulator switch one on.

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
    /// A newcomer that fits the present phase is let in past those who wait.
    Overtake "lease-overtake"
    /// Nothing is recalled while more than one waits.
    ForgetRecall "lease-forget-recall"
    /// A dead writer's lease is free before its records are settled.
    ReleaseUnsettled "lease-release-unsettled"
    /// A lease that is being given back is granted once more.
    RegrantRecalled "lease-regrant-recalled"
    /// A stop barrier in force holds nobody up.
    GrantInStop "lease-grant-in-stop"
    /// A lease is recalled again for each waiter.
    RecallTwice "lease-recall-twice"
    /// A look does not wait for the dead.
    LookPastDead "lease-look-past-dead"
    /// A second writer joins an exclusive one.
    ShareExclusive "lease-share-exclusive"
    /// A wish for a lock goes before all that wait.
    LockOvertake "lock-overtake"
    /// Wishes for locks are granted whatever waits before them.
    LockIgnoreQueue "lock-ignore-queue"
    /// No lock is recalled.
    LockForgetRecall "lock-forget-recall"
    /// A dead holder's lock is free before what it wrote is settled.
    LockFreeUnsettled "lock-free-unsettled"
    /// A dead holder's lock stays.
    LockKeepDead "lock-keep-dead"
    /// Circles of waiting locks are not looked for.
    LockNoCircles "lock-no-circles"
    /// Locks are granted beside those that exclude them.
    LockShareExclusive "lock-share-exclusive"
    /// What is kept of a lock that comes back is forgotten.
    LockForgetKept "lock-forget-kept"
}

/// Which bug is on; none outside tests and the simulator.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sabotage {
    pub(super) bug: Option<Bug>,
}

impl Sabotage {
    /// Whether this bug is on.
    pub(super) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
