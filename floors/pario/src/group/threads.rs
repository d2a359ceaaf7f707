//! A group with threads of this process as members: for tests and for programs that embed their servers.
//!
//! Never: outlives a member that is waited for: dropping a member's last handle without [`super::Group::leave`] counts as its
//! death, which is reported to the others. Always: behaves as a group of processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault};

use super::call::CollectiveCall;
use super::collective_state::{
    CollectiveOutcome, CollectiveState, CompletedCollective, FIRST_CHANNEL, MEMBERS_MAX, MemberNotice,
    PART_BYTES_MAX,
};
use super::{Agreed, Group, agreement, check_part};
use crate::error::Result;

/// One member of a group of threads. Made by [`threads`]; give one to each thread.
#[derive(Debug)]
pub struct ThreadGroup {
    member: Arc<ThreadMember>,
    channel: u32,
    /// Serialises the collectives of one handle.
    call_lock: Mutex<()>,
}

/// State shared by all handles of one rank; the rank ends with the last of them.
#[derive(Debug)]
struct ThreadMember {
    table: Arc<ThreadGroupTable>,
    rank: usize,
    left: AtomicBool,
}

#[derive(Debug)]
struct ThreadGroupTable {
    /// Number of the group, unique in this process.
    number: u64,
    nodes: Vec<usize>,
    state: Mutex<ThreadGroupState>,
    news: Condvar,
}

#[derive(Debug)]
struct ThreadGroupState {
    meeting: CollectiveState,
    /// Outcomes of collectives that their members have not yet picked up, by channel and rank.
    ended: HashMap<(u32, usize), CollectiveOutcome>,
}

/// A group of `size` threads on one node; the members in rank order.
///
/// ```
/// use pario::group::{self, Group};
///
/// let threads: Vec<_> = group::threads(3)
///     .into_iter()
///     .map(|group| {
///         std::thread::spawn(move || {
///             let sum = group.reduce(group.rank() as u64, group::Reduce::Sum);
///             group.leave();
///             sum
///         })
///     })
///     .collect();
/// for thread in threads {
///     assert_eq!(thread.join().expect("no thread panics")?, 3);
/// }
/// # Ok::<(), pario::Error>(())
/// ```
///
/// # Panics
/// For no thread, or more than 4096.
#[must_use]
pub fn threads(size: usize) -> Vec<Arc<dyn Group>> {
    threads_on(&vec![0; size])
}

/// As [`threads`], on several simulated nodes: one member per element, which is its node. Nodes are renumbered by their first
/// members, as [`Group::node_of`] requires.
///
/// # Panics
/// As [`threads`].
#[must_use]
pub fn threads_on(nodes: &[usize]) -> Vec<Arc<dyn Group>> {
    assert!((1..=MEMBERS_MAX).contains(&nodes.len()), "a group of {} threads", nodes.len());
    let pid = std::process::id();
    let names = (0..nodes.len()).map(|_| format!("a thread of process {pid}")).collect();
    let state = ThreadGroupState { meeting: CollectiveState::new(names), ended: HashMap::new() };
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let table = Arc::new(ThreadGroupTable {
        number,
        nodes: renumber(nodes),
        state: Mutex::new(state),
        news: Condvar::new(),
    });
    let member = |rank| -> Arc<dyn Group> {
        let member = ThreadMember { table: Arc::clone(&table), rank, left: AtomicBool::new(false) };
        Arc::new(ThreadGroup::handle(Arc::new(member), FIRST_CHANNEL))
    };
    (0..nodes.len()).map(member).collect()
}

/// The same partition into nodes, numbered by first members.
pub(super) fn renumber<T: PartialEq>(nodes: &[T]) -> Vec<usize> {
    let mut firsts: Vec<&T> = Vec::new();
    let mut number = |node| match firsts.iter().position(|first| *first == node) {
        Some(at) => at,
        None => {
            firsts.push(node);
            firsts.len() - 1
        }
    };
    nodes.iter().map(&mut number).collect()
}

