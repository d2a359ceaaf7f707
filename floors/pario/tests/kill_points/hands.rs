//! Hands: clients that do one kind of work, round after round, and know what was acknowledged.
//!
//! Always: a round is done when its last call returned, and can be done again; every call is timed.

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

/// Bytes of one round of records.
pub const REGION: usize = 20_000;
/// Between two rounds; there are many hands.
const PACE: Duration = Duration::from_millis(5);
const DIRECT: usize = 512 << 10;
const CUT: usize = 30_000;
const LARGE: usize = 1 << 20;

/// What is done in a round.
#[derive(Clone, Debug)]
pub enum Work {
    /// Records to a file that `sharers` write, each into every so-many-th region from its own on; synced.
    Records { path: String, sharers: u64, first: u64 },
    /// The same, each round under a lock that all sharers want.
    Locked { path: String, sharers: u64, first: u64 },
    /// A new file, by the direct path; closed.
    Direct,
    /// A new client with an outbox of its own, and a file; closed.
    Fresh,
    /// A file that is written, synced and cut.
    Cut,
    /// A file that is written, closed and removed.
    Remove,
    /// An empty file.
    Name,
    /// Looking at a file that others write.
    Look { path: String },
}

/// See the module.
pub struct Hand {
    registry: PathBuf,
    partition: Partition,
    /// Tells its files from others'.
    who: &'static str,
    work: Work,
    file: Option<File>,
    pub done: u64,
    /// How long the last call took.
    took: Duration,
}

/// Bytes of a round, different for everybody.
pub fn bytes_of(who: &str, round: u64, bytes: usize) -> Vec<u8> {
    let seed = who.bytes().fold(round, |seed, byte| seed.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte));
    pattern(bytes, seed)
}

impl Work {
    /// Records under a lock that two share.
    pub fn locked(path: &str, first: u64) -> Work {
        Work::Locked { path: path.to_owned(), sharers: 2, first }
    }

    /// Records to a file of one's own, or to one that two share.
    pub fn records(path: &str, first: Option<u64>) -> Work {
        let (sharers, first) = first.map_or((1, 0), |first| (2, first));
        Work::Records { path: path.to_owned(), sharers, first }
    }
}

impl Hand {
    pub fn new(stage: &Stage, who: &'static str, work: Work) -> Hand {
        let partition = stage.mount();
        let file = match &work {
            Work::Records { path, .. } | Work::Locked { path, .. } => {
                Some(partition.options().read(true).write(true).create(true).open(path).unwrap())
            }
            _ => None,
        };
        Hand {
            registry: stage.registry().path().to_owned(),
            partition,
            who,
            work,
            file,
            done: 0,
            took: Duration::ZERO,
        }
    }

    fn path(&self, round: u64) -> String {
        format!("{}-{round}", self.who)
    }

    fn call<T>(&mut self, call: impl FnOnce(&Hand) -> pario::Result<T>) -> pario::Result<T> {
        let (said, took) = timed(|| call(self));
        self.took = took;
        said
    }

    fn lock(&mut self) -> pario::Result<pario::RangeLock> {
        self.call(|hand| hand.file.as_ref().unwrap().lock(0..1, &pario::LockOptions::exclusive()))
    }

    /// One round. After an error the same one can be tried again.
    pub fn round(&mut self) -> pario::Result<()> {
        let (round, path) = (self.done, self.path(self.done));
        match self.work.clone() {
            Work::Records { sharers, first, .. } | Work::Locked { sharers, first, .. } => {
                let locked = matches!(self.work, Work::Locked { .. });
                let guard = if locked { Some(self.lock()?) } else { None };
                let at = (round * sharers + first) * REGION as u64;
                let data = bytes_of(self.who, round, REGION);
                for part in [0, REGION / 2] {
                    let half = &data[part..part + REGION / 2];
                    self.call(|hand| hand.file.as_ref().unwrap().write_at(at + part as u64, half))?;
                }
                self.call(|hand| hand.file.as_ref().unwrap().sync())?;
                if let Some(guard) = guard {
                    self.call(|_| guard.unlock())?;
                }
            }
            Work::Direct => {
                let options =
                    self.partition.options().read(true).write(true).create(true).stripe_bytes(256 << 10);
                let file = self.call(|_| options.open(path))?;
                let data = bytes_of(self.who, round, DIRECT);
                self.call(|_| file.write_at(0, &data))?;
                self.call(|_| file.close())?;
            }
            Work::Fresh => {
                let partition = Partition::mount_from(&Registry::open(&self.registry), NAME)?;
                let file = self.call(|_| partition.create(path))?;
                let data = bytes_of(self.who, round, REGION);
                self.call(|_| file.write_at(0, &data))?;
                self.call(|_| file.close())?;
            }
            Work::Cut => {
                let file = self.call(|hand| hand.partition.create(path))?;
                let data = bytes_of(self.who, round, 2 * CUT);
                self.call(|_| file.write_at(0, &data))?;
                self.call(|_| file.set_len(CUT as u64))?;
                self.call(|_| file.close())?;
            }
            Work::Remove => {
                let file = self.call(|hand| hand.partition.create(&path))?;
                // Of every other file the removal is answered when the servers have carried it out.
                let bytes = if round.is_multiple_of(2) { 2 * CUT } else { LARGE };
                self.call(|_| file.write_at(0, &vec![7; bytes]))?;
                self.call(|_| file.close())?;
                match self.call(|hand| hand.partition.remove_file(path)) {
                    Err(error) if error.code() == Code::NotFound => {}
                    other => other?,
                }
            }
            Work::Name => {
                self.call(|hand| hand.partition.create(path)?.close())?;
                self.call(|hand| hand.partition.sync_names())?;
            }
            Work::Look { path } => drop(self.call(|hand| hand.partition.metadata(path))?),
        }
        self.done += 1;
        Ok(())
    }

