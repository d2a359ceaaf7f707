//! The outbox's shared memory: words of its head page, heads and data of records, and memory that is allocated as it is used.
//!
//! Never: decides which bytes are free; that is `ring.rs`. Always: memory is allocated before it is written to, so that a full node is an
//! error of the writer and not a SIGBUS.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use pario_core::limits::{LARGE_PAGE_BYTES, OUTBOX_BYTES_MAX, OUTBOX_BYTES_MIN};
use pario_core::{Code, Fault, Nanos};
use pario_sys::shared::SharedMemory;
use pario_sys::sync::{FenceSite, fence, publishing};

use super::record::{COMMITTED_AT, RecordHead};
use super::{OUTBOX_HEAD_BYTES, OUTBOX_MAGIC, RECORD_HEAD_BYTES, outbox_at};

/// See the module.
#[derive(Debug)]
pub(super) struct OutboxMemory {
    segment: SharedMemory,
    descriptor: OwnedFd,
    capacity: u64,
    /// Bytes of the ring with allocated memory.
    allocated: AtomicU64,
}

impl OutboxMemory {
    pub(super) fn create(bytes: usize) -> std::io::Result<OutboxMemory> {
        let capacity = bytes.clamp(OUTBOX_BYTES_MIN, OUTBOX_BYTES_MAX).next_multiple_of(4096);
        // A process that writes little needs little, and its first write does not wait for all.
        let first = page_end(1, capacity as u64);
        let (segment, descriptor) = SharedMemory::create_in_steps(
            "pario-outbox",
            OUTBOX_HEAD_BYTES + capacity,
            segment_offset(first),
        )?;
        segment.store_u64(outbox_at::CAPACITY, capacity as u64, Ordering::Relaxed);
        segment.store_u64(outbox_at::MAGIC, OUTBOX_MAGIC, Ordering::Release);
        Ok(OutboxMemory { segment, descriptor, capacity: capacity as u64, allocated: AtomicU64::new(first) })
    }

    pub(super) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Adds to a counter of the head page.
    pub(super) fn raise(&self, word: usize, ordering: Ordering) {
        self.segment.fetch_add_u64(word, 1, ordering);
    }

    /// Undoes [`OutboxMemory::raise`].
    pub(super) fn lower(&self, word: usize) {
        self.segment.fetch_add_u64(word, u64::MAX, Ordering::Relaxed);
    }

    /// Commits the records before `tail`.
    pub(super) fn set_tail(&self, tail: u64) {
        self.segment.store_u64(outbox_at::TAIL, tail, publishing(FenceSite::Tail));
    }

    pub(super) fn floor(&self) -> u64 {
        self.segment.load_u64(outbox_at::FLOOR, Ordering::Acquire)
    }

    /// Publishes that memory before `floor` is reused, before it is overwritten.
    pub(super) fn set_floor(&self, floor: u64) {
        self.segment.store_u64(outbox_at::FLOOR, floor, Ordering::Release);
        fence(FenceSite::Floor);
    }

    pub(super) fn write_head(&self, head: &RecordHead) {
        let at = self.place(head.position);
        self.segment.write(at, &head.encode());
        if head.displacement != 0 {
            self.segment.write(at + RECORD_HEAD_BYTES, &head.displacement.to_le_bytes());
        }
    }

    /// Puts the commit time into a head.
    pub(super) fn set_commit_time(&self, position: u64, time: Nanos) {
        self.segment.write(self.place(position) + COMMITTED_AT, &time.0.to_le_bytes());
    }

    /// Copies bytes to `at` after the record's position.
    pub(super) fn write_data(&self, position: u64, at: usize, bytes: &[u8]) {
        self.segment.write_once(self.place(position) + at, bytes);
    }

    /// Stores a word at `at` after the record's position, after all earlier stores.
    pub(super) fn store(&self, position: u64, at: usize, word: u64) {
        self.segment.store_u64(self.place(position) + at, word, Ordering::Release);
    }

    /// Whether there is memory for records up to position `end`.
    pub(super) fn is_present(&self, end: u64) -> bool {
        end.min(self.capacity) <= self.allocated.load(Ordering::Acquire)
    }

    /// Ensures memory for records up to position `end`. Without memory, the caller sends a message instead.
    pub(super) fn make_present(&self, end: u64) -> Result<(), Fault> {
        let (wanted, present) = (end.min(self.capacity), self.allocated.load(Ordering::Acquire));
        if wanted <= present {
            return Ok(());
        }
        let end = page_end(wanted.max(present * 2), self.capacity);
        self.allocate(present..end)
            .map_err(|error| Fault::new(Code::Busy, format!("no memory for more of the outbox: {error}")))?;
        self.allocated.fetch_max(end, Ordering::AcqRel);
        Ok(())
    }

    /// Whether the allocated memory is less than twice the bytes written so far.
    pub(super) fn needs_memory(&self) -> bool {
        self.allocated.load(Ordering::Acquire) < self.memory_goal()
    }

    /// Allocates that memory in advance, for an idle thread. Best effort.
    pub(super) fn preallocate(&self) {
        let ahead = self.allocated.load(Ordering::Acquire);
        let end = page_end(self.memory_goal(), self.capacity);
        if end <= ahead || self.allocate(ahead..end).is_err() {
            // The next writer gets the error.
            return;
        }
        self.segment.prefault(segment_offset(ahead)..segment_offset(end));
        self.allocated.fetch_max(end, Ordering::AcqRel);
    }

    fn allocate(&self, range: Range<u64>) -> std::io::Result<()> {
        let place = segment_offset(range.start)..segment_offset(range.end);
        self.segment.make_present(&self.descriptor, place)
    }

    fn memory_goal(&self) -> u64 {
        let tail = self.segment.load_u64(outbox_at::TAIL, Ordering::Relaxed);
        tail.saturating_mul(2).min(self.capacity)
    }

    fn place(&self, position: u64) -> usize {
        segment_offset(position % self.capacity)
    }
}

/// The end of the large page of a ring offset; the ring's end if that is earlier.
fn page_end(end: u64, capacity: u64) -> u64 {
    let head = OUTBOX_HEAD_BYTES as u64;
    let pages = (head + end).next_multiple_of(LARGE_PAGE_BYTES as u64);
    (pages - head).min(capacity)
}

fn segment_offset(at: u64) -> usize {
    OUTBOX_HEAD_BYTES + usize::try_from(at).expect("a capacity fits into memory")
}
