//! [`crate::shared`] in a model: every word of the memory is a loom atomic; bytes are words that are loaded and stored with relaxed
//! order. A sleep on a word that no thread ends is a deadlock, which loom reports.
//!
//! Atomics must be created before threads begin, and most words of a segment are never touched: so only words touched in an earlier
//! exploration are created, and an exploration in which [`known_words`] grew is void and must be repeated.
//!
//! Never: holds a lock of its own while loom may switch threads.

#![expect(unsafe_code, reason = "a piece is made of memory that the model keeps")]

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::sync::{Condvar, Mutex as ModelMutex};

use crate::piece::MemoryPiece;
use crate::registry::{Named, find, name};

const WORD: usize = 8;

/// What a mapping may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapAccess {
    /// Loads only.
    ReadOnly,
    /// Loads and stores.
    ReadWrite,
}

/// Sizes of a segment that [`SharedMemory::attach`] accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttachLimit {
    /// Shortest.
    pub bytes_min: usize,
    /// Longest.
    pub bytes_max: usize,
}

/// Why a descriptor from a peer was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The descriptor is unknown in this model.
    #[error("mapping the segment: {0}")]
    Os(#[from] io::Error),
    /// Shorter or longer than it may be.
    #[error("the segment has {bytes} bytes, outside {} to {}", .limit.bytes_min, .limit.bytes_max)]
    Size {
        /// Its length.
        bytes: u64,
        /// The accepted limit.
        limit: AttachLimit,
    },
}

/// How a [`SharedMemory::futex_wait`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FutexWait {
    /// By a wake, or spuriously: check the word again.
    Woken,
    /// The time is over.
    TimedOut,
    /// The word differed from the expected value, so there was no wait.
    Changed,
}

struct Memory {
    len: usize,
    large: Mutex<HashMap<usize, Arc<AtomicU64>>>,
    small: Mutex<HashMap<usize, Arc<AtomicU32>>>,
    /// Threads sleep on a word of this memory under this lock, as in the kernel.
    asleep: ModelMutex<()>,
    woken: Condvar,
}

/// Memory shared with other threads of the model.
pub struct SharedMemory {
    memory: Arc<Memory>,
    access: MapAccess,
    _name: Option<Named>,
    pieces: Mutex<Vec<Box<[u8]>>>,
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedMemory").field("len", &self.memory.len).finish_non_exhaustive()
    }
}

/// Words that were touched, of any segment of some length: where, and how many bytes.
static KNOWN: Mutex<BTreeSet<(usize, usize, usize)>> = Mutex::new(BTreeSet::new());

/// How many words models have touched so far.
#[must_use]
pub fn known_words() -> usize {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).len()
}

fn of<T>(
    words: &Mutex<HashMap<usize, Arc<T>>>,
    (len, at, bytes): (usize, usize, usize),
    make: impl FnOnce() -> T,
) -> Arc<T> {
    let mut words = words.lock().unwrap_or_else(PoisonError::into_inner);
    let word = words.entry(at).or_insert_with(|| {
        KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert((len, at, bytes));
        Arc::new(make())
    });
    Arc::clone(word)
}

impl SharedMemory {
    /// Makes a segment of `bytes`; the descriptor is for the peer.
    pub fn create(_name: &str, bytes: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        let memory = Arc::new(Memory {
            len: bytes.next_multiple_of(4096),
            large: Mutex::default(),
            small: Mutex::default(),
            asleep: ModelMutex::new(()),
            woken: Condvar::new(),
        });
        let (named, fd) = name(Arc::clone(&memory))?;
        let access = MapAccess::ReadWrite;
        let shared = SharedMemory { memory, access, _name: Some(named), pieces: Mutex::default() };
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (_, at, bytes) in known.into_iter().filter(|(len, _, _)| *len == shared.len()) {
            if bytes == WORD { drop(shared.large(at)) } else { drop(shared.small(at)) }
        }
        Ok((shared, fd))
    }

    /// The same: a model's memory is present from the start.
    pub fn create_in_steps(name: &str, bytes: usize, _first: usize) -> io::Result<(SharedMemory, OwnedFd)> {
        SharedMemory::create(name, bytes)
    }

    /// No effect, as above.
    pub fn make_present(&self, _fd: &OwnedFd, _range: std::ops::Range<usize>) -> io::Result<()> {
        Ok(())
    }

