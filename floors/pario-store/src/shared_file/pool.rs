//! The memory of all files of one server: what is in it, who has room reserved, and who waits for room.
//!
//! ```text
//!  limit = blocks in the ledger + room reserved by requests that have not made their blocks yet
//! ```
//! Never: gives a request a part of the room that it needs, so that no two wait for each other's; waits while holding a block. Always: a
//! request that has its room ends without asking for more; what nobody can make room for goes past the cache.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use pario_core::InodeId;

use crate::cache::{Key, Ledger, SharedBlock};
use crate::sync::lock;

/// Whoever waits for room looks again at least so often.
const LOOK: Duration = Duration::from_millis(50);

/// Blocks that were thrown out are listed up to so many.
const GONE_MAX: usize = 1 << 14;

/// See the module.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    freed: Condvar,
    /// Held while room is looked for: whoever needs much is not overtaken for ever.
    turn: Mutex<()>,
    limit: AtomicU64,
}

/// What the pool's lock guards.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) ledger: Ledger,
    reserved: u64,
    /// Requests with room and writings-out under way: when they end there may be room.
    users: usize,
    /// Files whose last staging failed: not tried again before somebody has heard of it.
    pub(super) stuck: HashSet<InodeId>,
    /// Blocks that were thrown out, where somebody wants to know; drained by whoever does.
    pub(super) gone: Option<Gone>,
}

/// Blocks that were thrown out.
#[derive(Debug, Default)]
pub(super) struct Gone {
    pub(super) keys: Vec<Key>,
    /// There were more than are listed.
    pub(super) more: bool,
}

impl Gone {
    pub(super) fn add(&mut self, key: Key) {
        if self.keys.len() < GONE_MAX {
            self.keys.push(key);
        } else {
            self.more = true;
        }
    }
}

impl State {
    /// The block that was written longest ago and can be written out.
    pub(super) fn oldest(&self) -> Option<Key> {
        self.ledger.oldest_dirty(|key| !self.stuck.contains(&key.inode))
    }

    /// The block that was written longest ago and can be written out, if that was not after `mark`.
    pub(super) fn quiet(&self, mark: u64) -> Option<Key> {
        self.ledger.quiet(mark, |key| !self.stuck.contains(&key.inode))
    }

    fn shrink_to(&mut self, limit: u64) -> bool {
        let State { ledger, gone, .. } = self;
        ledger.shrink_to(limit, |key| {
            if let Some(gone) = gone {
                gone.add(key);
            }
        })
    }

    /// Whether blocks were thrown out that somebody wants to know of.
    pub(super) fn has_gone(&self) -> bool {
        self.gone.as_ref().is_some_and(|gone| !gone.keys.is_empty())
    }
}

/// Room for the blocks of one request; what it did not use is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Room<'a> {
    pool: &'a Pool,
    left: u64,
}

/// Somebody writes blocks out.
#[derive(Debug)]
pub(super) struct Using<'a>(&'a Pool);

impl Pool {
    pub(super) fn new(limit: u64) -> Pool {
        Pool {
            state: Mutex::default(),
            freed: Condvar::new(),
            turn: Mutex::default(),
            limit: AtomicU64::new(limit),
        }
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Release);
        self.freed.notify_all();
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Room for `bytes` of blocks; `write_out` writes a dirty block and its neighbours out. `None`: there is none to be had, since it is
    /// more than all, or since what fills the pool cannot be written out.
    pub(super) fn reserve(&self, bytes: u64, write_out: impl Fn(Key)) -> Option<Room<'_>> {
        let _turn = lock(&self.turn);
        loop {
            let limit = self.limit();
            if limit < bytes {
                return None;
            }
            let mut state = lock(&self.state);
            let rest = limit.checked_sub(state.reserved + bytes);
            if rest.is_some_and(|rest| state.shrink_to(rest)) {
                return Some(self.grant(&mut state, bytes));
            }
            let oldest = rest.and_then(|_| state.oldest());
            if let Some(key) = oldest {
                drop(state);
                write_out(key);
            } else if state.users == 0 {
                return None;
            } else {
                drop(self.freed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// Room for `bytes` of blocks, if there is some without anybody's waiting or writing.
    pub(super) fn reserve_at_once(&self, bytes: u64) -> Option<Room<'_>> {
        let mut state = lock(&self.state);
        let rest = self.limit().checked_sub(state.reserved + bytes)?;
        let room = state.shrink_to(rest);
        room.then(|| self.grant(&mut state, bytes))
    }

    fn grant(&self, state: &mut State, bytes: u64) -> Room<'_> {
        state.reserved += bytes;
        state.users += 1;
        Room { pool: self, left: bytes }
    }

    /// Says that blocks are being written out until it is dropped.
    pub(super) fn using(&self) -> Using<'_> {
        lock(&self.state).users += 1;
        Using(self)
    }

