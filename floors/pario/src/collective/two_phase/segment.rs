//! A rank's shared memory for the exchange: its state words, and lists and data in flight. The windows that an aggregator fills
//! for reading are a separate segment, created when first needed.
//!
//! One of each per rank, written by that rank alone; ranks of its node map it for reading. For a rank on another node there is
//! a copy of the same shape, written by the thread that receives from it, so that waiting and copying are the same in both cases.
//! Layout: `docs/formats/two-phase.md`.
//!
//! Never: has a second writer. Always: a word is stored after the data it announces; sizes from a peer are checked against the
//! shape.

use std::ops::Range;
use std::sync::atomic::Ordering;

use pario_core::{Code, Fault};
use pario_sys::SharedMemory;

/// Counts published steps.
pub(super) const PUBLISHED: usize = 0;
/// The rank that this one waits for, plus 1; or 0.
pub(super) const WAITING: usize = 4;
/// Not 0 if this rank has given up; the reason is in its text.
pub(super) const FAILED: usize = 8;
/// Counts announced calls.
pub(super) const ANNOUNCED: usize = 12;
/// Counts windows filled for reading.
pub(super) const FILLED: usize = 16;
/// Counts windows copied out for reading.
pub(super) const COPIED_OUT: usize = 20;
/// Counts calls with a finished domain.
pub(super) const DONE: usize = 24;
/// The fault code of the last domain, or 0.
const DONE_CODE: usize = 28;
/// Two announcements, for even and odd calls: kind, code, start, end.
const ANNOUNCEMENT: usize = 64;
const ANNOUNCEMENT_BYTES: usize = 32;
/// For even and odd windows: the end of the file if it was reached, or all ones.
const FILE_END: usize = 128;
const TEXTS: usize = 192;
const TEXT_BYTES: usize = 512;
/// Counts steps read of each rank.
const STEPS_READ: usize = TEXTS + 4 * TEXT_BYTES;
/// A row of a slot's table: position, bytes of list, bytes of data.
const ROW_BYTES: usize = 16;
/// The header of a slot: whether it is the last of the iteration.
const HEAD_BYTES: usize = 16;

/// Fault texts in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FaultText {
    /// Why an even call is refused.
    Even,
    /// Why an odd call is refused.
    Odd,
    /// Why a domain could not be read or written.
    Done,
    /// Why this rank gave up.
    Failed,
}

impl FaultText {
    pub(super) fn of_call(call: u32) -> FaultText {
        if call.is_multiple_of(2) { FaultText::Even } else { FaultText::Odd }
    }
}

/// A rank's announcement at the beginning of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Announcement {
    /// Write or read; opaque to the exchange.
    pub(super) kind: u32,
    pub(super) span: Range<u64>,
    /// Why this rank cannot take part.
    pub(super) fault: Option<Fault>,
}

/// Position of a packet for one aggregator in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PacketPosition {
    /// Start of its list in the slot; data follows.
    pub(super) at: usize,
    pub(super) list_bytes: usize,
    pub(super) data_bytes: usize,
}

/// Layout of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentLayout {
    pub(super) ranks: usize,
    pub(super) aggregators: usize,
    /// Bytes for packets in one of the two slots.
    pub(super) slot_bytes: usize,
    /// Bytes of one of the two windows.
    pub(super) window_bytes: usize,
}

impl SegmentLayout {
    pub(super) fn steps_read(&self, rank: usize) -> usize {
        assert!(rank < self.ranks, "rank {rank} of {}", self.ranks);
        STEPS_READ + 4 * rank
    }

    fn slots(&self) -> usize {
        (STEPS_READ + 4 * self.ranks).next_multiple_of(64)
    }

    /// A slot with its header and table.
    fn slot_stride(&self) -> usize {
        (HEAD_BYTES + ROW_BYTES * self.aggregators + self.slot_bytes).next_multiple_of(64)
    }

    fn head(&self, step: u32) -> usize {
        self.slots() + (step as usize % 2) * self.slot_stride()
    }

    fn row(&self, step: u32, aggregator: usize) -> usize {
        assert!(aggregator < self.aggregators, "aggregator {aggregator} of {}", self.aggregators);
        self.head(step) + HEAD_BYTES + ROW_BYTES * aggregator
    }

    /// Start of the packets of a slot.
    pub(super) fn packets(&self, step: u32) -> usize {
        self.head(step) + HEAD_BYTES + ROW_BYTES * self.aggregators
    }

    /// Bytes of the whole segment.
    pub(super) fn bytes(&self) -> usize {
        self.slots() + 2 * self.slot_stride()
    }

