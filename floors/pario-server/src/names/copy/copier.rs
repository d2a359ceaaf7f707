//! The copier: a thread that writes changes to the second copy, and rewrites it when it has grown.
//!
//! Never: holds the ledger's lock while it writes. Always: after a start, and when the changes of a file exceed its snapshot, it writes a
//! new file, and removes the old one when the new one is complete; after a failure it retries every second.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, never, select};
use pario_core::Fault;
use pario_store::disk::OpenMode;

use super::super::base::RowsView;
use super::super::batch::Batch;
use super::super::guard::guarded;
use super::super::ledger::{LedgerShared, read_fault};
use super::file::Encoder;
use super::{BEHIND_FILE, CopySpec, Finish};

/// Delay until changes are written to the copy.
const COPY_AFTER: Duration = Duration::from_millis(250);
/// Retry interval of a failed location.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// After this many failures the ledger no longer waits for the copy.
const FAILURES_MAX: u32 = 4;
/// A file is rewritten when its changes have this size, and exceed its snapshot.
const CHANGES_BYTES_MIN: u64 = 64 << 20;
/// Size of a snapshot's records, and of its writes.
const PART_BYTES: usize = 4 << 10;
const WRITE_BYTES: usize = 1 << 20;

enum CopierMessage {
    /// A change is waiting.
    Dirty,
    /// Copy waiting changes now, and reply when that was tried.
    Flush(Sender<()>),
    /// End.
    Stop,
}

/// The handle of the thread.
#[derive(Debug)]
pub(in crate::names) struct Copier {
    sender: Sender<CopierMessage>,
    thread: std::thread::JoinHandle<()>,
}

/// Wakes the copier, from any thread.
#[derive(Clone, Debug)]
pub(in crate::names) struct CopyWaker(Sender<CopierMessage>);

impl CopyWaker {
    pub(in crate::names) fn wake(&self) {
        // A full queue has a message already.
        let _ = self.0.try_send(CopierMessage::Dirty);
    }
}

impl Copier {
    /// Starts it; `kick` is called when log files may have become removable, and when it waits for a view of the rows.
    pub(in crate::names) fn start(
        shared: &Arc<LedgerShared>,
        spec: CopySpec,
        kick: impl Fn() + Send + 'static,
    ) -> Result<Copier, Fault> {
        let (sender, messages) = bounded(2);
        let work = CopyWorker {
            shared: Arc::clone(shared),
            spec,
            kick: Box::new(kick),
            open: None,
            unsent: Vec::new(),
            is_suspect: false,
            failures: None,
        };
        let thread = std::thread::Builder::new().name("names-copy".into()).spawn(move || work.run(&messages));
        let thread = thread.map_err(|error| Fault::from_io(&error, "starting a thread for names"))?;
        let copier = Copier { sender, thread };
        copier.waker().wake();
        Ok(copier)
    }

    pub(in crate::names) fn waker(&self) -> CopyWaker {
        CopyWaker(self.sender.clone())
    }

    /// Copies waiting changes, if the location accepts them.
    pub(in crate::names) fn flush(&self) {
        let (done, over) = bounded(1);
        if self.sender.send(CopierMessage::Flush(done)).is_ok() {
            let _ = over.recv();
        }
    }

    /// Ends it.
    pub(in crate::names) fn stop(self) {
        // The applier holds the other end too, and waits for this thread to drop its own. Sending to an ended thread has no effect.
        let _ = self.sender.send(CopierMessage::Stop);
        // A panic was already reported by the thread.
        let _ = self.thread.join();
    }
}

/// The file that is being written.
struct CopyFile {
    number: u64,
    encoder: Encoder,
    end: u64,
    snapshot_bytes: u64,
}

struct CopyWorker {
    shared: Arc<LedgerShared>,
    spec: CopySpec,
    kick: Box<dyn Fn() + Send>,
    open: Option<CopyFile>,
    /// Bytes that the location did not accept.
    unsent: Vec<u8>,
    /// The location failed: bytes it accepted before may be lost.
    is_suspect: bool,
    /// Consecutive failures; `None`: not tried yet.
    failures: Option<u32>,
}

impl CopyWorker {
    fn run(mut self, messages: &Receiver<CopierMessage>) {
        let mut timer = never();
        loop {
            let mut done = None;
            select! {
                recv(messages) -> message => match message {
                    Ok(CopierMessage::Dirty) => {
                        timer = crossbeam_channel::after(COPY_AFTER);
                        // The first check after a start, or a view that was waited for, needs no delay.
                        if self.open.is_some() || self.shared.with_feed(|feed| feed.view.is_none()) {
                            continue;
                        }
                    }
                    Ok(CopierMessage::Flush(flushed)) => done = Some(flushed),
                    Ok(CopierMessage::Stop) | Err(_) => return,
                },
                recv(timer) -> _ => {}
            }
            let tried = self.step();
            timer = match &tried {
                // The view arrives with a message; the timer is for a failed application.
                Ok(()) if self.open.is_some() => never(),
                Ok(()) | Err(_) => crossbeam_channel::after(RETRY_AFTER),
            };
            self.note(tried);
            (self.kick)();
            drop(done);
        }
    }

