//! The shared pointer of a group's file: one number for all members, in elementary types of the view, which all set alike.
//!
//! Always: parts that members get are disjoint and leave no gap; ordered calls get theirs in the order of ranks.

use pario_core::{Code, Fault};

use super::file::{GroupFile, Seek};
use crate::client::Pending;
use crate::error::Result;
use crate::group::{Call, decide};

impl GroupFile {
    /// Moves the shared pointer by so many elementary types and returns where it was: that part of the view is the caller's.
    pub fn reserve_shared(&self, etypes: u64) -> Result<u64> {
        Ok(self.inner.shared.add(etypes)?)
    }

    /// The same for all members at once, in the order of their ranks. Collective.
    pub fn reserve_ordered(&self, etypes: u64) -> Result<u64> {
        let group = &self.inner.group;
        if self.inner.facts.manager_near {
            return self.inner.shared.add_in_turn((group.rank(), group.size()), etypes, || group.check());
        }
        let all = group.collect(Call::Ordered, &etypes.to_le_bytes())?;
        let odd = || Fault::new(Code::NotSame, "members of a group call different collectives");
        let counts: Option<Vec<u64>> =
            all.iter().map(|bytes| Some(u64::from_le_bytes(bytes.as_slice().try_into().ok()?))).collect();
        let counts = counts.ok_or_else(odd)?;
        let first = self.first_finds(|| Ok(self.inner.shared.add(counts.iter().sum())?))?;
        Ok(first + counts[..group.rank()].iter().sum::<u64>())
    }

    /// A place that rank 0 finds out, or its error; for all.
    fn first_finds(&self, find: impl FnOnce() -> Result<u64>) -> Result<u64> {
        let found = decide(&*self.inner.group, 0, || Ok(find()?.to_le_bytes().to_vec()))?;
        let odd = || Fault::new(Code::NotSame, "members of a group call different collectives");
        Ok(u64::from_le_bytes(found.as_slice().try_into().map_err(|_| odd())?))
    }

    /// Writes where the shared pointer is, and moves it.
    pub fn write_shared(&self, data: &[u8]) -> Result<()> {
        let offset = self.reserve_shared(self.etypes(data.len())?)?;
        self.write_at(offset, data)
    }

    /// Reads where the shared pointer is, and moves it by what was wanted.
    pub fn read_shared(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.reserve_shared(self.etypes(target.len())?)?;
        self.read_at(offset, target)
    }

    /// Writes where the shared pointer is, all members in the order of their ranks. Collective.
    pub fn write_ordered(&self, data: &[u8]) -> Result<()> {
        let offset = self.reserve_part(data.len())?;
        self.write_at(offset, data)
    }

    /// Reads where the shared pointer is, all members in the order of their ranks. Collective.
    pub fn read_ordered(&self, target: &mut [u8]) -> Result<usize> {
        let offset = self.reserve_part(target.len())?;
        self.read_at(offset, target)
    }

    /// Starts [`GroupFile::write_shared`]; the pointer has moved when this returns.
    pub fn start_write_shared(&self, data: Vec<u8>) -> Result<Pending<Vec<u8>>> {
        let offset = self.reserve_shared(self.etypes(data.len())?)?;
        self.start_write_at(offset, data)
    }

    /// Starts [`GroupFile::read_shared`]; the buffer comes back, cut to what was read.
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

    /// Moves the shared pointer; all members must say the same. Collective.
    pub fn seek_shared(&self, to: Seek) -> Result<u64> {
        let group = &self.inner.group;
        group.same_in(Call::SeekShared, "where the shared pointer goes", format!("{to:?}").as_bytes())?;
        self.first_finds(|| self.seek_shared_now(to))
    }

    fn seek_shared_now(&self, to: Seek) -> Result<u64> {
        let at = self.target_of(to, || self.position_shared())?;
        self.inner.shared.set(at)?;
        Ok(at)
    }

    /// Where the shared pointer is, in elementary types.
    pub fn position_shared(&self) -> Result<u64> {
        Ok(self.inner.shared.get()?)
    }

    /// The caller's part of an ordered call. One that cannot be has its turn all the same, for the sake of the others.
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
