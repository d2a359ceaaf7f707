//! Shared files: one file for all members, on the disks of all homes, or one plain file where the file system is shared.
//!
//! Never: tells other members of a write; persists, unless it was created with a suffix. Always: any member reads and writes anywhere; a
//! read that ends beyond the end is an error with its exact count.

use std::path::PathBuf;
use std::sync::Arc;

use super::Distant;
use super::counts::DistantCounts;
use super::file_core::FileCore;
use super::options::FilePlace;
use super::request::DistantRequest;
use crate::error::Result;

/// See the module. Made by [`Distant::create`].
#[derive(Debug)]
pub struct SharedFile {
    pub(super) core: Arc<FileCore>,
    pub(super) number: u64,
    pub(super) place: FilePlace,
    pub(super) stripe: u64,
    pub(super) homes: Vec<usize>,
    /// The named file of this member, to be removed at the end.
    pub(super) named: Option<PathBuf>,
    pub(super) limits: (Option<u64>, Option<u64>),
}

impl SharedFile {
    /// Fills `target`.
    ///
    /// # Errors
    /// [`crate::Error::PastEnd`] with the number of bytes read, if the end of the file comes first.
    pub fn read_at(&self, at: u64, target: &mut [u8]) -> Result<()> {
        self.core.read_at(at, target).map(|_| ())
    }

    /// Writes all of `source`; the file grows as needed.
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

    /// The length: all homes are asked.
    pub fn length(&self) -> Result<u64> {
        self.core.length()
    }

    /// Puts completed writes on stable storage, of all members.
    pub fn sync(&self) -> Result<()> {
        self.core.sync()
    }

    /// Where its bytes are.
    #[must_use]
    pub fn place(&self) -> FilePlace {
        self.place
    }

    /// Bytes of a block; components have them in turn.
    #[must_use]
    pub fn stripe(&self) -> u64 {
        self.stripe
    }

    /// Ranks with a component, in the order of the blocks; none for a plain file.
    #[must_use]
    pub fn homes(&self) -> &[usize] {
        &self.homes
    }

    /// Hard and soft limit as given at creation.
    #[must_use]
    pub fn limits(&self) -> (Option<u64>, Option<u64>) {
        self.limits
    }

    /// FileCounters of this process.
    #[must_use]
    pub fn counts(&self) -> DistantCounts {
        self.core.counts()
    }

    /// Ends the file on all members and removes it; collective. Requests under way are completed first.
    pub fn destroy(self, distant: &Distant) -> Result<()> {
        let ended = self.end(distant, "destroy");
        if let Some(path) = &self.named {
            // Removed by another program already: the aim is reached.
            match std::fs::remove_file(path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    let fault = pario_core::Fault::from_io(&error, format!("removing {}", path.display()));
                    return ended.and(Err(fault.into()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        ended
    }

    /// Ends the file on all members; collective. The components of a file with a suffix stay.
    pub fn close(self, distant: &Distant) -> Result<()> {
        self.end(distant, "close")
    }

    fn end(&self, distant: &Distant, call: &str) -> Result<()> {
        self.core.close();
        self.core.report();
        let ended = distant.end_collective(call, self.number);
        distant.forget(self.number);
        ended
    }
}
