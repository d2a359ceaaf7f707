//! Models of lent memory: the code of `lent` over loom's atomics, in which every order of steps is tried.
//!
//! Each model must hold, and must fail with each of its deliberate bugs: sites of `pario_sys::sync` that are weakened. Runs with
//! `RUSTFLAGS="--cfg loom" cargo test -p pario-sys --test models`; `./test` does so.

#![cfg(loom)]

use std::io::{IoSlice, IoSliceMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use loom::cell::UnsafeCell;
use loom::thread;
use pario_sys::lent::{LentMemory, LentSlot, TargetList};
use pario_sys::sync::{FenceSite, weaken};

/// Sites are weakened for all models of the process.
static ONE: Mutex<()> = Mutex::new(());

/// The model holds, and with each bug it does not.
fn check(model: fn(), bugs: &[FenceSite]) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let explore = || {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    };
    weaken(&[]);
    if let Err(panic) = catch_unwind(explore) {
        resume_unwind(panic);
    }
    for bug in bugs {
        weaken(Box::leak(Box::new([*bug])));
        let found = catch_unwind(AssertUnwindSafe(explore)).is_err();
        weaken(&[]);
        assert!(found, "the model does not find {bug:?}");
    }
}

/// A slot, and a cell that stands for the lent memory: loom tells when two threads use it at once.
#[derive(Default)]
struct Lent {
    slot: LentSlot,
    memory: UnsafeCell<u64>,
}

// SAFETY: loom checks each access.
#[expect(unsafe_code, reason = "a cell of loom is used by two threads")]
unsafe impl Sync for Lent {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "a cell of loom is used by two threads")]
unsafe impl Send for Lent {}

impl Lent {
    fn read(&self) -> u64 {
        // SAFETY: loom checks that no thread writes meanwhile.
        #[expect(unsafe_code, reason = "a cell of loom")]
        self.memory.with(|value| unsafe { *value })
    }

    fn write(&self, value: u64) {
        // SAFETY: loom checks that no other thread uses it meanwhile.
        #[expect(unsafe_code, reason = "a cell of loom")]
        self.memory.with_mut(|memory| unsafe { *memory = value });
    }
}

#[test]
fn an_owner_goes_on_after_its_borrowers() {
    fn model() {
        let lent = Arc::new(Lent::default());
        let borrowers: Vec<_> = (0..2)
            .map(|_| {
                let lent = Arc::clone(&lent);
                thread::spawn(move || {
                    if let Some(borrow) = lent.slot.borrow() {
                        assert_eq!(&borrow.sources()[0][..], b"x");
                        assert_eq!(lent.read(), 1);
                    }
                })
            })
            .collect();
        let parts = [IoSlice::new(b"x")];
        lent.write(1);
        lent.slot.lend(&LentMemory::Sources(&parts), thread::yield_now);
        lent.write(2);
        for borrower in borrowers {
            borrower.join().expect("no panic");
        }
    }
    check(model, &[FenceSite::Lent, FenceSite::LentBack, FenceSite::LentWait]);
}

#[test]
fn a_slot_serves_one_owner_after_the_other() {
    fn model() {
        let lent = Arc::new(Lent::default());
        let other = Arc::clone(&lent);
        let borrower = thread::spawn(move || {
            for _ in 0..2 {
                if let Some(borrow) = other.slot.borrow() {
                    let expected = other.read();
                    assert_eq!(borrow.sources()[0].len() as u64, expected);
                }
            }
        });
        for bytes in [1u8, 2] {
            lent.write(u64::from(bytes));
            let memory = vec![bytes; usize::from(bytes)];
            lent.slot.lend(&LentMemory::Sources(&[IoSlice::new(&memory)]), thread::yield_now);
        }
        borrower.join().expect("no panic");
    }
    check(model, &[FenceSite::Lent, FenceSite::LentBack, FenceSite::LentWait]);
}

#[test]
fn claimed_targets_are_filled_before_their_owner_reads_them() {
    fn model() {
        let lent = Arc::new(Lent::default());
        let other = Arc::clone(&lent);
        let borrower = thread::spawn(move || {
            other.slot.borrow().map(|borrow| {
                borrow.claim(0, 1..3).fill(7);
                other.write(7);
            })
        });
        let mut bytes = [0; 4];
        let mut list = [IoSliceMut::new(&mut bytes)];
        lent.slot.lend(&LentMemory::Targets(TargetList::new(&mut list)), thread::yield_now);
        let filled = lent.read() == 7;
        assert_eq!(bytes, if filled { [0, 7, 7, 0] } else { [0; 4] });
        assert_eq!(borrower.join().expect("no panic").is_some(), filled);
    }
    check(model, &[FenceSite::LentBack, FenceSite::LentWait]);
}
