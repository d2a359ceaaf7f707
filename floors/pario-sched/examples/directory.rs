//! Schedules plain `pread` and `pwrite` on the files of a directory: `cargo run -p pario-sched --example directory [POLICY]`.
//!
//! The scheduler has no threads and no clock; this host provides both. Four application threads post their requests and wait for them;
//! two workers ask the controller for a run, execute it, and complete it. One application writes a file, three read it in interleaved
//! pieces; the bytes read are checked, because reads that were posted after a write see it.

#![expect(clippy::print_stdout, reason = "an example is for reading")]
#![expect(clippy::disallowed_methods, reason = "this host owns its clock")]

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pario_sched::{
    ApplicationId, Controller, FileId, IoKind, IoRun, Options, Outcome, Pick, Request, RequestId,
};

const PIECE: usize = 8192;
const PIECES: u64 = 512;
const READERS: u64 = 3;

/// Shared state of the threads: the controller and the buffers of unfinished requests.
struct SharedState {
    controller: Controller,
    buffers: HashMap<RequestId, Vec<u8>>,
    finished: HashMap<RequestId, io::Result<Vec<u8>>>,
    ended: bool,
}

/// A directory with files that are read and written through the scheduler.
struct ScheduledDirectory {
    shared: Mutex<SharedState>,
    /// A request was posted or finished, or the run ends.
    changed: Condvar,
    files: Vec<File>,
    start: Instant,
}

impl ScheduledDirectory {
    fn now_us(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a request; a full queue blocks the caller until a slot is free.
    fn post(&self, request: Request, buffer: Vec<u8>) -> RequestId {
        let mut shared = self.lock();
        loop {
            match shared.controller.post(Request { arrival_us: self.now_us(), ..request }) {
                Ok(id) => {
                    shared.buffers.insert(id, buffer);
                    self.changed.notify_all();
                    return id;
                }
                Err(_full) => shared = self.wait(shared, Duration::from_secs(1)),
            }
        }
    }

    fn finish(&self, id: RequestId) -> io::Result<Vec<u8>> {
        let mut shared = self.lock();
        loop {
            if let Some(result) = shared.finished.remove(&id) {
                return result;
            }
            shared = self.wait(shared, Duration::from_secs(1));
        }
    }

    fn wait<'a>(
        &self,
        shared: MutexGuard<'a, SharedState>,
        longest: Duration,
    ) -> MutexGuard<'a, SharedState> {
        self.changed
            .wait_timeout(shared, longest)
            .map_or_else(|poisoned| poisoned.into_inner().0, |(shared, _)| shared)
    }

    /// Loop of a worker: asks, executes, completes.
    fn work(&self) {
        let mut shared = self.lock();
        while !shared.ended {
            let now_us = self.now_us();
            match shared.controller.next(now_us) {
                Pick::Serve(run) => {
                    let taken = run.parts.iter().filter_map(|part| shared.buffers.remove(&part.id)).collect();
                    drop(shared);
                    let results = self.execute(&run, taken);
                    shared = self.lock();
                    for (part, result) in run.parts.iter().zip(results) {
                        let outcome = match &result {
                            Ok(buffer) => Outcome::Done { bytes: buffer.len() as u64 },
                            Err(_) => Outcome::Failed,
                        };
                        if let Err(error) = shared.controller.complete(part.id, self.now_us(), outcome) {
                            println!("{error}");
                        }
                        shared.finished.insert(part.id, result);
                    }
                    self.changed.notify_all();
                }
                Pick::Wait { until_us } => {
                    shared = self.wait(shared, Duration::from_micros(until_us.saturating_sub(now_us)));
                }
                Pick::Idle => shared = self.wait(shared, Duration::from_secs(1)),
            }
        }
    }

    /// One plain system call for each part. A host with `preadv` declares it with `set_vectored` and makes one call for all.
    fn execute(&self, run: &IoRun, buffers: Vec<Vec<u8>>) -> Vec<io::Result<Vec<u8>>> {
        let index = usize::try_from(run.file.0).unwrap_or(usize::MAX);
        let file = self.files.get(index);
        let access = |offset: u64, mut buffer: Vec<u8>| {
            let file = file.ok_or(io::ErrorKind::NotFound)?;
            match run.kind {
                IoKind::Read => {
                    let moved = file.read_at(&mut buffer, offset)?;
                    buffer.truncate(moved);
                }
                IoKind::Write => file.write_all_at(&buffer, offset)?,
            }
            Ok(buffer)
        };
        run.parts.iter().zip(buffers).map(|(part, buffer)| access(part.offset, buffer)).collect()
    }

    fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

fn pattern(piece: u64) -> u8 {
    u8::try_from(piece % 251).unwrap_or(0)
}

/// Posts a write for every piece without waiting: reads that are posted later see them all the same.
fn post_writes(directory: &ScheduledDirectory) -> Vec<RequestId> {
    let post = |piece: u64| {
        let request = Request::write(FileId(0), ApplicationId(0), piece * PIECE as u64, PIECE as u64, 0);
        directory.post(request, vec![pattern(piece); PIECE])
    };
    (0..PIECES).map(post).collect()
}

/// Reads every third piece, one after the other; returns how many were wrong.
fn read_own(directory: &ScheduledDirectory, reader: u64) -> io::Result<u64> {
    let mut wrong = 0;
    for piece in (0..PIECES).filter(|piece| piece % READERS == reader) {
        let request =
            Request::read(FileId(0), ApplicationId(1 + reader), piece * PIECE as u64, PIECE as u64, 0);
        let bytes = directory.finish(directory.post(request, vec![0; PIECE]))?;
        wrong += u64::from(bytes != vec![pattern(piece); PIECE]);
    }
    Ok(wrong)
}

fn main() -> Result<(), Box<dyn Error>> {
    let policy = env::args().nth(1).unwrap_or_else(|| "mlf".to_owned());
    let folder = tempfile::tempdir()?;
    let open =
        |name: &str| File::options().read(true).write(true).create_new(true).open(folder.path().join(name));
    let shared = SharedState {
        controller: Controller::new(&policy, Options::default())?,
        buffers: HashMap::new(),
        finished: HashMap::new(),
        ended: false,
    };
    let (shared, changed, files) = (Mutex::new(shared), Condvar::new(), vec![open("field")?]);
    let directory = ScheduledDirectory { shared, changed, files, start: Instant::now() };
    let wrong = thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(|| directory.work())).collect();
        let writes = post_writes(&directory);
        let readers: Vec<_> = (0..READERS)
            .map(|reader| {
                scope.spawn({
                    let directory = &directory;
                    move || read_own(directory, reader)
                })
            })
            .collect();
        let wrong = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|_| Err(io::Error::other("a reader died"))));
        let wrong: io::Result<u64> = wrong.sum();
        let written = writes.into_iter().try_for_each(|id| directory.finish(id).map(drop));
        directory.end();
        workers.into_iter().for_each(|worker| drop(worker.join()));
        written.and(wrong)
    })?;
    let statistics = directory.lock().controller.statistics();
    println!(
        "{policy}: {} requests in {} virtual requests, {wrong} wrong",
        statistics.total.done, statistics.total.virtual_requests
    );
    for one in &statistics.applications {
        let (wait, service) = (one.totals.wait_us.quantile(0.99), one.totals.service_us.quantile(0.99));
        let (id, bytes) = (one.application.0, one.totals.bytes());
        println!(
            "application {id}: {bytes} bytes, 99 % waited up to {wait} us and were served within {service} us"
        );
    }
    if wrong == 0 { Ok(()) } else { Err("a reader saw bytes that were never written".into()) }
}
