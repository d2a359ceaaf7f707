//! A plain file as a target: the members' own calls on one descriptor.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::TeamTarget;
use crate::team::error::{TeamError, TeamResult};
use crate::team::options::TeamOptions;
use crate::team::plan::CUT_BYTES;

/// Largest number of pieces of one vectored call.
const PIECES_MAX: usize = 1024;

#[derive(Debug)]
pub(super) struct PlainFileTarget {
    file: File,
    path: PathBuf,
    system_calls: AtomicU64,
}

impl PlainFileTarget {
    pub(super) fn open(path: &Path, options: &TeamOptions) -> TeamResult<PlainFileTarget> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut how = std::fs::OpenOptions::new();
        how.read(options.read).write(options.write).truncate(options.truncate).mode(options.mode);
        how.create(options.create && options.write).create_new(options.create_new && options.write);
        let failed = |error: &std::io::Error| TeamError::from_io(error, path.display());
        let file = how.open(path).map_err(|error| failed(&error))?;
        // Opening a directory for reading succeeds.
        if file.metadata().map_err(|error| failed(&error))?.is_dir() {
            return Err(failed(&Errno::ISDIR.into()));
        }
        Ok(PlainFileTarget { file, path: path.to_owned(), system_calls: AtomicU64::new(0) })
    }

    fn failed(&self, doing: &str, error: impl Into<std::io::Error>) -> TeamError {
        TeamError::from_io(&error.into(), format!("{}: {doing}", self.path.display()))
    }

    fn count(&self) {
        self.system_calls.fetch_add(1, Ordering::Relaxed);
    }
}

impl TeamTarget for PlainFileTarget {
    fn write(&self, mut offset: u64, mut pieces: &mut [IoSlice<'_>]) -> TeamResult<()> {
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            let count = pieces.len().min(PIECES_MAX);
            self.count();
            let written = match rustix::io::pwritev(self.file.as_fd(), &pieces[..count], offset) {
                Ok(0) => Err(std::io::ErrorKind::WriteZero.into()),
                Ok(written) => Ok(written),
                Err(Errno::INTR) => continue,
                Err(error) => Err(std::io::Error::from(error)),
            };
            let written = written.map_err(|error| self.failed(&format!("writing at {offset}"), error))?;
            offset += written as u64;
            IoSlice::advance_slices(&mut pieces, written);
        }
        Ok(())
    }

    fn read(&self, offset: u64, mut pieces: &mut [IoSliceMut<'_>]) -> TeamResult<u64> {
        IoSliceMut::advance_slices(&mut pieces, 0);
        let mut done = 0;
        while !pieces.is_empty() {
            let count = pieces.len().min(PIECES_MAX);
            self.count();
            match rustix::io::preadv(self.file.as_fd(), &mut pieces[..count], offset + done) {
                Ok(0) => break,
                Ok(read) => {
                    done += read as u64;
                    IoSliceMut::advance_slices(&mut pieces, read);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed(&format!("reading at {}", offset + done), error)),
            }
        }
        Ok(done)
    }

    fn len(&self) -> TeamResult<u64> {
        self.file.metadata().map(|data| data.len()).map_err(|error| self.failed("length", error))
    }

    fn sync(&self) -> TeamResult<()> {
        // A pipe or device has no stable storage.
        match self.file.sync_data() {
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => Ok(()),
            result => result.map_err(|error| self.failed("sync", error)),
        }
    }

    fn close(&self) -> TeamResult<()> {
        // The descriptor is closed with the handle; each write has reported its own error.
        Ok(())
    }

    fn cut_bytes(&self) -> u64 {
        CUT_BYTES
    }

    fn own_bytes_max(&self) -> u64 {
        0
    }

    fn system_calls(&self) -> u64 {
        self.system_calls.load(Ordering::Relaxed)
    }
}
