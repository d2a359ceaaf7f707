//! One measurement: files written by threads, synced, closed; timed from the first open to the last close.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;

use pario_core::Clock;
use pario_sys::MonotonicClock;

use super::room::MeasureRoom;
use super::{FileLayout, MeasureError, MeasureObserver};
use crate::containers::{LogContainer, LogError};

/// Calls of one measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MeasuredPoint {
    pub(super) layout: FileLayout,
    pub(super) threads: u32,
    pub(super) call_bytes: u64,
    /// Calls of each thread.
    pub(super) calls: u64,
}

impl MeasuredPoint {
    pub(super) fn bytes(&self) -> u64 {
        self.call_bytes * self.calls * u64::from(self.threads)
    }

    /// Writes, syncs, and removes the files; returns bytes per second. `buffer` has at least the bytes of a call.
    pub(super) fn measure(
        &self,
        room: &MeasureRoom,
        buffer: &[u8],
        observer: &dyn MeasureObserver,
    ) -> Result<u64, MeasureError> {
        let call = &buffer[..usize::try_from(self.call_bytes).unwrap_or(usize::MAX).min(buffer.len())];
        let began = MonotonicClock.now();
        let written = match self.layout {
            FileLayout::OneFile => self.one_file(&room.file("plain"), call, observer),
            FileLayout::SeparateFiles => self.separate(room, call, observer),
            FileLayout::Container => self.container(&room.file("container"), call, observer),
        };
        let nanos = MonotonicClock.now().since(began).as_nanos().max(1);
        // A failed measurement has taken room as well.
        let cleared = room.clear();
        written.and(cleared)?;
        let speed = u128::from(self.bytes()) * 1_000_000_000 / nanos;
        Ok(u64::try_from(speed).unwrap_or(u64::MAX))
    }

    fn one_file(&self, path: &Path, call: &[u8], observer: &dyn MeasureObserver) -> Result<(), MeasureError> {
        let file = File::create_new(path).map_err(MeasureError::at(path))?;
        self.in_threads(observer, |_, offset| {
            file.write_all_at(call, offset).map_err(MeasureError::at(path))
        })?;
        file.sync_data().map_err(MeasureError::at(path))
    }

    fn separate(
        &self,
        room: &MeasureRoom,
        call: &[u8],
        observer: &dyn MeasureObserver,
    ) -> Result<(), MeasureError> {
        let paths: Vec<_> = (0..self.threads).map(|thread| room.file(&format!("plain-{thread}"))).collect();
        let create = |path: &std::path::PathBuf| File::create_new(path).map_err(MeasureError::at(path));
        let files = paths.iter().map(create).collect::<Result<Vec<_>, _>>()?;
        self.in_threads(observer, |thread, offset| {
            let own = offset / u64::from(self.threads) / self.call_bytes * self.call_bytes;
            files[thread].write_all_at(call, own).map_err(MeasureError::at(&paths[thread]))
        })?;
        let pairs = files.iter().zip(&paths);
        pairs.into_iter().try_for_each(|(file, path)| file.sync_data().map_err(MeasureError::at(path)))
    }

    fn container(
        &self,
        path: &Path,
        call: &[u8],
        observer: &dyn MeasureObserver,
    ) -> Result<(), MeasureError> {
        let failed = |error: LogError| MeasureError::at(path)(of_log(error));
        let container = LogContainer::create(path).map_err(failed)?;
        let writers: Vec<_> = (0..self.threads).map(|_| container.writer()).collect();
        self.in_threads(observer, |thread, offset| writers[thread].write_at(call, offset).map_err(failed))?;
        container.sync().map_err(failed)?;
        drop(writers);
        container.close().map_err(failed)
    }

    /// Calls `write` with thread and offset until all calls are made; the threads take turns in the file.
    fn in_threads(
        &self,
        observer: &dyn MeasureObserver,
        write: impl Fn(usize, u64) -> Result<(), MeasureError> + Sync,
    ) -> Result<(), MeasureError> {
        let start = Barrier::new(self.threads as usize);
        let thread = |thread: u32| {
            start.wait();
            for call in 0..self.calls {
                if observer.is_stopped() {
                    return Err(MeasureError::Stopped);
                }
                let number = call * u64::from(self.threads) + u64::from(thread);
                write(thread as usize, number * self.call_bytes)?;
                observer.written(self.call_bytes);
            }
            Ok(())
        };
        if self.threads == 1 {
            return thread(0);
        }
        std::thread::scope(|scope| {
            let thread = &thread;
            let threads: Vec<_> =
                (0..self.threads).map(|number| scope.spawn(move || thread(number))).collect();
            let results: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
            results.into_iter().try_for_each(|result| match result {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }
}

/// The system's error below an error of a container.
fn of_log(error: LogError) -> std::io::Error {
    if let LogError::Disk { source, .. } = error {
        return source;
    }
    std::io::Error::new(error.kind(), error.to_string())
}
