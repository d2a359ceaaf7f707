//! Memory of a waiting thread, lent to other threads of the process.
//!
//! The owner calls [`LentSlot::lend`] and waits inside it. Other threads [`LentSlot::borrow`] the memory meanwhile, read its sources or claim
//! parts of its targets. The call returns after the last borrower has given the memory back, also when the owner panics.
//!
//! Never: hands the same byte of a target to two borrowers at once; keeps an address after the loan has ended. Always: a slot has at most one
//! owner; a borrow either holds back the end of the loan, or finds no loan.

#![expect(unsafe_code, reason = "addresses of another thread's memory")]

use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::ops::Range;

#[cfg(loom)]
use loom::sync::atomic::{AtomicPtr, AtomicU32};
#[cfg(loom)]
use loom::sync::{Condvar, Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicPtr, AtomicU32};
#[cfg(not(loom))]
use std::sync::{Condvar, Mutex, MutexGuard};

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use crate::sync::{FenceSite, is_strong, publishing};

/// The memory is lent.
const OPEN: u32 = 1 << 31;
/// An owner uses the slot.
const TAKEN: u32 = 1 << 30;
/// The borrowers' part of the state.
const BORROWERS: u32 = TAKEN - 1;

/// Memory that a thread lends.
#[derive(Debug)]
pub enum LentMemory<'a> {
    /// None: the thread only takes part.
    Nothing,
    /// Bytes to be read by borrowers.
    Sources(&'a [IoSlice<'a>]),
    /// Memory to be filled by borrowers.
    Targets(TargetList<'a>),
}

/// Buffers to be filled, one after the other.
#[derive(Debug)]
pub struct TargetList<'a> {
    first: *const libc::iovec,
    count: usize,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: the list gives access to bytes only through claims, which are exclusive, or to their owner; addresses and lengths are constant.
unsafe impl Send for TargetList<'_> {}
// SAFETY: as above.
unsafe impl Sync for TargetList<'_> {}

impl<'a> TargetList<'a> {
    /// The buffers of a list.
    #[must_use]
    pub fn new(list: &'a mut [IoSliceMut<'_>]) -> TargetList<'a> {
        // An `IoSliceMut` has the layout of an `iovec`, as its documentation guarantees.
        TargetList { first: list.as_ptr().cast(), count: list.len(), memory: PhantomData }
    }

    /// The buffers of a list of C.
    ///
    /// # Safety
    /// For as long as `'a`: `first` points to `count` constant vectors, and the memory of each is writable and not used by other code; several
    /// lists of one memory are allowed if at most one of them is claimed from.
    #[must_use]
    pub unsafe fn from_raw(first: *const libc::iovec, count: usize) -> TargetList<'a> {
        TargetList { first, count, memory: PhantomData }
    }

    /// Number of buffers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no buffer.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of a buffer.
    ///
    /// # Panics
    /// If there is no such buffer.
    #[must_use]
    pub fn bytes(&self, buffer: usize) -> usize {
        self.vector(buffer).iov_len
    }

    /// Address of a buffer, for comparison.
    ///
    /// # Panics
    /// If there is no such buffer.
    #[must_use]
    pub fn address(&self, buffer: usize) -> usize {
        self.vector(buffer).iov_base.addr()
    }

    fn vector(&self, buffer: usize) -> libc::iovec {
        assert!(buffer < self.count, "buffer {buffer} of {}", self.count);
        // SAFETY: below the count, and the list is alive for `'a`.
        let at = unsafe { self.first.add(buffer) };
        // SAFETY: as above.
        unsafe { *at }
    }
}

/// A range of a target that one borrower fills.
#[derive(Clone, PartialEq, Eq, Debug)]
struct TargetClaim {
    buffer: usize,
    range: Range<usize>,
    borrower: u32,
}

