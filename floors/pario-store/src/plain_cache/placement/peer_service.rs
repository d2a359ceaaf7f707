//! Requests of the other servers that the store of the file cache serves: see [`crate::PeerService`].

use std::ops::Range;

use pario_core::{Fault, InodeId, LocalOffset, ObjectId};
use pario_sys::MemoryPiece;

use super::first_touch::WriteVisibility;
use crate::error::StoreError;
use crate::files::total_bytes;
use crate::peers::{
    AtomicReadReply, Claim, GiveBack, Grant, Handover, HandoverReply, HandoverReport, PeerService,
    RemoteAccess,
};
use crate::plain_cache::PlainCacheStore;
use crate::sync::lock;

impl PeerService for PlainCacheStore {
    fn block_bytes(&self, inode: InodeId) -> Option<u64> {
        let file = self.core.file(inode)?;
        file.dynamic.as_ref().map(|_| file.placement.block_bytes)
    }

    fn owns_range(&self, inode: InodeId, range: Range<u64>) -> bool {
        self.core.file(inode).is_some_and(|file| file.owns_range(&range))
    }

    fn claim(&self, claim: &Claim) -> Result<Vec<Grant>, Fault> {
        lock(&self.core.directory).claim(claim)
    }

    fn give_back(&self, back: &GiveBack) {
        lock(&self.core.directory).give_back(back);
    }

    fn report_handover(&self, pass: &HandoverReport) {
        lock(&self.core.directory).report_handover(pass);
    }

    fn hand_over(&self, take: Handover, answer: &mut dyn FnMut(HandoverReply)) -> Result<(), StoreError> {
        self.find(take.first.object)?.hand_over(&self.core, take, answer)
    }

    fn remote_read(&self, visit: RemoteAccess, target: &mut [u8]) -> Result<bool, StoreError> {
        let file = self.find(visit.object)?;
        file.remote_access(&self.core, visit, target.len() as u64, || {
            let at = (visit.object.generation, visit.at.0);
            let count = file.read_here(&self.core, at, target, false)?;
            target[count..].fill(0);
            Ok(())
        })
    }

    fn remote_read_atomic(
        &self,
        visit: RemoteAccess,
        target: &mut [u8],
    ) -> Result<AtomicReadReply, StoreError> {
        self.find(visit.object)?.remote_read_atomic(&self.core, visit, target)
    }

    fn is_unchanged(&self, visit: RemoteAccess, bytes: u64, stamp: u64) -> bool {
        self.core.file(visit.object.inode).is_some_and(|file| file.is_unchanged(visit, bytes, stamp))
    }

    fn read_atomic(&self, object: ObjectId, at: LocalOffset, target: &mut [u8]) -> Result<bool, StoreError> {
        let read = self.find(object)?.read_atomic(&self.core, object, at.0, target)?;
        if read {
            self.counters.count_read(target.len());
        }
        Ok(read)
    }

    fn write_atomic(
        &self,
        object: ObjectId,
        at: LocalOffset,
        pieces: &[MemoryPiece<'_>],
    ) -> Result<(), StoreError> {
        self.find(object)?.write(&self.core, (object.generation, WriteVisibility::Atomic), at.0, pieces)?;
        self.counters.count_write(total_bytes(pieces));
        Ok(())
    }

    fn remote_write(&self, visit: RemoteAccess, pieces: &[MemoryPiece<'_>]) -> Result<bool, StoreError> {
        let file = self.find(visit.object)?;
        file.remote_access(&self.core, visit, total_bytes(pieces), || {
            file.write_here(&self.core, visit.object.generation, visit.at.0, pieces).map(|_| ())
        })
    }

    fn file_length(&self, inode: InodeId) -> Option<u64> {
        let file = self.core.file(inode)?;
        file.dynamic.as_ref().map(|_| file.length())
    }
}