    fn end_use(&self, left: u64) {
        let mut state = lock(&self.state);
        state.reserved -= left;
        state.users -= 1;
        drop(state);
        self.freed.notify_all();
    }
}

impl Room<'_> {
    /// The block, made in this room if it is not there. `None`: there is no memory for it, and the pool is smaller from now on.
    pub(super) fn pin(&mut self, key: Key, block_bytes: usize) -> Option<SharedBlock> {
        let mut state = lock(&self.pool.state);
        let before = state.ledger.bytes();
        let pinned = state.ledger.try_pin(key, block_bytes);
        if pinned.is_none() {
            tracing::warn!(cached_bytes = before, "no memory for more blocks: the cache stays at this size");
            self.pool.limit.fetch_min(before, Ordering::AcqRel);
        }
        let made = (state.ledger.bytes() - before).min(self.left);
        self.left -= made;
        state.reserved -= made;
        pinned
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.pool.end_use(self.left);
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.0.end_use(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64) -> Key {
        Key { inode: InodeId(1), index }
    }

    #[test]
    fn a_request_gets_all_its_room_or_waits_for_all_of_it() {
        let pool = Pool::new(40);
        let mut first = pool.reserve(30, |_| ()).unwrap();
        let pinned = first.pin(key(0), 10).unwrap();
        assert!(pool.reserve_at_once(20).is_none(), "30 of 40 are taken");
        assert!(pool.reserve(41, |_| ()).is_none(), "more than all");
        std::thread::scope(|scope| {
            let second = scope.spawn(|| pool.reserve(40, |_| ()).is_some());
            drop((pinned, first));
            assert!(second.join().unwrap());
        });
        assert_eq!(pool.state().ledger.bytes(), 0, "what the first left made way");
    }

    #[test]
    fn without_memory_the_pool_runs_smaller() {
        let pool = Pool::new(u64::MAX);
        let mut room = pool.reserve(100, |_| ()).unwrap();
        let kept = room.pin(key(0), 10).unwrap();
        assert!(room.pin(key(1), usize::MAX / 4).is_none());
        assert!(room.pin(key(0), 10).is_some(), "what is there stays");
        drop((room, kept));
        assert_eq!((pool.limit(), pool.state().ledger.bytes()), (10, 10));
        assert!(pool.reserve(11, |_| ()).is_none() && pool.reserve(10, |_| ()).is_some());
    }

    #[test]
    fn dirty_blocks_are_written_out_for_room_and_stuck_ones_never_waited_for() {
        let pool = Pool::new(20);
        drop(pool.reserve(10, |_| ()).unwrap().pin(key(7), 10).unwrap());
        pool.state().ledger.set_dirty(key(7), true);
        let clean = |key: Key| pool.state().ledger.set_dirty(key, false);
        drop(pool.reserve(20, clean).unwrap().pin(key(8), 10).unwrap());
        assert!(pool.state().ledger.find(key(7)).is_none());
        pool.state().ledger.set_dirty(key(8), true);
        pool.state().stuck.insert(InodeId(1));
        assert!(pool.reserve(20, clean).is_none());
        assert!(pool.reserve(10, clean).is_some());
    }
}
