//! Circles of user locks that wait for each other, over all files.

use std::collections::BTreeMap;

use super::{LockAction, Locks, Owner, Refusal};
use crate::coherence::Ticket;
use crate::coherence::sabotage::Bug;

/// Owners looked at in search of a circle; a longer chain is left to the waits' own limits.
const OWNERS_MAX: usize = 1 << 14;

impl Locks {
    /// If the wish waits for itself by way of others, the youngest wish in the circle is refused.
    pub(super) fn break_circle(&mut self, ticket: Ticket, out: &mut Vec<LockAction>) {
        if self.sabotage.has(Bug::LockNoCircles) {
            return;
        }
        let Some(&(inode, _)) = self.tickets.get(&ticket) else { return };
        let own = self.files.get(&inode).and_then(|file| file.user_waits().find(|wait| wait.1 == ticket));
        let Some((start, ..)) = own else { return };
        let Some(circle) = self.circle_from(start) else { return };
        let Some(&(_, youngest)) = circle.iter().max_by_key(|(_, ticket)| *ticket) else { return };
        // The one that is refused stands first.
        let turn = circle.iter().position(|(_, ticket)| *ticket == youngest).unwrap_or(0);
        let mut owners: Vec<Owner> = circle.iter().map(|(owner, _)| *owner).collect();
        owners.rotate_left(turn);
        self.refuse(youngest, |_| Refusal::Circle(owners), out);
    }

    /// Owners that wait for one another, from `start` back to it, each with its wish.
    fn circle_from(&self, start: Owner) -> Option<Vec<(Owner, Ticket)>> {
        let mut waits: Vec<(Owner, Ticket, Vec<Owner>)> = Vec::new();
        for file in self.files.values() {
            waits.extend(file.user_waits());
        }
        // Where the search came from: owner by owner, with the wish that led on.
        let mut came: BTreeMap<Owner, (Owner, Ticket)> = BTreeMap::new();
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
    came: &BTreeMap<Owner, (Owner, Ticket)>,
    start: Owner,
    last: (Owner, Ticket),
) -> Vec<(Owner, Ticket)> {
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