    /// The segment that a peer made.
    pub fn attach(fd: OwnedFd, access: MapAccess, limit: AttachLimit) -> Result<SharedMemory, AttachError> {
        let memory: Arc<Memory> = find(&fd)?;
        if memory.len < limit.bytes_min || limit.bytes_max < memory.len {
            return Err(AttachError::Size { bytes: memory.len as u64, limit });
        }
        Ok(SharedMemory { memory, access, _name: None, pieces: Mutex::default() })
    }

    /// Bytes mapped.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Loads the word at `at`, a multiple of 8.
    #[must_use]
    pub fn load_u64(&self, at: usize, ordering: Ordering) -> u64 {
        self.large(at).load(ordering)
    }

    /// Stores the word at `at`, a multiple of 8.
    pub fn store_u64(&self, at: usize, value: u64, ordering: Ordering) {
        self.assert_writable();
        self.large(at).store(value, ordering);
    }

    /// Adds to the word at `at`, a multiple of 8; returns the previous value.
    pub fn fetch_add_u64(&self, at: usize, value: u64, ordering: Ordering) -> u64 {
        self.assert_writable();
        self.large(at).fetch_add(value, ordering)
    }

    /// Loads the word at `at`, a multiple of 4.
    #[must_use]
    pub fn load_u32(&self, at: usize, ordering: Ordering) -> u32 {
        self.small(at).load(ordering)
    }

    /// Stores the word at `at`, a multiple of 4.
    pub fn store_u32(&self, at: usize, value: u32, ordering: Ordering) {
        self.assert_writable();
        self.small(at).store(value, ordering);
    }

    /// Copies bytes out, word by word in no order.
    pub fn read(&self, at: usize, target: &mut [u8]) {
        for (place, byte) in (0..).zip(target.chunks_mut(WORD)) {
            let start = at + place * WORD;
            assert!(start.is_multiple_of(WORD), "models copy whole words");
            let word = self.load_u64(start, Ordering::Relaxed).to_le_bytes();
            byte.copy_from_slice(&word[..byte.len()]);
        }
    }

    /// Copies bytes in, word by word in no order.
    pub fn write(&self, at: usize, source: &[u8]) {
        for (place, bytes) in (0..).zip(source.chunks(WORD)) {
            let start = at + place * WORD;
            assert!(start.is_multiple_of(WORD) && bytes.len() == WORD, "models copy whole words");
            let word = u64::from_le_bytes(bytes.try_into().expect("a whole word"));
            self.store_u64(start, word, Ordering::Relaxed);
        }
    }

    /// The same: models have no caches.
    pub fn write_once(&self, at: usize, source: &[u8]) {
        self.write(at, source);
    }

    /// Bytes as they are now.
    #[must_use]
    pub fn piece(&self, range: Range<usize>) -> MemoryPiece<'_> {
        let mut copy = vec![0; range.len()].into_boxed_slice();
        self.read(range.start, &mut copy);
        let (start, len) = (copy.as_ptr(), copy.len());
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
        // SAFETY: the copy is kept, unmoved and unchanged, as long as `self` is.
        unsafe { MemoryPiece::from_raw(start, len) }
    }

    /// Sleeps while the word at `at` is `expected`, until a wake: in a model no time helps.
    #[must_use]
    pub fn futex_wait(&self, at: usize, expected: u32, _timeout: Option<Duration>) -> FutexWait {
        let asleep = self.memory.asleep.lock().expect("models do not panic under a lock");
        // As in the kernel: reads the last stored value, from any thread.
        if self.small(at).fetch_add(0, Ordering::AcqRel) != expected {
            return FutexWait::Changed;
        }
        drop(self.memory.woken.wait(asleep).expect("models do not panic under a lock"));
        FutexWait::Woken
    }

    /// Wakes all sleepers of this memory; each checks its word again.
    pub fn futex_wake(&self, _at: usize, _count: u32) -> usize {
        let _asleep = self.memory.asleep.lock().expect("models do not panic under a lock");
        self.memory.woken.notify_all();
        0
    }

    /// No effect in a model.
    pub fn prefault(&self, _range: Range<usize>) {}

    fn large(&self, at: usize) -> Arc<AtomicU64> {
        assert!(at.is_multiple_of(8) && at + 8 <= self.memory.len, "no word at {at}");
        of(&self.memory.large, (self.memory.len, at, 8), || AtomicU64::new(0))
    }

    fn small(&self, at: usize) -> Arc<AtomicU32> {
        assert!(at.is_multiple_of(4) && at + 4 <= self.memory.len, "no word at {at}");
        of(&self.memory.small, (self.memory.len, at, 4), || AtomicU32::new(0))
    }

    fn assert_writable(&self) {
        assert_eq!(self.access, MapAccess::ReadWrite, "store into a read-only mapping");
    }
}
