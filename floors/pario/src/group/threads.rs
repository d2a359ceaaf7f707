//! A group whose members are threads of this process: for tests, for programs that embed their servers, and for trying things.
//!
//! Never: outlives a member that is waited for: dropping a member's last handle without [`super::Group::leave`] is its death,
//! and the others are told. Always: behaves as a group of processes does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pario_core::{Code, Fault};

use super::call::Call;
use super::meeting::{Ended, FIRST_CHANNEL, MEMBERS_MAX, Meeting, PART_BYTES_MAX, Round, Told};
use super::{Agreed, Group, check_part, said};
use crate::error::Result;

/// One member of a group of threads. Made by [`threads`]; give one to each thread.
#[derive(Debug)]
pub struct ThreadGroup {
    member: Arc<Member>,
    channel: u32,
    /// Collectives of one handle are one after the other.
    turn: Mutex<()>,
}

/// What all handles of one rank share; the rank is gone with the last of them.
#[derive(Debug)]
struct Member {
    table: Arc<Table>,
    rank: usize,
    left: AtomicBool,
}

#[derive(Debug)]
struct Table {
    /// Groups of this process have numbers.
    number: u64,
    nodes: Vec<usize>,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug)]
struct State {
    meeting: Meeting,
    /// Rounds that ended and whose end was not yet picked up, by channel and rank.
    ended: HashMap<(u32, usize), Ended>,
}

/// A group of `size` threads on one node; the members in the order of their ranks.
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

/// The same, playing several nodes: one member for each number, which says its node. Nodes are numbered again, by their first
/// members, as [`Group::node_of`] has it.
///
/// # Panics
/// As [`threads`].
#[must_use]
pub fn threads_on(nodes: &[usize]) -> Vec<Arc<dyn Group>> {
    assert!((1..=MEMBERS_MAX).contains(&nodes.len()), "a group of {} threads", nodes.len());
    let pid = std::process::id();
    let names = (0..nodes.len()).map(|_| format!("a thread of process {pid}")).collect();
    let state = State { meeting: Meeting::new(names), ended: HashMap::new() };
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let table =
        Arc::new(Table { number, nodes: renumber(nodes), state: Mutex::new(state), news: Condvar::new() });
    let member = |rank| -> Arc<dyn Group> {
        let member = Member { table: Arc::clone(&table), rank, left: AtomicBool::new(false) };
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

impl Table {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: &mut State, told: Vec<Told>) {
        let any = !told.is_empty();
        for news in told {
            if let Told::Round { channel, to, ended } = news {
                state.ended.extend(to.into_iter().map(|rank| ((channel, rank), ended.clone())));
            }
        }
        if any {
            self.news.notify_all();
        }
    }
}

impl ThreadGroup {
    fn handle(member: Arc<Member>, channel: u32) -> ThreadGroup {
        ThreadGroup { member, channel, turn: Mutex::new(()) }
    }

    /// The duplicate that a round made.
    fn made_in(&self, round: &Round) -> Result<Arc<dyn Group>> {
        let channel = round.made.ok_or_else(|| Fault::new(Code::Protocol, "a duplicate has no channel"))?;
        Ok(Arc::new(ThreadGroup::handle(Arc::clone(&self.member), channel)))
    }

    /// One round.
    fn meet(&self, call: Call, bytes: &[u8]) -> Ended {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let Member { table, rank, left } = &*self.member;
        if left.load(Ordering::Relaxed) {
            return Err(left_already(*rank));
        }
        let mut state = table.state();
        let told = state.meeting.bring(self.channel, *rank, call, check_part(bytes));
        table.tell(&mut state, told);
        loop {
            if let Some(ended) = state.ended.remove(&(self.channel, *rank)) {
                return ended;
            }
            state = table.news.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// What a member gets that goes on after it left.
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
        self.collect(Call::Allgather, bytes)
    }

    fn collect(&self, call: Call, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.meet(call, bytes)?.parts.clone())
    }

    fn family(&self) -> u64 {
        self.member.table.number
    }

    fn check(&self) -> Result<()> {
        let state = self.member.table.state();
        state.meeting.fault(self.channel).map_or(Ok(()), |fault| Err(fault.clone().into()))
    }

    fn duplicate(&self) -> Result<Arc<dyn Group>> {
        let round = self.meet(Call::Duplicate, &[])?;
        self.made_in(&round)
    }

    fn duplicate_if(&self, alike: &[(&str, &[u8])], mine: Result<&[u8]>) -> Result<Agreed> {
        let round = self.meet(Call::Duplicate, &said::exchange(alike, &mine))?;
        // Left again where they do not agree.
        let own = self.made_in(&round)?;
        Ok((own, said::exchanged(&round.parts, alike, mine)?))
    }

    fn leave(&self) {
        let Member { table, rank, left } = &*self.member;
        left.store(true, Ordering::Relaxed);
        let mut state = table.state();
        let told = state.meeting.leave(*rank);
        table.tell(&mut state, told);
    }
}

impl Drop for ThreadGroup {
    /// The last handle of a member is the member's own end, which says more than that it left a channel.
    fn drop(&mut self) {
        if Arc::strong_count(&self.member) == 1 {
            return;
        }
        let table = &self.member.table;
        let mut state = table.state();
        let told = state.meeting.leave_channel(self.channel, self.member.rank);
        table.tell(&mut state, told);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "panicked" } else { "ended without leaving the group" };
        let mut state = self.table.state();
        let told = state.meeting.gone(self.rank, how);
        self.table.tell(&mut state, told);
    }
}

const _: () = assert!(PART_BYTES_MAX <= super::meeting::ROUND_BYTES_MAX);

#[cfg(test)]
#[path = "threads_tests.rs"]
mod tests;
