//! Distant files: a file at one home, and one registered file of each member.
//!
//! Never: keeps two users out of each other's bytes; that is theirs to do. Always: an access names the member; a member that brought no
//! file is named in the error.

use std::sync::Arc;

use pario_core::{Code, Fault};

use super::Distant;
use super::counts::DistantCounts;
use super::file_core::FileCore;
use super::home_call::HomeCall;
use super::homes::Homes;
use super::request::DistantRequest;
use crate::error::{Error, Result};

/// A file at one home, open in this process.
#[derive(Debug)]
pub struct DistantFile {
    pub(super) core: Arc<FileCore>,
    pub(super) homes: Arc<Homes>,
    /// Opened by path: its home, and its path there.
    pub(super) opened: Option<(usize, Vec<u8>)>,
}

impl DistantFile {
    /// Reads into `target` up to the end of the file; returns how many bytes there were.
    pub fn read_at(&self, at: u64, target: &mut [u8]) -> Result<usize> {
        self.core.read_at(at, target)
    }

    /// Writes all of `source`.
    pub fn write_at(&self, at: u64, source: &[u8]) -> Result<()> {
        self.core.write_at(at, source)
    }

    /// Starts a read.
    pub fn start_read_at<B: AsMut<[u8]> + Send + 'static>(
        &self,
        at: u64,
        buffer: B,
    ) -> Result<DistantRequest<B>> {
        self.core.start_read(at, buffer)
    }

    /// Starts a write.
    pub fn start_write_at<B: AsRef<[u8]> + Send + Sync + 'static>(
        &self,
        at: u64,
        buffer: B,
    ) -> Result<DistantRequest<B>> {
        self.core.start_write(at, buffer)
    }

    /// Its length.
    pub fn length(&self) -> Result<u64> {
        self.core.length()
    }

    /// Sets its length.
    pub fn truncate(&self, bytes: u64) -> Result<()> {
        self.core.truncate(bytes)
    }

    /// Puts completed writes on stable storage.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// FileCounters of this process.
    #[must_use]
    pub fn counts(&self) -> DistantCounts {
        self.core.counts()
    }

    /// Rank of its home.
    #[must_use]
    pub fn home(&self) -> usize {
        let file = self.core.components().first().and_then(|component| component.file_ref());
        file.map_or(0, |file| file.rank)
    }

    /// Closes it and removes its name from its home's directory; others that have it open keep its bytes.
    ///
    /// # Errors
    /// If it was registered and not opened by its path, or the home refuses.
    pub fn remove(self) -> Result<()> {
        let (number, path) = self.opened.clone().ok_or_else(|| {
            let text = format!("{}: only a file that was opened by its path can be removed", self.core.name);
            Error::from(Fault::new(Code::Unsupported, text))
        })?;
        if path.is_empty() {
            let text =
                format!("{}: a file found by its published name is removed by its opener", self.core.name);
            return Err(Fault::new(Code::Unsupported, text).into());
        }
        self.core.close();
        self.homes.call(number, HomeCall::Remove { path })?;
        Ok(())
    }
}

impl Drop for DistantFile {
    fn drop(&mut self) {
        let Some((number, _)) = self.opened else { return };
        self.core.report();
        if let Some(file) = self.core.components().first().and_then(|component| component.file_ref()) {
            let object = pario_core::ObjectId { inode: file.inode(), generation: pario_core::Generation(0) };
            self.homes.release(number, object);
        }
    }
}

/// One handle for a file of each member; see [`Distant::register`].
#[derive(Debug)]
pub struct DistantFiles {
    pub(super) number: u64,
    pub(super) cores: Vec<Option<Arc<FileCore>>>,
    pub(super) homes: Arc<Homes>,
}

impl DistantFiles {
    fn core(&self, rank: usize) -> Result<&Arc<FileCore>> {
        let size = self.cores.len();
        let invalid = || Fault::new(Code::Invalid, format!("rank {rank} is not in the group of {size}"));
        let core = self.cores.get(rank).ok_or_else(invalid)?;
        let none = || Fault::new(Code::NotFound, format!("rank {rank} brought no file to this registration"));
        core.as_ref().ok_or_else(|| none().into())
    }

    /// The file of one member alone.
    pub fn member(&self, rank: usize) -> Result<DistantFile> {
        let core = Arc::clone(self.core(rank)?);
        Ok(DistantFile { core, homes: Arc::clone(&self.homes), opened: None })
    }

    /// Ranks that brought a file.
    #[must_use]
    pub fn members(&self) -> Vec<usize> {
        (0..self.cores.len()).filter(|rank| self.cores[*rank].is_some()).collect()
    }

    /// Reads from the file of member `rank` up to its end; returns how many bytes there were.
    pub fn read_at(&self, rank: usize, at: u64, target: &mut [u8]) -> Result<usize> {
        self.core(rank)?.read_at(at, target)
    }

    /// Writes all of `source` to the file of member `rank`.
    pub fn write_at(&self, rank: usize, at: u64, source: &[u8]) -> Result<()> {
        self.core(rank)?.write_at(at, source)
    }

    /// Starts a read.
    pub fn start_read_at<B: AsMut<[u8]> + Send + 'static>(
        &self,
        rank: usize,
        at: u64,
        buffer: B,
    ) -> Result<DistantRequest<B>> {
        self.core(rank)?.start_read(at, buffer)
    }

    /// Starts a write.
    pub fn start_write_at<B: AsRef<[u8]> + Send + Sync + 'static>(
        &self,
        rank: usize,
        at: u64,
        buffer: B,
    ) -> Result<DistantRequest<B>> {
        self.core(rank)?.start_write(at, buffer)
    }

    /// Length of the file of member `rank`.
    pub fn length(&self, rank: usize) -> Result<u64> {
        self.core(rank)?.length()
    }

    /// Sets the length of the file of member `rank`.
    pub fn truncate(&self, rank: usize, bytes: u64) -> Result<()> {
        self.core(rank)?.truncate(bytes)
    }

    /// Puts completed writes to the file of member `rank` on stable storage.
    pub fn sync(&self, rank: usize) -> Result<()> {
        self.core(rank)?.sync()
    }

    /// FileCounters of this process, over the files of all members.
    #[must_use]
    pub fn counts(&self) -> DistantCounts {
        self.cores.iter().flatten().next().map(|core| core.counts()).unwrap_or_default()
    }

    /// Ends the registration; collective. Requests under way are completed first.
    pub fn unregister(self, distant: &Distant) -> Result<()> {
        self.cores.iter().flatten().for_each(|core| core.close());
        if let Some(core) = self.cores.iter().flatten().next() {
            core.report();
        }
        let ended = distant.end_collective("unregister", self.number);
        if let Some(own) = self.homes.own() {
            own.forget(self.number);
        }
        ended
    }
}
