//! What a store of this kind answers to the others.

use std::ops::Range;

use pario_core::{Fault, InodeId, LocalOffset, ObjectId};
use pario_sys::Piece;

use super::SharedFileStore;
use super::first_touch::Seen;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::places::{Claim, GiveBack, Grant, Pass, Places, Take, Taken, Visit, Visited};
use crate::sync::lock;

impl Places for SharedFileStore {
    fn block_bytes(&self, inode: InodeId) -> Option<u64> {
        let file = self.core.file(inode)?;
        file.touch.as_ref().map(|_| file.place.block_bytes)
    }

    fn is_here(&self, inode: InodeId, range: Range<u64>) -> bool {
        self.core.file(inode).is_some_and(|file| file.is_here(&range))
    }

    fn claim(&self, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        lock(&self.core.directory).claim(claim)
    }

    fn give_back(&self, back: &GiveBack) {
        lock(&self.core.directory).give_back(back);
    }

    fn pass(&self, pass: &Pass) {
        lock(&self.core.directory).pass(pass);
    }

    fn take(&self, take: Take, answer: &mut dyn FnMut(Taken)) -> Result<(), StoreError> {
        self.find(take.visit.object)?.give(&self.core, take, answer)
    }

    fn visit_read(&self, visit: Visit, target: &mut [u8]) -> Result<bool, StoreError> {
        let file = self.find(visit.object)?;
        file.visit(&self.core, visit, target.len() as u64, || {
            let at = (visit.object.generation, visit.at.0);
            let count = file.read_here(&self.core, at, target, false)?;
            target[count..].fill(0);
            Ok(())
        })
    }

    fn visit_at_once(&self, visit: Visit, target: &mut [u8]) -> Result<Visited, StoreError> {
        self.find(visit.object)?.visit_at_once(&self.core, visit, target)
    }

    fn is_still(&self, visit: Visit, bytes: u64, stamp: u64) -> bool {
        self.core.file(visit.object.inode).is_some_and(|file| file.is_still(visit, bytes, stamp))
    }

    fn read_at_once(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<bool, StoreError> {
        let read = self.find(object)?.read_at_once(&self.core, object, at.0, target)?;
        if read {
            self.counters.count_read(target.len());
        }
        Ok(read)
    }

    fn write_at_once(
        &self,
        object: ObjectId,
        at: LocalOffset,
        pieces: &[Piece<'_>],
    ) -> Result<(), StoreError> {
        self.find(object)?.write(&self.core, (object.generation, Seen::AtOnce), at.0, pieces)?;
        self.counters.count_write(total_bytes(pieces));
        Ok(())
    }

    fn visit_write(&self, visit: Visit, pieces: &[Piece<'_>]) -> Result<bool, StoreError> {
        let file = self.find(visit.object)?;
        file.visit(&self.core, visit, total_bytes(pieces), || {
            file.write_here(&self.core, visit.object.generation, visit.at.0, pieces).map(|_| ())
        })
    }

    fn file_length(&self, inode: InodeId) -> Option<u64> {
        let file = self.core.file(inode)?;
        file.touch.as_ref().map(|_| file.length())
    }
}