/// A place where one thread after the other lends memory.
#[derive(Debug, Default)]
pub struct LentSlot {
    /// [`OPEN`], [`TAKEN`] and the number of borrowers.
    state: AtomicU32,
    /// On the owner's stack while the state is open or has borrowers.
    memory: AtomicPtr<LentMemory<'static>>,
    claims: Mutex<ClaimTable>,
    /// Held to sleep, and to wake, when the last borrower ends.
    sleep: Mutex<()>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct ClaimTable {
    claims: Vec<TargetClaim>,
    next_borrower: u32,
}

impl LentSlot {
    /// An empty slot.
    #[must_use]
    pub fn new() -> LentSlot {
        LentSlot::default()
    }

    /// Lends `memory` while `during` runs, and returns when no borrower uses it any more.
    ///
    /// # Panics
    /// If another thread is lending through this slot.
    pub fn lend<R>(&self, memory: &LentMemory<'_>, during: impl FnOnce() -> R) -> R {
        let free = self.state.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed);
        assert!(free.is_ok(), "a slot lends one memory at a time");
        let at: *const LentMemory<'_> = memory;
        self.memory.store(at.cast::<LentMemory<'static>>().cast_mut(), Ordering::Relaxed);
        self.state.store(TAKEN | OPEN, publishing(FenceSite::Lent));
        let _end = LendingEnd(self);
        during()
    }

    /// Borrows the memory that is lent now; `None` if there is none.
    pub fn borrow(&self) -> Option<LentBorrow<'_>> {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & OPEN != 0 {
            assert!(state & BORROWERS < BORROWERS, "too many borrowers");
            // Pairs with the store that opened the loan.
            match self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    let mut table = lock(&self.claims);
                    table.next_borrower = table.next_borrower.wrapping_add(1);
                    return Some(LentBorrow { slot: self, number: table.next_borrower });
                }
                Err(now) => state = now,
            }
        }
        None
    }

    /// Ends the loan: no new borrowers, and none of the old ones is left.
    fn end(&self) {
        let mut state = self.state.fetch_and(!OPEN, Ordering::Acquire) & !OPEN;
        if is_strong(FenceSite::LentWait) && state & BORROWERS != 0 {
            let mut sleep = lock(&self.sleep);
            loop {
                // Pairs with the borrower's subtraction.
                state = self.state.load(Ordering::Acquire);
                if state & BORROWERS == 0 {
                    break;
                }
                sleep = self.returned.wait(sleep).unwrap_or_else(PoisonError::into_inner);
            }
        }
        self.memory.store(std::ptr::null_mut(), Ordering::Relaxed);
        // Pairs with the exchange of the next owner.
        self.state.store(0, Ordering::Release);
    }
}

/// Ends a loan, also when its owner panics.
struct LendingEnd<'s>(&'s LentSlot);

impl Drop for LendingEnd<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Memory of another thread; given back when dropped.
#[derive(Debug)]
pub struct LentBorrow<'s> {
    slot: &'s LentSlot,
    number: u32,
}

impl LentBorrow<'_> {
    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &LentMemory<'_> {
        let memory = self.slot.memory.load(Ordering::Relaxed);
        assert!(!memory.is_null(), "an open loan has its memory");
        // SAFETY: the owner's value lives until `lend` returns, which this borrow holds back; it is constant. The lifetime is shortened to
        // that of this borrow.
        unsafe { &*memory }
    }

    /// The lent sources; none if targets are lent.
    #[must_use]
    pub fn sources(&self) -> &[IoSlice<'_>] {
        match self.memory() {
            LentMemory::Sources(sources) => sources,
            LentMemory::Nothing | LentMemory::Targets(_) => &[],
        }
    }

    /// Claims a range of a target until this borrow is dropped.
    ///
    /// # Panics
    /// If no target is lent, or the range is not inside of the buffer, or any of it is claimed already.
    #[must_use]
    #[expect(clippy::mut_from_ref, reason = "the claim makes the range exclusive")]
    pub fn claim(&self, buffer: usize, range: Range<usize>) -> &mut [u8] {
        let LentMemory::Targets(targets) = self.memory() else { panic!("a target is lent") };
        let vector = targets.vector(buffer);
        assert!(range.start <= range.end && range.end <= vector.iov_len, "{range:?} of {}", vector.iov_len);
        if range.is_empty() {
            return &mut [];
        }
        let mut table = lock(&self.slot.claims);
        let overlaps = |claim: &TargetClaim| {
            claim.buffer == buffer && claim.range.start < range.end && range.start < claim.range.end
        };
        assert!(!table.claims.iter().any(overlaps), "bytes {range:?} of buffer {buffer} are claimed already");
        table.claims.push(TargetClaim { buffer, range: range.clone(), borrower: self.number });
        drop(table);
        // SAFETY: inside of the buffer, as checked.
        let start = unsafe { vector.iov_base.cast::<u8>().add(range.start) };
        // SAFETY: the memory was lent for writing, its owner waits, and the claim excludes other borrowers until this one is dropped.
        unsafe { std::slice::from_raw_parts_mut(start, range.len()) }
    }
}

