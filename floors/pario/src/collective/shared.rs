//! The shared file pointer of MPI: one number for all members, in elementary types of the view, which must be equal on all
//! members.
//!
//! Always: the reserved ranges are disjoint and contiguous; ordered calls get theirs in rank order.

use pario_core::{Code, Fault};

use super::file::{GroupFile, Seek};
use crate::client::Pending;
use crate::error::Result;
use crate::group::{CollectiveCall, decide};

impl GroupFile {
    /// Advances the shared pointer by `etypes` elementary types and returns its old value: that range of the view is reserved for
    /// the caller.
    pub fn reserve_shared(&self, etypes: u64) -> Result<u64> {
        Ok(self.inner.shared.add(etypes)?)
    }

    /// The same for all members, in rank order. Collective.
    pub fn reserve_ordered(&self, etypes: u64) -> Result<u64> {
        let group = &self.inner.group;
        if self.inner.facts.manager_near {
            return self
                .inner
                .shared
                .add_in_rank_order((group.rank(), group.size()), etypes, || group.check());
        }
        let all = group.collect(CollectiveCall::Ordered, &etypes.to_le_bytes())?;
        let odd = || Fault::new(Code::NotSame, "members of a group call different collectives");
        let counts: Option<Vec<u64>> =
            all.iter().map(|bytes| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?))).collect();
        let counts = counts.ok_or_else(odd)?;
        let first = self.decide_position(|| Ok(self.inner.shared.add(counts.iter().sum())?))?;
        Ok(first + counts[..group.rank()].iter().sum::<u64>())
    }

    /// A position that rank 0 determines, or its error; for all members.
    fn decide_position(&self, find: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let found = decide(&*self.inner.group, 0, || Ok(find()?.to_le_bytes().to_vec()))?;
        let odd = || Fault::new(Code::NotSame, "members of a group call different collectives");
        Ok(u64::from_le_bytes(found.as_slice().try_into().map_err(|_| odd())?))
    }

    /// Writes at the shared pointer, and advances it.
    pub fn write_shared(&self, data: &[u8]) -> Result<()> {
        let offset = self.reserve_shared(self.etypes(data.len())?)?;
        self.write_at(offset, data)
    }

    /// Reads at the shared pointer, and advances it by the requested length.
    pub fn read_shared(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.reserve_shared(self.etypes(target.len())?)?;
        self.read_at(offset, target)
    }

    /// Writes at the shared pointer, all members in rank order. Collective.
    pub fn write_ordered(&self, data: &[u8]) -> Result<()> {
        let offset = self.reserve_part(data.len())?;
        self.write_at(offset, data)
    }

    /// Reads at the shared pointer, all members in rank order. Collective.
    pub fn read_ordered(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.reserve_part(target.len())?;
        self.read_at(offset, target)
    }

    /// Starts [`GroupFile::write_shared`]; the pointer has advanced when this returns.
    pub fn start_write_shared(&self, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let offset = self.reserve_shared(self.etypes(data.len())?)?;
        self.start_write_at(offset, data)
    }

    /// Starts [`GroupFile::read_shared`]; [`Pending::wait`] returns the buffer, truncated to the bytes read.
    pub fn start_read_shared(&self, target: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let offset = self.reserve_shared(self.etypes(target.len())?)?;
        self.start_read_at(offset, target)
    }

    /// First half of [`GroupFile::write_ordered`]; the second is [`GroupFile::end_write_all`].
    pub fn begin_write_ordered(&self, data: Vec<u8>) -> Result<()> {
        let offset = self.reserve_part(data.len())?;
        self.begin_write_at_all(offset, data)
    }

    /// First half of [`GroupFile::read_ordered`]; the second is [`GroupFile::end_read_all`].
    pub fn begin_read_ordered(&self, target: Vec<u8>) -> Result<()> {
        let offset = self.reserve_part(target.len())?;
        self.begin_read_at_all(offset, target)
    }

    /// Moves the shared pointer; all members must pass the same target. Collective.
    pub fn seek_shared(&self, to: Seek) -> Result<u64> {
        let group = &self.inner.group;
        group.same_in(
            CollectiveCall::SeekShared,
            "the target of a shared seek",
            format!("{to:?}").as_bytes(),
        )?;
        self.decide_position(|| self.seek_shared_now(to))
    }

    fn seek_shared_now(&self, to: Seek) -> Result<u64> {
        let at = self.target_of(to, || self.position_shared())?;
        self.inner.shared.set(at)?;
        Ok(at)
    }

    /// The shared pointer, in elementary types.
    pub fn position_shared(&self) -> Result<u64> {
        Ok(self.inner.shared.get()?)
    }

    /// The caller's range of an ordered call. A member with invalid arguments takes part with an empty range, so that the others
    /// do not wait.
    fn reserve_part(&self, bytes: usize) -> Result<u64> {
        let etypes = self.etypes(bytes);
        let offset = self.reserve_ordered(etypes.as_ref().copied().unwrap_or(0));
        etypes.and(offset)
    }

    fn etypes(&self, bytes: usize) -> Result<u64> {
        let etype_bytes = self.view().etype_bytes();
        self.inner.check_whole(bytes, etype_bytes)?;
        Ok(bytes as u64 / etype_bytes)
    }
}