    /// Start of a window in the segment of windows.
    pub(super) fn window(&self, round: u32) -> usize {
        (round as usize % 2) * self.window_bytes.next_multiple_of(4096)
    }

    /// Bytes of the segment of windows.
    pub(super) fn windows_bytes(&self) -> usize {
        2 * self.window_bytes.next_multiple_of(4096)
    }

    /// Writes a row of a slot's table.
    pub(super) fn put_row(&self, segment: &SharedMemory, step: u32, aggregator: usize, row: PacketPosition) {
        let mut bytes = [0; ROW_BYTES];
        for (place, number) in bytes.chunks_exact_mut(4).zip([row.at, row.list_bytes, row.data_bytes]) {
            place.copy_from_slice(&u32::try_from(number).expect("slots are small").to_le_bytes());
        }
        segment.write(self.row(step, aggregator), &bytes);
    }

    /// Reads a row of a slot's table, checked to lie inside the slot.
    pub(super) fn row_of(
        &self,
        segment: &SharedMemory,
        step: u32,
        aggregator: usize,
    ) -> Result<PacketPosition, Fault> {
        let at = self.row(step, aggregator);
        let number = |index: usize| segment.load_u32(at + 4 * index, Ordering::Relaxed) as usize;
        let row = PacketPosition { at: number(0), list_bytes: number(1), data_bytes: number(2) };
        let end = row.at.checked_add(row.list_bytes).and_then(|end| end.checked_add(row.data_bytes));
        if end.is_none_or(|end| self.slot_bytes < end)
            || !row.list_bytes.is_multiple_of(super::list::ENTRY_BYTES)
        {
            let text =
                format!("a packet of {} and {} bytes lies outside its slot", row.list_bytes, row.data_bytes);
            return Err(Fault::new(Code::Protocol, text));
        }
        Ok(row)
    }

    /// Stores whether a slot is the last of its iteration.
    pub(super) fn put_last(&self, segment: &SharedMemory, step: u32, last: bool) {
        segment.store_u32(self.head(step), u32::from(last), Ordering::Relaxed);
    }

    pub(super) fn is_last(&self, segment: &SharedMemory, step: u32) -> bool {
        segment.load_u32(self.head(step), Ordering::Relaxed) != 0
    }
}

/// Writes an announcement; its word is stored afterwards.
pub(super) fn put_announcement(segment: &SharedMemory, call: u32, said: &Announcement) {
    let at = ANNOUNCEMENT + (call as usize % 2) * ANNOUNCEMENT_BYTES;
    let code = said.fault.as_ref().map_or(0, |fault| u32::from(fault.code as u16));
    segment.store_u32(at, said.kind, Ordering::Relaxed);
    segment.store_u32(at + 4, code, Ordering::Relaxed);
    segment.store_u64(at + 8, said.span.start, Ordering::Relaxed);
    segment.store_u64(at + 16, said.span.end, Ordering::Relaxed);
    if let Some(fault) = &said.fault {
        put_text(segment, FaultText::of_call(call), &fault.text);
    }
}

pub(super) fn announcement(segment: &SharedMemory, call: u32) -> Announcement {
    let at = ANNOUNCEMENT + (call as usize % 2) * ANNOUNCEMENT_BYTES;
    let span = segment.load_u64(at + 8, Ordering::Relaxed)..segment.load_u64(at + 16, Ordering::Relaxed);
    let code = segment.load_u32(at + 4, Ordering::Relaxed);
    let fault = fault_of(code, || text(segment, FaultText::of_call(call)));
    Announcement { kind: segment.load_u32(at, Ordering::Relaxed), span, fault }
}

/// Stores the end of the file seen in a window.
pub(super) fn put_file_end(segment: &SharedMemory, round: u32, end: Option<u64>) {
    segment.store_u64(FILE_END + 8 * (round as usize % 2), end.unwrap_or(u64::MAX), Ordering::Relaxed);
}

pub(super) fn file_end(segment: &SharedMemory, round: u32) -> Option<u64> {
    let end = segment.load_u64(FILE_END + 8 * (round as usize % 2), Ordering::Relaxed);
    (end != u64::MAX).then_some(end)
}

/// Stores the outcome of a domain.
pub(super) fn put_done(segment: &SharedMemory, fault: Option<&Fault>) {
    segment.store_u32(DONE_CODE, fault.map_or(0, |fault| u32::from(fault.code as u16)), Ordering::Relaxed);
    if let Some(fault) = fault {
        put_text(segment, FaultText::Done, &fault.text);
    }
}

