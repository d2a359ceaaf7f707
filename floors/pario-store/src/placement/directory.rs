//! Directory of a home: the owner of each of its blocks.
//!
//! Never: waits, or holds a block's bytes. Always: a block has at most one owner; an ownership ends only by a give-back or handover
//! report with its number, so that a delayed or repeated message ends no later ownership; a repeated claim by the owner returns the same
//! number, unless the owner gave that number back; at most [`ENTRIES_MAX`] ownerships are recorded.

use std::collections::HashMap;

use pario_core::{Code, Fault, InodeId, Sabotage};

use super::sabotage::Bug;
use crate::peers::{Claim, GiveBack, Grant, HandoverReport, NUMBERS_PER_GRANT};

/// Ownerships recorded at a time.
const ENTRIES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub struct OwnerDirectory {
    files: HashMap<InodeId, OwnedBlocks>,
    entries: usize,
    numbers: u64,
    sabotage: Sabotage<Bug>,
}

#[derive(Debug)]
struct OwnedBlocks {
    block_bytes: u64,
    owners: HashMap<u64, Grant>,
}

impl OwnerDirectory {
    /// With a deliberate bug.
    #[must_use]
    pub fn sabotaged(bug: Option<Bug>) -> OwnerDirectory {
        OwnerDirectory { sabotage: Sabotage::new(bug), ..OwnerDirectory::default() }
    }

    /// The owners of these blocks; blocks without an owner become the claimant's.
    pub fn claim(&mut self, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        let blocks = self
            .files
            .entry(claim.inode)
            .or_insert_with(|| OwnedBlocks { block_bytes: claim.block_bytes, owners: HashMap::new() });
        if blocks.owners.is_empty() {
            blocks.block_bytes = claim.block_bytes;
        }
        if blocks.block_bytes != claim.block_bytes {
            let text = format!(
                "inode {} is cached in blocks of {} bytes, but server {} claims blocks of {}",
                claim.inode, blocks.block_bytes, claim.server, claim.block_bytes
            );
            return Err(Fault::new(Code::Invalid, text));
        }
        if ENTRIES_MAX < self.entries + claim.blocks.len() {
            let text = format!("{} cached blocks have owners: use larger cache blocks", self.entries);
            return Err(Fault::new(Code::TooMany, text));
        }
        let mut grants = Vec::with_capacity(claim.blocks.len());
        for (block, over) in &claim.blocks {
            // The claimant's give-back may still be on its way and must not end the new ownership.
            let goes_on = |grant: &&Grant| {
                let others = grant.owner != claim.server && !self.sabotage.has(Bug::GrantTwice);
                let unheard = (*over < grant.number || self.sabotage.has(Bug::SameNumber))
                    && !self.sabotage.has(Bug::NewNumber);
                others || unheard && grant.owner == claim.server
            };
            let owner = blocks.owners.get(block).filter(goes_on);
            let grant = owner.copied().unwrap_or_else(|| {
                self.numbers += NUMBERS_PER_GRANT;
                Grant { owner: claim.server, number: self.numbers }
            });
            if owner.is_none() && blocks.owners.insert(*block, grant).is_none() {
                self.entries += 1;
            }
            grants.push(grant);
        }
        Ok(grants)
    }

    /// Ends these ownerships; unknown numbers are ignored.
    pub fn give_back(&mut self, back: &GiveBack) {
        let Some(blocks) = self.files.get_mut(&back.inode) else { return };
        for (block, number) in &back.blocks {
            if blocks.owners.get(block).is_some_and(|grant| grant.is_before(back.server, *number)) {
                blocks.owners.remove(block);
                self.entries -= 1;
            }
        }
        if blocks.owners.is_empty() {
            self.files.remove(&back.inode);
        }
    }

