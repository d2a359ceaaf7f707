//! The directory of a home: who owns which of the blocks that it is home of.
//!
//! Never: waits, or knows a block's bytes. Always: a block has at most one owner; an ownership that was given ends only when it is
//! given back by its number, so that a message that comes late or twice ends no other one; who claims its own anew gets a new number; at most [`ENTRIES_MAX`] are known.

use std::collections::HashMap;

use pario_core::{Code, Fault, InodeId};

use crate::places::{Claim, GiveBack, Grant};

/// Ownerships known at a time.
const ENTRIES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Directory {
    files: HashMap<InodeId, Blocks>,
    entries: usize,
    numbers: u64,
}

#[derive(Debug)]
struct Blocks {
    block_bytes: u64,
    owners: HashMap<u64, Grant>,
}

impl Directory {
    pub(super) fn claim(&mut self, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        let blocks = self
            .files
            .entry(claim.inode)
            .or_insert_with(|| Blocks { block_bytes: claim.block_bytes, owners: HashMap::new() });
        if blocks.owners.is_empty() {
            blocks.block_bytes = claim.block_bytes;
        }
        if blocks.block_bytes != claim.block_bytes {
            let text = format!(
                "inode {} has blocks of {} bytes, and server {} asks for some of {}",
                claim.inode, blocks.block_bytes, claim.server, claim.block_bytes
            );
            return Err(Fault::new(Code::Invalid, text));
        }
        if ENTRIES_MAX < self.entries + claim.blocks.len() {
            let text = format!("{} blocks have owners already: larger ones are needed", self.entries);
            return Err(Fault::new(Code::TooMany, text));
        }
        let mut grants = Vec::with_capacity(claim.blocks.len());
        for block in &claim.blocks {
            let owner = blocks.owners.get(block).filter(|grant| grant.owner != claim.server);
            let grant = owner.copied().unwrap_or_else(|| {
                self.numbers += 1;
                Grant { owner: claim.server, number: self.numbers }
            });
            // Who asks again did not hear the answer, or could not say that it gave the block back: what it said may still come.
            if owner.is_none() && blocks.owners.insert(*block, grant).is_none() {
                self.entries += 1;
            }
            grants.push(grant);
        }
        Ok(grants)
    }

    pub(super) fn give_back(&mut self, back: &GiveBack) {
        let Some(blocks) = self.files.get_mut(&back.inode) else { return };
        for (block, number) in &back.blocks {
            let ended = Grant { owner: back.server, number: *number };
            if blocks.owners.get(block) == Some(&ended) {
                blocks.owners.remove(block);
                self.entries -= 1;
            }
        }
        if blocks.owners.is_empty() {
            self.files.remove(&back.inode);
        }
    }

    /// A file is gone for good, and with it whatever was owned of it.
    pub(super) fn forget(&mut self, inode: InodeId) {
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

    fn claim(directory: &mut Directory, server: u16, blocks: &[u64]) -> Vec<(u16, u64)> {
        let claim =
            Claim { server: ServerIndex(server), inode: INODE, block_bytes: 4096, blocks: blocks.to_vec() };
        directory.claim(&claim).unwrap().iter().map(|grant| (grant.owner.0, grant.number)).collect()
    }

    fn give_back(directory: &mut Directory, server: u16, blocks: &[(u64, u64)]) {
        let server = ServerIndex(server);
        directory.give_back(&GiveBack { server, inode: INODE, blocks: blocks.to_vec() });
    }

    #[test]
    fn the_first_gets_it_and_all_others_hear_of_it() {
        let mut directory = Directory::default();
        assert_eq!(claim(&mut directory, 1, &[7, 8]), [(1, 1), (1, 2)]);
        assert_eq!(claim(&mut directory, 2, &[8, 9]), [(1, 2), (2, 3)]);
        assert_eq!(claim(&mut directory, 1, &[7]), [(1, 4)], "asked twice it is a new ownership of the same");
        give_back(&mut directory, 1, &[(7, 4), (8, 2)]);
        assert_eq!(claim(&mut directory, 2, &[7]), [(2, 5)]);
        assert_eq!(directory.entries, 2);
    }

    #[test]
    fn late_and_foreign_messages_end_nothing() {
        let mut directory = Directory::default();
        claim(&mut directory, 1, &[7]);
        give_back(&mut directory, 1, &[(7, 1)]);
        assert_eq!(claim(&mut directory, 1, &[7]), [(1, 2)]);
        give_back(&mut directory, 1, &[(7, 1)]);
        give_back(&mut directory, 2, &[(7, 2)]);
        give_back(&mut directory, 1, &[(9, 2)]);
        assert_eq!(claim(&mut directory, 2, &[7]), [(1, 2)]);
        // It was not heard that it was given back, so it was asked for again; then the first message comes.
        assert_eq!(claim(&mut directory, 1, &[7]), [(1, 3)]);
        give_back(&mut directory, 1, &[(7, 2)]);
        assert_eq!(claim(&mut directory, 2, &[7]), [(1, 3)]);
        directory.forget(INODE);
        assert_eq!((directory.entries, claim(&mut directory, 2, &[7])), (0, vec![(2, 4)]));
    }

    #[test]
    fn blocks_of_two_sizes_and_too_many_are_refused() {
        let mut directory = Directory::default();
        claim(&mut directory, 1, &[7]);
        let other = Claim { server: ServerIndex(1), inode: INODE, block_bytes: 8192, blocks: vec![1] };
        assert_eq!(directory.claim(&other).unwrap_err().code, Code::Invalid);
        let many = Claim { block_bytes: 4096, blocks: (0..=ENTRIES_MAX as u64).collect(), ..other };
        assert_eq!(directory.claim(&many).unwrap_err().code, Code::TooMany);
    }
}
