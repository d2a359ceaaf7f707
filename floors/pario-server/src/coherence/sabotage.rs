//! Deliberate bugs, so that the checker of random histories proves that it sees. Only tests can switch one on.

/// A deliberate bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bug {
    /// A newcomer that fits the present phase is let in past those who wait.
    Overtake,
    /// Nothing is recalled while more than one waits.
    ForgetRecall,
    /// A dead writer's lease is free before its records are settled.
    ReleaseUnsettled,
    /// A lease that is being given back is granted once more.
    RegrantRecalled,
    /// A stop barrier in force holds nobody up.
    GrantInStop,
    /// A lease is recalled again for each waiter.
    RecallTwice,
    /// A look does not wait for the dead.
    LookPastDead,
    /// A second writer joins an exclusive one.
    ShareExclusive,
}

/// Which bug is on; none outside tests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sabotage {
    #[cfg(test)]
    pub(super) bug: Option<Bug>,
}

impl Sabotage {
    /// Whether this bug is on.
    #[cfg(test)]
    pub(super) fn has(self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this bug is on: never.
    #[cfg(not(test))]
    pub(super) fn has(self, _: Bug) -> bool {
        false
    }
}
