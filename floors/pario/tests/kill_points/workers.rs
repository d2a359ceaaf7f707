//! Workers: clients that do one kind of work in a loop, and record which calls were acknowledged.
//!
//! Always: an iteration is done when its last call returned, and can be repeated; every call is timed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use pario::core::Code;
use pario::partition::Registry;
use pario::{File, Partition};

use crate::common::stage::{NAME, Stage, TOLD_LIMIT, pause, timed, until};
use crate::common::{difference, pattern};

/// Bytes of one iteration of records.
pub const REGION: usize = 20_000;
/// Pause between two iterations; there are many workers.
const PACE: Duration = Duration::from_millis(5);
const DIRECT: usize = 512 << 10;
const CUT: usize = 30_000;
const LARGE: usize = 1 << 20;

/// The work of one iteration.
#[derive(Clone, Debug)]
pub enum WorkKind {
    /// Records to a file that `sharers` write, each into every so-many-th region from its own on; synced.
    Records { path: String, sharers: u64, first: u64 },
    /// The same, each iteration under a lock that all sharers want.
    Locked { path: String, sharers: u64, first: u64 },
    /// A new file, by the direct path; closed.
    Direct,
    /// A new client with its own outbox, and a file; closed.
    Fresh,
    /// A file that is written, synced and truncated.
    Cut,
    /// A file that is written, closed and removed.
    Remove,
    /// An empty file.
    Name,
    /// Reads a file that others write.
    Look { path: String },
}

/// See the module.
pub struct FileWorker {
    registry: PathBuf,
    partition: Partition,
    /// Distinguishes its files from others'.
    name: &'static str,
    work: WorkKind,
    file: Option<File>,
    pub done: u64,
    /// Duration of the last call.
    took: Duration,
}