    /// Records handovers to another server.
    pub fn report_handover(&mut self, pass: &HandoverReport) {
        let Some(blocks) = self.files.get_mut(&pass.inode) else { return };
        for (block, number) in &pass.blocks {
            let Some(grant) = blocks.owners.get_mut(block) else { continue };
            let same_row = grant.number / NUMBERS_PER_GRANT == number / NUMBERS_PER_GRANT;
            if grant.is_before(pass.server, *number) || (same_row && self.sabotage.has(Bug::OlderNumber)) {
                *grant = Grant { owner: pass.to, number: number + 1 };
            } else if grant.number == number + 1 && self.sabotage.has(Bug::PassTwice) {
                grant.number += 1;
            }
        }
    }

    /// The file was removed: drops all of its ownerships.
    pub fn forget(&mut self, inode: InodeId) {
        if let Some(blocks) = self.files.remove(&inode) {
            self.entries -= blocks.owners.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use pario_core::ServerIndex;

    use super::*;

    const INODE: InodeId = InodeId(3);

    /// Numbers as homes count them.
    fn claim(directory: &mut OwnerDirectory, server: u16, blocks: &[u64]) -> Vec<(u16, u64)> {
        let whole = |(owner, number): (u16, u64)| (owner, number / NUMBERS_PER_GRANT);
        claim_exactly(directory, server, blocks).into_iter().map(whole).collect()
    }

    fn claim_exactly(directory: &mut OwnerDirectory, server: u16, blocks: &[u64]) -> Vec<(u16, u64)> {
        let blocks: Vec<(u64, u64)> = blocks.iter().map(|block| (*block, 0)).collect();
        claim_after(directory, server, &blocks)
    }

    /// Each with the number of an ownership that was given back, possibly without confirmation.
    fn claim_after(directory: &mut OwnerDirectory, server: u16, blocks: &[(u64, u64)]) -> Vec<(u16, u64)> {
        let claim =
            Claim { server: ServerIndex(server), inode: INODE, block_bytes: 4096, blocks: blocks.to_vec() };
        directory.claim(&claim).unwrap().iter().map(|grant| (grant.owner.0, grant.number)).collect()
    }

    fn give_back(directory: &mut OwnerDirectory, server: u16, blocks: &[(u64, u64)]) {
        let server = ServerIndex(server);
        let blocks = blocks.iter().map(|(block, number)| (*block, number * NUMBERS_PER_GRANT)).collect();
        directory.give_back(&GiveBack { server, inode: INODE, blocks });
    }

    #[test]
    fn the_first_gets_it_and_all_others_hear_of_it() {
        let mut directory = OwnerDirectory::default();
        assert_eq!(claim(&mut directory, 1, &[7, 8]), [(1, 1), (1, 2)]);
        assert_eq!(claim(&mut directory, 2, &[8, 9]), [(1, 2), (2, 3)]);
        assert_eq!(claim(&mut directory, 1, &[7]), [(1, 1)], "a repeated claim returns the same ownership");
        give_back(&mut directory, 1, &[(7, 1), (8, 2)]);
        assert_eq!(claim(&mut directory, 2, &[7]), [(2, 4)]);
        assert_eq!(directory.entries, 2);
    }

    #[test]
    fn late_and_foreign_messages_end_nothing() {
        let mut directory = OwnerDirectory::default();
        claim(&mut directory, 1, &[7]);
        give_back(&mut directory, 1, &[(7, 1)]);
        assert_eq!(claim(&mut directory, 1, &[7]), [(1, 2)]);
        give_back(&mut directory, 1, &[(7, 1)]);
        give_back(&mut directory, 2, &[(7, 2)]);
        give_back(&mut directory, 1, &[(9, 2)]);
        assert_eq!(claim(&mut directory, 2, &[7]), [(1, 2)]);
        // The give-back was lost, so the block is claimed again; then the give-back arrives, and the claim a second time.
        assert_eq!(claim_after(&mut directory, 1, &[(7, 2 * N)]), [(1, 3 * N)]);
        assert_eq!(claim_after(&mut directory, 1, &[(7, 2 * N)]), [(1, 3 * N)]);
        give_back(&mut directory, 1, &[(7, 2)]);
        assert_eq!(claim(&mut directory, 2, &[7]), [(1, 3)]);
        directory.forget(INODE);
        assert_eq!((directory.entries, claim(&mut directory, 2, &[7])), (0, vec![(2, 4)]));
    }

    /// Block 7 belongs to server 1 under the number `N`, and is handed over to 2 and then to 3.
    const N: u64 = NUMBERS_PER_GRANT;

    fn pass(directory: &mut OwnerDirectory, (from, to): (u16, u16), number: u64) {
        let (server, to) = (ServerIndex(from), ServerIndex(to));
        directory.report_handover(&HandoverReport { server, to, inode: INODE, blocks: vec![(7, number)] });
    }

    fn end(directory: &mut OwnerDirectory, server: u16, number: u64) {
        let server = ServerIndex(server);
        directory.give_back(&GiveBack { server, inode: INODE, blocks: vec![(7, number)] });
    }

    #[track_caller]
    fn check(tell: impl Fn(&mut OwnerDirectory), expected: (u16, u64)) {
        let mut directory = OwnerDirectory::default();
        claim(&mut directory, 1, &[7]);
        tell(&mut directory);
        assert_eq!(claim_exactly(&mut directory, 9, &[7]), [expected]);
        assert_eq!(directory.entries, 1);
    }

    #[test]
    fn what_is_passed_on_is_the_last_ones_in_whatever_order_that_is_heard() {
        check(|home| pass(home, (1, 2), N), (2, N + 1));
        let in_order = |order: &'static [(u16, u16, u64)]| {
            move |home: &mut OwnerDirectory| {
                order.iter().for_each(|(from, to, number)| pass(home, (*from, *to), *number))
            }
        };
        check(in_order(&[(1, 2, N), (1, 2, N), (2, 3, N + 1), (1, 2, N)]), (3, N + 2));
        check(in_order(&[(2, 3, N + 1), (1, 2, N)]), (3, N + 2));
        check(in_order(&[(2, 3, N), (5, 2, N)]), (1, N));
    }

    #[test]
    fn whoever_has_it_in_the_end_gives_it_back_and_nobody_else() {
        // The last owner's message arrives before the earlier handover reports.
        let late = |home: &mut OwnerDirectory| {
            end(home, 3, N + 2);
            pass(home, (1, 2), N);
            pass(home, (2, 3), N + 1);
        };
        check(late, (9, 2 * N));
        let passed = |home: &mut OwnerDirectory| {
            pass(home, (1, 2), N);
            end(home, 1, N);
            end(home, 3, N + 1);
        };
        check(passed, (2, N + 1));
        // Another server owns the block now: messages about the earlier ownership are stale.
        let over = |home: &mut OwnerDirectory| {
            end(home, 1, N);
            claim(home, 4, &[7]);
            pass(home, (1, 2), N);
            end(home, 2, N + 1);
        };
        check(over, (4, 2 * N));
        // A server that missed the handover reply claims the block and gets it under the number of the handover.
        let unheard = |home: &mut OwnerDirectory| {
            pass(home, (1, 2), N);
            assert_eq!(claim_exactly(home, 2, &[7]), [(2, N + 1)]);
            pass(home, (2, 3), N + 1);
        };
        check(unheard, (3, N + 2));
    }

    #[test]
    fn blocks_of_two_sizes_and_too_many_are_refused() {
        let mut directory = OwnerDirectory::default();
        claim(&mut directory, 1, &[7]);
        let other = Claim { server: ServerIndex(1), inode: INODE, block_bytes: 8192, blocks: vec![(1, 0)] };
        assert_eq!(directory.claim(&other).unwrap_err().code, Code::Invalid);
        let many = Claim {
            block_bytes: 4096,
            blocks: (0..=ENTRIES_MAX as u64).map(|block| (block, 0)).collect(),
            ..other
        };
        assert_eq!(directory.claim(&many).unwrap_err().code, Code::TooMany);
    }
}