pub(super) fn done(segment: &SharedMemory) -> Option<Fault> {
    fault_of(segment.load_u32(DONE_CODE, Ordering::Relaxed), || text(segment, FaultText::Done))
}

/// A fault from a peer's code and text; `None` for code 0.
pub(super) fn fault_of(code: u32, text: impl FnOnce() -> String) -> Option<Fault> {
    let code = u16::try_from(code).ok().filter(|code| *code != 0)?;
    Some(Fault::new(Code::from_number(code).unwrap_or(Code::Protocol), text()))
}

fn text_at(which: FaultText) -> usize {
    let index = match which {
        FaultText::Even => 0,
        FaultText::Odd => 1,
        FaultText::Done => 2,
        FaultText::Failed => 3,
    };
    TEXTS + index * TEXT_BYTES
}

/// Writes a text, truncated to its space.
pub(super) fn put_text(segment: &SharedMemory, which: FaultText, text: &str) {
    let mut end = text.len().min(TEXT_BYTES - 4);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let at = text_at(which);
    segment.store_u32(at, u32::try_from(end).expect("texts are short"), Ordering::Relaxed);
    segment.write(at + 4, &text.as_bytes()[..end]);
}

pub(super) fn text(segment: &SharedMemory, which: FaultText) -> String {
    let at = text_at(which);
    let bytes = (segment.load_u32(at, Ordering::Relaxed) as usize).min(TEXT_BYTES - 4);
    let mut text = vec![0; bytes];
    segment.read(at + 4, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: SegmentLayout =
        SegmentLayout { ranks: 3, aggregators: 2, slot_bytes: 100, window_bytes: 5000 };

    #[test]
    fn nothing_overlaps() {
        let places: [(usize, usize); 7] = [
            (0, 32),
            (ANNOUNCEMENT, 64),
            (FILE_END, 16),
            (TEXTS, 4 * TEXT_BYTES),
            (FORM.steps_read(0), 12),
            (FORM.head(0), FORM.slot_stride()),
            (FORM.head(1), FORM.slot_stride()),
        ];
        for pair in places.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        assert!(FORM.head(1) + FORM.slot_stride() <= FORM.bytes());
        assert!(FORM.window(1) + 5000 <= FORM.windows_bytes() && 5000 <= FORM.window(1));
        assert!(FORM.packets(1) + 100 <= FORM.head(1) + FORM.slot_stride());
        assert_eq!(FORM.row(3, 1), FORM.packets(3) - ROW_BYTES);
        assert!(FORM.slots().is_multiple_of(8) && FORM.window(1).is_multiple_of(4096));
    }

    #[test]
    fn what_is_put_is_found() {
        let (segment, _fd) = SharedMemory::create("test", FORM.bytes()).unwrap();
        let fault = Fault::new(Code::NoSpace, "ä".repeat(1000));
        for (call, fault) in [(6, None), (7, Some(fault.clone()))] {
            put_announcement(&segment, call, &Announcement { kind: call, span: 5..u64::from(call), fault });
        }
        let found = announcement(&segment, 7);
        assert_eq!((found.kind, found.span), (7, 5..7));
        let found = found.fault.unwrap();
        assert_eq!((found.code, found.text), (Code::NoSpace, "ä".repeat((TEXT_BYTES - 4) / 2)));
        assert_eq!(announcement(&segment, 6), Announcement { kind: 6, span: 5..6, fault: None });
        put_done(&segment, Some(&Fault::new(Code::Io, "broken")));
        assert_eq!(done(&segment), Some(Fault::new(Code::Io, "broken")));
        put_done(&segment, None);
        assert_eq!(done(&segment), None);
        put_file_end(&segment, 3, Some(17));
        put_file_end(&segment, 4, None);
        assert_eq!((file_end(&segment, 1), file_end(&segment, 0)), (Some(17), None));
    }

    #[test]
    fn a_row_that_lies_is_refused() {
        let (segment, _fd) = SharedMemory::create("test", FORM.bytes()).unwrap();
        let check = |at, list_bytes, data_bytes| {
            let row = PacketPosition { at, list_bytes, data_bytes };
            FORM.put_row(&segment, 1, 1, row);
            FORM.row_of(&segment, 1, 1).map(|found| assert_eq!(found, row))
        };
        check(0, 0, 0).unwrap();
        check(20, 40, 40).unwrap();
        for (at, list_bytes, data_bytes) in [(20, 40, 41), (101, 0, 0), (0, 12, 0), (0, 8, u32::MAX as usize)]
        {
            assert_eq!(check(at, list_bytes, data_bytes).unwrap_err().code, Code::Protocol);
        }
    }
}