/// Bytes of an iteration, different for every worker.
pub fn bytes_of(who: &str, round: u64, bytes: usize) -> Vec<u8> {
    let seed = who.bytes().fold(round, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    pattern(bytes, seed)
}

impl WorkKind {
    /// Records under a lock that two share.
    pub fn locked(path: &str, first: u64) -> WorkKind {
        WorkKind::Locked { path: path.to_owned(), sharers: 2, first }
    }

    /// Records to a private file, or to a file shared by two.
    pub fn records(path: &str, first: Option<u64>) -> WorkKind {
        let (sharers, first) = first.map_or((1, 0), |first| (2, first));
        WorkKind::Records { path: path.to_owned(), sharers, first }
    }
}

impl FileWorker {
    pub fn new(stage: &Stage, who: &'static str, work: WorkKind) -> FileWorker {
        let partition = stage.mount();
        let file = match &work {
            WorkKind::Records { path, .. } | WorkKind::Locked { path, .. } => {
                Some(partition.options().read(true).write(true).create(true).open(path).unwrap())
            }
            _ => None,
        };
        FileWorker {
            registry: stage.registry().path().to_owned(),
            partition,
            name: who,
            work,
            file,
            done: 0,
            took: Duration::ZERO,
        }
    }

    fn path(&self, round: u64) -> String {
        format!("{}-{round}", self.name)
    }

    fn call<T>(&mut self, call: impl FnOnce(&FileWorker) -> pario::Result<T>) -> pario::Result<T> {
        let (said, took) = timed(|| call(self));
        self.took = took;
        said
    }

    fn lock(&mut self) -> pario::Result<pario::RangeLock> {
        self.call(|hand| hand.file.as_ref().unwrap().lock(0..1, &pario::LockOptions::exclusive()))
    }

    /// One iteration. After an error the same one can be retried.
    pub fn round(&mut self) -> pario::Result<()> {
        let (round, path) = (self.done, self.path(self.done));
        match self.work.clone() {
            WorkKind::Records { sharers, first, .. } | WorkKind::Locked { sharers, first, .. } => {
                let locked = matches!(self.work, WorkKind::Locked { .. });
                let guard = if locked { Some(self.lock()?) } else { None };
                let at = (round * sharers + first) * REGION as u64;
                let data = bytes_of(self.name, round, REGION);
                for part in [0, REGION / 2] {
                    let half = &data[part..part + REGION / 2];
                    self.call(|hand| hand.file.as_ref().unwrap().write_at(at + part as u64, half))?;
                }
                self.call(|hand| hand.file.as_ref().unwrap().sync())?;
                if let Some(guard) = guard {
                    self.call(|_| guard.unlock())?;
                }
            }
            WorkKind::Direct => {
                let options =
                    self.partition.options().read(true).write(true).create(true).stripe_bytes(256 << 10);
                let file = self.call(|_| options.open(path))?;
                let data = bytes_of(self.name, round, DIRECT);
                self.call(|_| file.write_at(0, &data))?;
                self.call(|_| file.close())?;
            }
            WorkKind::Fresh => {
                let partition = Partition::mount_from(&Registry::open(&self.registry), NAME)?;
                let file = self.call(|_| partition.create(path))?;
                let data = bytes_of(self.name, round, REGION);
                self.call(|_| file.write_at(0, &data))?;
                self.call(|_| file.close())?;
            }
            WorkKind::Cut => {
                let file = self.call(|hand| hand.partition.create(path))?;
                let data = bytes_of(self.name, round, 2 * CUT);
                self.call(|_| file.write_at(0, &data))?;
                self.call(|_| file.set_len(CUT as u64))?;
                self.call(|_| file.close())?;
            }
            WorkKind::Remove => {
                let file = self.call(|hand| hand.partition.create(&path))?;
                // For every other file the removal returns when the servers have executed it.
                let bytes = if round.is_multiple_of(2) { 2 * CUT } else { LARGE };
                self.call(|_| file.write_at(0, &vec![7; bytes]))?;
                self.call(|_| file.close())?;
                match self.call(|hand| hand.partition.remove_file(path)) {
                    Err(error) if error.code() == Code::NotFound => {}
                    other => other?,
                }
            }
            WorkKind::Name => {
                self.call(|hand| hand.partition.create(path)?.close())?;
                self.call(|hand| hand.partition.sync_names())?;
            }
            WorkKind::Look { path } => drop(self.call(|hand| hand.partition.metadata(path))?),
        }
        self.done += 1;
        Ok(())
    }

    /// All acknowledged data is correct, read by `reader`; data under way is present in parts or not.
    pub fn check(&self, reader: &Partition) {
        for round in 0..self.done {
            self.check_round(reader, round);
        }
        if let WorkKind::Records { path, sharers, first } | WorkKind::Locked { path, sharers, first } =
            &self.work
        {
            let at = (self.done * sharers + first) * REGION as u64;
            let mut found = vec![0; REGION];
            let count = reader.open(path).unwrap().read_at(at, &mut found).unwrap();
            let expected = bytes_of(self.name, self.done, REGION);
            let foreign = found[..count].iter().zip(&expected).position(|(f, e)| *f != 0 && f != e);
            assert_eq!(foreign, None, "{} round {}: a byte that was never written", self.name, self.done);
        }
    }

    fn check_round(&self, reader: &Partition, round: u64) {
        let path = self.path(round);
        let (path, at, bytes, size) = match &self.work {
            WorkKind::Records { path, sharers, first } | WorkKind::Locked { path, sharers, first } => {
                (path.clone(), (round * sharers + first) * REGION as u64, REGION, None)
            }
            WorkKind::Direct => (path, 0, DIRECT, Some(DIRECT)),
            WorkKind::Fresh => (path, 0, REGION, Some(REGION)),
            WorkKind::Cut => (path, 0, CUT, Some(CUT)),
            WorkKind::Name => (path, 0, 0, Some(0)),
            WorkKind::Remove => {
                assert_eq!(reader.metadata(path).unwrap_err().code(), Code::NotFound);
                return;
            }
            WorkKind::Look { .. } => return,
        };
        let file = reader.open(&path).unwrap();
        if let Some(size) = size {
            assert_eq!(reader.metadata(&path).unwrap().size, size as u64, "{path}");
        }
        let mut found = vec![0; bytes];
        file.read_exact_at(at, &mut found).unwrap_or_else(|error| panic!("{path} round {round}: {error}"));
        let whole = if matches!(self.work, WorkKind::Cut) { 2 * CUT } else { bytes };
        if let Some(what) = difference(&bytes_of(self.name, round, whole)[..bytes], &found) {
            panic!("{path} round {round}, which was acknowledged: {what}");
        }
    }

    /// Works until an iteration is done; errors of the victim are allowed meanwhile.
    pub fn goes_on(&mut self) {
        let mut last = None;
        let done = until(|| match self.round() {
            Ok(()) => true,
            Err(error) => {
                let expected = matches!(error.code(), Code::Unreachable | Code::Lost | Code::ShuttingDown);
                assert!(expected, "{}: {:?} {error}", self.name, error.code());
                last = Some(error);
                false
            }
        });
        assert!(done, "{} does not get on: {last:?}", self.name);
    }
}

/// A worker on its own thread.
pub struct Busy {
    shared: Arc<WorkerProgress>,
    thread: JoinHandle<(FileWorker, Option<pario::Error>)>,
}

#[derive(Default)]
struct WorkerProgress {
    over: AtomicBool,
    done: AtomicU64,
}

impl Busy {
    /// Works until it fails or is stopped.
    pub fn start(mut hand: FileWorker) -> Busy {
        let shared = Arc::new(WorkerProgress::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            while !theirs.over.load(Ordering::Relaxed) {
                if let Err(error) = hand.round() {
                    return (hand, Some(error));
                }
                theirs.done.fetch_add(1, Ordering::Relaxed);
                pause(PACE);
            }
            (hand, None)
        });
        Busy { shared, thread }
    }

    /// Waits for some more iterations.
    #[track_caller]
    pub fn gets_on(&self) {
        let before = self.shared.done.load(Ordering::Relaxed);
        let further = || before + 3 < self.shared.done.load(Ordering::Relaxed);
        assert!(until(|| further() || self.thread.is_finished()) && further(), "a worker makes no progress");
    }

    /// Stops it; no call failed.
    #[track_caller]
    pub fn end(self) -> FileWorker {
        let (hand, error) = self.join();
        assert_eq!(error, None, "{}", hand.name);
        hand
    }

    /// Stops it; it may have had errors that name the server meanwhile, in time.
    #[track_caller]
    pub fn end_or_told_of(self, server: usize) -> FileWorker {
        let (hand, error) = self.join();
        if let Some(error) = error {
            hand.assert_told(server, &error);
        }
        hand
    }

    /// Works until it gets an error that names the server, in time.
    #[track_caller]
    pub fn told_of(self, server: usize) -> FileWorker {
        assert!(until(|| self.thread.is_finished()), "a worker that needs server {server} gets an error");
        let (hand, error) = self.join();
        hand.assert_told(server, &error.expect("only an error ends it"));
        hand
    }

    fn join(self) -> (FileWorker, Option<pario::Error>) {
        self.shared.over.store(true, Ordering::Relaxed);
        assert!(until(|| self.thread.is_finished()), "a call does not return");
        self.thread.join().unwrap()
    }
}

impl FileWorker {
    #[track_caller]
    fn assert_told(&self, server: usize, error: &pario::Error) {
        assert!(error.to_string().contains(&format!("server {server}")), "{}: {error}", self.name);
        // A stat waits for live writers first, and these wait for the server.
        let looks = matches!(self.work, WorkKind::Look { .. });
        assert!(looks || self.took < TOLD_LIMIT, "{}: {:?}: {error}", self.name, self.took);
    }
}
