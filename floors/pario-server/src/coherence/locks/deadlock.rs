//! Deadlock detection: cycles of user locks that wait for each other, over all files.
//!
//! Never: considers locks held around accesses. Always: the youngest request of a cycle is refused.

use std::collections::BTreeMap;

use super::{LockAction, Locks, Refusal, TokenOwner};
use crate::coherence::WaitTicket;
use crate::coherence::sabotage::Bug;

/// Owners visited in search of a cycle; a longer chain is left to the timeouts of the requests.
const OWNERS_MAX: usize = 1 << 14;

impl Locks {
    /// If the request waits for itself through other owners, the youngest request in the cycle is refused.
    pub(super) fn break_cycle(&mut self, ticket: WaitTicket, out: &mut Vec<LockAction>) {
        if self.sabotage.has(Bug::LockNoCircles) {
            return;
        }
        let Some(&(inode, _)) = self.tickets.get(&ticket) else { return };
        let own = self.files.get(&inode).and_then(|file| file.user_waits().find(|wait| wait.1 == ticket));
        let Some((start, ..)) = own else { return };
        let Some(circle) = self.cycle_from(start) else { return };
        let Some(&(_, youngest)) = circle.iter().max_by_key(|(_, ticket)| *ticket) else { return };
        // The refused request is first.
        let turn = circle.iter().position(|(_, ticket)| *ticket == youngest).unwrap_or(0);
        let mut owners: Vec<TokenOwner> = circle.iter().map(|(owner, _)| *owner).collect();
        owners.rotate_left(turn);
        self.refuse(youngest, |_| Refusal::Deadlock(owners), out);
    }

    /// Owners that wait for one another, from `start` back to it, each with its request.
    fn cycle_from(&self, start: TokenOwner) -> Option<Vec<(TokenOwner, WaitTicket)>> {
        let mut waits: Vec<(TokenOwner, WaitTicket, Vec<TokenOwner>)> = Vec::new();
        for file in self.files.values() {
            waits.extend(file.user_waits());
        }
        // Predecessor of each visited owner, with the request that leads to it.
        let mut came: BTreeMap<TokenOwner, (TokenOwner, WaitTicket)> = BTreeMap::new();
        let mut open = vec![start];
        while let Some(owner) = open.pop() {
            if OWNERS_MAX < came.len() {
                return None;
            }
            for (_, ticket, holders) in waits.iter().filter(|wait| wait.0.is_one_with(owner)) {
                for holder in holders {
                    if holder.is_one_with(start) {
                        return Some(path(&came, start, (owner, *ticket)));
                    }
                    if !came.contains_key(holder) {
                        came.insert(*holder, (owner, *ticket));
                        open.push(*holder);
                    }
                }
            }
        }
        None
    }
}

fn path(
    came: &BTreeMap<TokenOwner, (TokenOwner, WaitTicket)>,
    start: TokenOwner,
    last: (TokenOwner, WaitTicket),
) -> Vec<(TokenOwner, WaitTicket)> {
    let mut path = vec![last];
    let mut owner = last.0;
    while !owner.is_one_with(start) {
        let Some(&(before, ticket)) = came.get(&owner) else { break };
        path.push((before, ticket));
        owner = before;
    }
    path.reverse();
    path
}