    /// Everything acknowledged is as it should be, seen by `reader`; what was under way is there in parts or not.
    pub fn check(&self, reader: &Partition) {
        for round in 0..self.done {
            self.check_round(reader, round);
        }
        if let Work::Records { path, sharers, first } | Work::Locked { path, sharers, first } = &self.work {
            let at = (self.done * sharers + first) * REGION as u64;
            let mut found = vec![0; REGION];
            let count = reader.open(path).unwrap().read_at(at, &mut found).unwrap();
            let expected = bytes_of(self.who, self.done, REGION);
            let foreign = found[..count].iter().zip(&expected).position(|(f, e)| *f != 0 && f != e);
            assert_eq!(foreign, None, "{} round {}: a byte nobody wrote", self.who, self.done);
        }
    }

    fn check_round(&self, reader: &Partition, round: u64) {
        let path = self.path(round);
        let (path, at, bytes, size) = match &self.work {
            Work::Records { path, sharers, first } | Work::Locked { path, sharers, first } => {
                (path.clone(), (round * sharers + first) * REGION as u64, REGION, None)
            }
            Work::Direct => (path, 0, DIRECT, Some(DIRECT)),
            Work::Fresh => (path, 0, REGION, Some(REGION)),
            Work::Cut => (path, 0, CUT, Some(CUT)),
            Work::Name => (path, 0, 0, Some(0)),
            Work::Remove => {
                assert_eq!(reader.metadata(path).unwrap_err().code(), Code::NotFound);
                return;
            }
            Work::Look { .. } => return,
        };
        let file = reader.open(&path).unwrap();
        if let Some(size) = size {
            assert_eq!(reader.metadata(&path).unwrap().size, size as u64, "{path}");
        }
        let mut found = vec![0; bytes];
        file.read_exact_at(at, &mut found).unwrap_or_else(|error| panic!("{path} round {round}: {error}"));
        let whole = if matches!(self.work, Work::Cut) { 2 * CUT } else { bytes };
        if let Some(what) = difference(&bytes_of(self.who, round, whole)[..bytes], &found) {
            panic!("{path} round {round}, which was acknowledged: {what}");
        }
    }

    /// Works on until a round is done; what stands in the way may be told of meanwhile.
    pub fn goes_on(&mut self) {
        let mut last = None;
        let done = until(|| match self.round() {
            Ok(()) => true,
            Err(error) => {
                let expected = matches!(error.code(), Code::Unreachable | Code::Lost | Code::ShuttingDown);
                assert!(expected, "{}: {:?} {error}", self.who, error.code());
                last = Some(error);
                false
            }
        });
        assert!(done, "{} does not get on: {last:?}", self.who);
    }
}

/// A hand that works on a thread of its own.
pub struct Busy {
    shared: Arc<Progress>,
    thread: JoinHandle<(Hand, Option<pario::Error>)>,
}

#[derive(Default)]
struct Progress {
    over: AtomicBool,
    done: AtomicU64,
}

impl Busy {
    /// Works until it fails or is called off.
    pub fn start(mut hand: Hand) -> Busy {
        let shared = Arc::new(Progress::default());
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

    /// Gets some rounds further.
    #[track_caller]
    pub fn gets_on(&self) {
        let before = self.shared.done.load(Ordering::Relaxed);
        let further = || before + 3 < self.shared.done.load(Ordering::Relaxed);
        assert!(until(|| further() || self.thread.is_finished()) && further(), "somebody does not get on");
    }

    /// Is called off; no call failed.
    #[track_caller]
    pub fn end(self) -> Hand {
        let (hand, error) = self.join();
        assert_eq!(error, None, "{}", hand.who);
        hand
    }

    /// Is called off, and may have been told of the server meanwhile, in time.
    #[track_caller]
    pub fn end_or_told_of(self, server: usize) -> Hand {
        let (hand, error) = self.join();
        if let Some(error) = error {
            hand.assert_told(server, &error);
        }
        hand
    }

    /// Works until it is told of the server, in time.
    #[track_caller]
    pub fn told_of(self, server: usize) -> Hand {
        assert!(until(|| self.thread.is_finished()), "whoever needs server {server} is told");
        let (hand, error) = self.join();
        hand.assert_told(server, &error.expect("only an error ends it"));
        hand
    }

    fn join(self) -> (Hand, Option<pario::Error>) {
        self.shared.over.store(true, Ordering::Relaxed);
        assert!(until(|| self.thread.is_finished()), "a call does not return");
        self.thread.join().unwrap()
    }
}

impl Hand {
    #[track_caller]
    fn assert_told(&self, server: usize, error: &pario::Error) {
        assert!(error.to_string().contains(&format!("server {server}")), "{}: {error}", self.who);
        // Whoever looks waits for living writers first, and these for the server.
        let looks = matches!(self.work, Work::Look { .. });
        assert!(looks || self.took < TOLD_LIMIT, "{}: {:?}: {error}", self.who, self.took);
    }
}