impl Drop for LentBorrow<'_> {
    fn drop(&mut self) {
        lock(&self.slot.claims).claims.retain(|claim| claim.borrower != self.number);
        // Pairs with the owner's load: what this borrower did happens before the owner goes on.
        let before = self.slot.state.fetch_sub(1, publishing(FenceSite::LentBack));
        if before & OPEN == 0 && before & BORROWERS == 1 {
            // Taken and released: an owner that saw a borrower under the lock sleeps by now.
            drop(lock(&self.slot.sleep));
            self.slot.returned.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn others_read_and_fill_the_memory_of_a_waiting_thread() {
        let slot = LentSlot::new();
        assert!(slot.borrow().is_none());
        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        slot.lend(&LentMemory::Sources(&parts), || {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let borrow = slot.borrow().expect("lent");
                    assert_eq!(&borrow.sources()[1][..], b"cde");
                });
            });
        });
        assert!(slot.borrow().is_none());
        let (mut one, mut two) = ([0; 4], [0; 2]);
        let mut list = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
        slot.lend(&LentMemory::Targets(TargetList::new(&mut list)), || {
            std::thread::scope(|scope| {
                for half in 0..2u8 {
                    let slot = &slot;
                    scope.spawn(move || {
                        let borrow = slot.borrow().expect("lent");
                        let at = usize::from(half) * 2;
                        borrow.claim(0, at..at + 2).fill(half + 1);
                        if half == 1 {
                            borrow.claim(1, 0..2).fill(7);
                        }
                    });
                }
            });
        });
        assert_eq!((one, two), ([1, 1, 2, 2], [7, 7]));
    }

    #[test]
    fn an_owner_that_panics_leaves_after_its_borrowers() {
        let slot = Arc::new(LentSlot::new());
        let (told, hear) = channel();
        let (release, released) = channel::<()>();
        let borrower = {
            let slot = Arc::clone(&slot);
            let (start, started) = channel::<()>();
            let thread = std::thread::spawn(move || {
                started.recv().unwrap();
                let borrow = slot.borrow().expect("lent");
                told.send(()).unwrap();
                released.recv().unwrap();
                assert_eq!(&borrow.sources()[0][..], b"mine");
            });
            (start, thread)
        };
        let owner = std::thread::spawn({
            let slot = Arc::clone(&slot);
            move || {
                let bytes = b"mine".to_vec();
                let parts = [IoSlice::new(&bytes)];
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    slot.lend(&LentMemory::Sources(&parts), || {
                        borrower.0.send(()).unwrap();
                        hear.recv().unwrap();
                        // The borrower may be released from now on, while the owner unwinds.
                        release.send(()).unwrap();
                        panic!("an owner that panics");
                    })
                }));
                assert!(result.is_err());
                borrower.1.join().unwrap();
            }
        });
        owner.join().unwrap();
        assert!(slot.borrow().is_none());
    }

    #[test]
    #[should_panic(expected = "claimed already")]
    fn a_byte_is_claimed_once() {
        let slot = LentSlot::new();
        let mut bytes = [0; 8];
        let mut list = [IoSliceMut::new(&mut bytes)];
        slot.lend(&LentMemory::Targets(TargetList::new(&mut list)), || {
            let (first, second) = (slot.borrow().expect("lent"), slot.borrow().expect("lent"));
            first.claim(0, 0..5).fill(1);
            drop(slot.borrow());
            let _ = second.claim(0, 4..8);
        });
    }
}