impl ThreadGroupTable {
    fn state(&self) -> MutexGuard<'_, ThreadGroupState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn notify(&self, state: &mut ThreadGroupState, told: Vec<MemberNotice>) {
        let any = !told.is_empty();
        for news in told {
            if let MemberNotice::Ended { channel, to, ended } = news {
                state.ended.extend(to.into_iter().map(|rank| ((channel, rank), ended.clone())));
            }
        }
        if any {
            self.news.notify_all();
        }
    }
}

impl ThreadGroup {
    fn handle(member: Arc<ThreadMember>, channel: u32) -> ThreadGroup {
        ThreadGroup { member, channel, call_lock: Mutex::new(()) }
    }

    /// The duplicate that a collective created.
    fn duplicate_of(&self, round: &CompletedCollective) -> Result<Arc<dyn Group>> {
        let channel =
            round.created_channel.ok_or_else(|| Fault::new(Code::Protocol, "a duplicate has no channel"))?;
        Ok(Arc::new(ThreadGroup::handle(Arc::clone(&self.member), channel)))
    }

    /// Runs one collective.
    fn run_collective(&self, call: CollectiveCall, bytes: &[u8]) -> CollectiveOutcome {
        let _turn = self.call_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let ThreadMember { table, rank, left } = &*self.member;
        if left.load(Ordering::Relaxed) {
            return Err(left_already(*rank));
        }
        let mut state = table.state();
        let told = state.meeting.contribute(self.channel, *rank, call, check_part(bytes));
        table.notify(&mut state, told);
        loop {
            if let Some(ended) = state.ended.remove(&(self.channel, *rank)) {
                return ended;
            }
            state = table.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The error of a member that calls a collective after it left.
pub(super) fn left_already(rank: usize) -> Fault {
    Fault::new(Code::Closed, format!("rank {rank} has left the group and calls a collective of it"))
}

impl Group for ThreadGroup {
    fn rank(&self) -> usize {
        self.member.rank
    }

    fn size(&self) -> usize {
        self.member.table.nodes.len()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.member.table.nodes[rank]
    }

    fn allgather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.collect(CollectiveCall::Allgather, bytes)
    }

    fn collect(&self, call: CollectiveCall, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.run_collective(call, bytes)?.parts.clone())
    }

    fn family(&self) -> u64 {
        self.member.table.number
    }

    fn check(&self) -> Result<()> {
        let state = self.member.table.state();
        state.meeting.fault(self.channel).map_or(Ok(()), |fault| Err(fault.clone().into()))
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        let round = self.run_collective(CollectiveCall::Duplicate, &[])?;
        self.duplicate_of(&round)
    }

    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        let round =
            self.run_collective(CollectiveCall::Duplicate, &agreement::encode_exchange(alike, &mine))?;
        // The duplicate is left again if the members do not agree.
        let own = self.duplicate_of(&round)?;
        Ok((own, agreement::decode_exchange(&round.parts, alike, mine)?))
    }

    fn leave(&self) {
        let ThreadMember { table, rank, left } = &*self.member;
        left.store(true, Ordering::Relaxed);
        let mut state = table.state();
        let told = state.meeting.leave(*rank);
        table.notify(&mut state, told);
    }
}

impl Drop for ThreadGroup {
    /// Dropping the last handle ends the member, which says more than that it left a channel.
    fn drop(&mut self) {
        if Arc::strong_count(&self.member) == 1 {
            return;
        }
        let table = &self.member.table;
        let mut state = table.state();
        let told = state.meeting.leave_channel(self.channel, self.member.rank);
        table.notify(&mut state, told);
    }
}

impl Drop for ThreadMember {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "panicked" } else { "ended without leaving the group" };
        let mut state = self.table.state();
        let told = state.meeting.member_died(self.rank, how);
        self.table.notify(&mut state, told);
    }
}

const _: () = assert!(PART_BYTES_MAX <= super::collective_state::COLLECTIVE_BYTES_MAX);

#[cfg(test)]
#[path = "threads_tests.rs"]
mod tests;
