//! The faults of one round: which process, when, and when it is healed. A plan is made from a seed before the round begins.

use std::collections::BTreeMap;

use pario::core::SeededRandom;

/// Faults of one round, at most.
pub const FAULTS_MAX: u64 = 3;

/// What happens to a process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum InjectedFault {
    /// SIGKILL to a server that is not the manager; `pario up` later.
    KillServer(u16),
    /// SIGKILL to the manager, server 0; `pario up` later.
    KillManager,
    /// SIGKILL to all servers; `pario up` later.
    KillAllServers,
    /// SIGSTOP to a server, SIGCONT later.
    StopServer(u16),
    /// SIGKILL to a writer, which is replaced by another.
    KillWriter(u64),
    /// SIGSTOP to a writer, SIGCONT later.
    StopWriter(u64),
    /// `pario up` while all servers run.
    UpAgain,
}

impl InjectedFault {
    /// Its name, for counting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            InjectedFault::KillServer(_) => "kill-server",
            InjectedFault::KillManager => "kill-manager",
            InjectedFault::KillAllServers => "kill-all-servers",
            InjectedFault::StopServer(_) => "stop-server",
            InjectedFault::KillWriter(_) => "kill-writer",
            InjectedFault::StopWriter(_) => "stop-writer",
            InjectedFault::UpAgain => "up-again",
        }
    }

    /// Whether calls of writers may fail because of it.
    #[must_use]
    pub fn is_of_servers(self) -> bool {
        match self {
            InjectedFault::KillServer(_)
            | InjectedFault::KillManager
            | InjectedFault::KillAllServers
            | InjectedFault::StopServer(_) => true,
            InjectedFault::KillWriter(_) | InjectedFault::StopWriter(_) | InjectedFault::UpAgain => false,
        }
    }
}

/// One step of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultStep {
    /// The fault.
    Strike(InjectedFault),
    /// Its cure: SIGCONT or `pario up`.
    Heal(InjectedFault),
}

/// The steps of a round by time, in ms from its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultPlan {
    /// Time and fault.
    pub steps: Vec<(u64, FaultStep)>,
    /// How long writers run.
    pub ends_ms: u64,
    /// Whether a server is struck.
    pub strikes_servers: bool,
}

/// Makes the plan of a round.
#[must_use]
pub fn plan(random: &mut SeededRandom, servers: u16, writers: u64) -> FaultPlan {
    let clients_only = random.once_in(3);
    let count = random.between(1, FAULTS_MAX + 1);
    let mut steps = Vec::new();
    for _ in 0..count {
        let fault = choose(random, servers, writers, clients_only);
        let at = random.between(30, 900);
        steps.push((at, FaultStep::Strike(fault)));
        if needs_healing(fault) {
            // Immediately, or late enough for a silent server to be declared dead.
            let after = if random.once_in(4) { random.between(3000, 5000) } else { random.below(700) };
            steps.push((at + after, FaultStep::Heal(fault)));
        }
    }
    steps.sort_unstable();
    let last = steps.last().map_or(0, |(at, _)| *at);
    let strikes_servers =
        steps.iter().any(|(_, step)| matches!(step, FaultStep::Strike(fault) if fault.is_of_servers()));
    FaultPlan { steps, ends_ms: last + random.between(50, 400), strikes_servers }
}

fn choose(random: &mut SeededRandom, servers: u16, writers: u64, clients_only: bool) -> InjectedFault {
    let server = u16::try_from(random.below(u64::from(servers))).expect("below a u16");
    let writer = random.below(writers);
    match random.below(if clients_only { 3 } else { 9 }) {
        0 => InjectedFault::KillWriter(writer),
        1 => InjectedFault::StopWriter(writer),
        2 => InjectedFault::UpAgain,
        3 | 4 if 0 < server => InjectedFault::KillServer(server),
        5 => InjectedFault::KillAllServers,
        6 | 7 => InjectedFault::StopServer(server),
        _ => InjectedFault::KillManager,
    }
}

fn needs_healing(fault: InjectedFault) -> bool {
    !matches!(fault, InjectedFault::KillWriter(_) | InjectedFault::UpAgain)
}

/// Counts by name.
pub type FaultCounts = BTreeMap<&'static str, u64>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fault_is_planned_and_healed() {
        let mut random = SeededRandom::new(1);
        let mut seen = FaultCounts::new();
        for _ in 0..500 {
            let plan = plan(&mut random, 4, 4);
            for (at, step) in &plan.steps {
                assert!(*at < plan.ends_ms);
                if let FaultStep::Strike(fault) = step {
                    *seen.entry(fault.name()).or_default() += 1;
                    let healed =
                        plan.steps.iter().any(|(when, step)| *step == FaultStep::Heal(*fault) && at <= when);
                    assert_eq!(healed, needs_healing(*fault), "{plan:?}");
                }
            }
        }
        assert_eq!(seen.len(), 7, "{seen:?}");
    }

    #[test]
    fn a_seed_gives_the_same_plan() {
        let make = || plan(&mut SeededRandom::new(9), 4, 4);
        assert_eq!(make(), make());
    }
}