    fn step(&mut self) -> Result<(), Fault> {
        if self.is_suspect {
            let files = self.spec.location.files()?;
            let kept = |open: &CopyFile| {
                files.iter().any(|(number, bytes)| *number == open.number && open.end <= *bytes)
            };
            self.open = self.open.take().filter(kept);
            self.is_suspect = false;
        }
        let full =
            |open: &CopyFile| open.snapshot_bytes.max(CHANGES_BYTES_MIN) < open.end - open.snapshot_bytes;
        // Meanwhile nothing is added to a file that will be replaced.
        if self.open.as_ref().is_none_or(full) && !self.renew()? {
            return Ok(());
        }
        self.copy_changes()
    }

    /// Writes a new file with all rows; false if the view is not available yet.
    fn renew(&mut self) -> Result<bool, Fault> {
        let Some((applied, view)) = self.shared.with_feed(|feed| {
            if feed.view.is_none() {
                // All changes taken from the feed must be in the new file's snapshot.
                feed.wants_view = Some(feed.taken);
            }
            feed.view.take()
        }) else {
            return Ok(false);
        };
        let written = self.write_snapshot(applied, &view);
        self.shared.with_feed(|feed| match &written {
            Ok(()) => (feed.copied, feed.taken) = (applied, applied),
            Err(_) => feed.view = Some((applied, view)),
        });
        written?;
        self.unsent.clear();
        Ok(true)
    }

    fn write_snapshot(&mut self, applied: u64, view: &RowsView) -> Result<(), Fault> {
        let place = &self.spec.location;
        let number = place.files()?.last().map_or(0, |(number, _)| *number) + 1;
        let mut bytes = Vec::with_capacity(WRITE_BYTES + 2 * PART_BYTES);
        let mut encoder = Encoder::begin(number, self.spec.partition, applied, &mut bytes);
        let mut at = 0;
        let mut after: Option<Vec<u8>> = None;
        loop {
            let (batch, last) = part(view, after.as_deref())?;
            if batch.is_empty() {
                break;
            }
            encoder.rows(&batch, &mut bytes);
            after = last;
            if WRITE_BYTES <= bytes.len() {
                place.write(number, at, &bytes, Finish::More)?;
                at += bytes.len() as u64;
                bytes.clear();
            }
        }
        encoder.end(&mut bytes);
        place.write(number, at, &bytes, Finish::Only)?;
        let end = at + bytes.len() as u64;
        self.open = Some(CopyFile { number, encoder, end, snapshot_bytes: end });
        Ok(())
    }

    fn copy_changes(&mut self) -> Result<(), Fault> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let (taken, before) = self.shared.with_feed(|feed| (feed.take(), feed.taken));
        if taken.overflowed {
            self.open = None;
            return self.renew().map(drop);
        }
        let mut last = before;
        for (sequence, body) in taken.changes().filter(|(sequence, _)| before < *sequence) {
            open.encoder.change(sequence, body, &mut self.unsent);
            last = sequence;
        }
        self.shared.with_feed(|feed| feed.taken = last);
        if !self.unsent.is_empty() {
            self.spec.location.write(open.number, open.end, &self.unsent, Finish::Sync)?;
            open.end += self.unsent.len() as u64;
            self.unsent.clear();
        }
        self.shared.with_feed(|feed| feed.copied = last);
        Ok(())
    }

    /// Counts failures. A location that fails for some seconds is not waited for any more, which is noted beside the names before a log is
    /// removed without it; a single failure may only mean that it shuts down together with this server.
    fn note(&mut self, tried: Result<(), Fault>) {
        let Err(fault) = tried else {
            if self.failures != Some(0) {
                self.set_behind(None);
            }
            return self.failures = Some(0);
        };
        self.is_suspect = true;
        let failures = self.failures.unwrap_or(0) + 1;
        if failures == FAILURES_MAX {
            self.set_behind(Some(&fault));
        }
        self.failures = Some(failures);
    }

    fn set_behind(&self, why: Option<&Fault>) {
        let (place, path) = (&self.shared.location, self.shared.location.dir.join(BEHIND_FILE));
        let noted = match why {
            Some(fault) => {
                let to = self.spec.location.describe();
                tracing::warn!(%fault, to, "names: the second copy cannot be written and falls behind");
                place.disk.open(&path, OpenMode::Create).map(drop)
            }
            None if place.disk.exists(&path).unwrap_or(true) => place.disk.remove(&path),
            None => Ok(()),
        };
        if let Err(error) = noted.and_then(|()| place.disk.sync_dir(&place.dir)) {
            tracing::warn!(%error, path = %path.display(), "names: cannot note how the second copy is");
        }
        self.shared.with_feed(|feed| feed.failing = why.is_some());
    }
}

/// Rows after `after`, about [`PART_BYTES`] of them, and the last key.
fn part(view: &RowsView, after: Option<&[u8]>) -> Result<(Batch, Option<Vec<u8>>), Fault> {
    guarded(|| {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut batch = Batch::default();
        let mut last = None;
        for row in view.range::<&[u8]>((start, Bound::Unbounded)).map_err(read_fault)? {
            let (key, value) = row.map_err(read_fault)?;
            batch.put(key.value(), value.value());
            if PART_BYTES <= batch.as_bytes().len() {
                last = Some(key.value().to_vec());
                break;
            }
            last = Some(key.value().to_vec());
        }
        Ok((batch, last))
    })
}
