//! A rank of another node: a connection to it, and a local copy of its segment.
//!
//! A thread receives, and writes into the copy the values that the rank would have written into its own segment, so waiting and
//! copying code is the same for both. A frame never waits for space: a rank sends a step only when the step before the last was
//! read, and a window only when the window before the last was copied out.
//!
//! Never: holds more than a segment and two windows of a peer. Always: the end of a connection wakes all waiting threads with
//! an error.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use pario_core::{Code, Fault};
use pario_sys::{SharedMemory, fork_generation};

use super::list::entries;
use super::rank_connection::RankConnection;
use super::segment::{
    self, COPIED_OUT, DONE, FAILED, FILLED, FaultText, PUBLISHED, PacketPosition, SegmentLayout,
};
use super::wire::{self, RankFrame, RankFrameHeader, RankFrameKind};

/// Limit of data and list of one window frame.
pub(super) const FILL_BYTES: usize = 256 << 10;
const TEXT_BYTES_MAX: usize = 4096;
const STACK_BYTES: usize = 128 << 10;

/// See the module head.
#[derive(Debug)]
pub(super) struct RemoteRank {
    stream: RankConnection,
    copy: Arc<SegmentCopy>,
    thread: Option<JoinHandle<()>>,
    made_in: u64,
}

/// The received copy of a rank's segment.
#[derive(Debug)]
pub(super) struct SegmentCopy {
    layout: SegmentLayout,
    /// This rank; the peer reads its steps.
    me: usize,
    /// Index of this rank among the aggregators.
    aggregator_index: Option<usize>,
    segment: SharedMemory,
    windows: OnceLock<SharedMemory>,
}

impl RemoteRank {
    /// Wraps an authenticated connection.
    pub(super) fn new(
        stream: RankConnection,
        form: SegmentLayout,
        me: usize,
        place: Option<usize>,
    ) -> Result<RemoteRank, Fault> {
        let failed = |error: &std::io::Error| Fault::from_io(error, "a connection between ranks");
        let (segment, _) =
            SharedMemory::create("pario-two-phase-copy", form.bytes()).map_err(|error| failed(&error))?;
        let copy = Arc::new(SegmentCopy {
            layout: form,
            me,
            aggregator_index: place,
            segment,
            windows: OnceLock::new(),
        });
        let reader = stream.clone();
        let receiving = Arc::clone(&copy);
        let thread = std::thread::Builder::new()
            .name("pario-exchange".into())
            .stack_size(STACK_BYTES)
            .spawn(move || receiving.receive(&reader))
            .map_err(|error| failed(&error))?;
        Ok(RemoteRank { stream, copy, thread: Some(thread), made_in: fork_generation() })
    }

    pub(super) fn segment(&self) -> &SharedMemory {
        &self.copy.segment
    }

    /// The peer's windows, if it has sent any.
    pub(super) fn windows(&self) -> Option<&SharedMemory> {
        self.copy.windows.get()
    }

    /// Sends a frame. `on_nap` decides whether to continue to wait.
    pub(super) fn send(
        &self,
        frame: &RankFrame<'_>,
        on_nap: &dyn Fn() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let RankFrame { head, list, data } = *frame;
        let data_bytes: usize = data.iter().map(|part| part.len()).sum();
        let number = |bytes: usize| u32::try_from(bytes).expect("frames are bounded");
        let checksum = wire::checksum(std::iter::once(list).chain(data.iter().copied()));
        let head = RankFrameHeader {
            list_bytes: number(list.len()),
            data_bytes: number(data_bytes),
            checksum,
            ..head
        };
        let small = list.len() + data_bytes <= 4096;
        let mut first = [&head.to_bytes()[..], list].concat();
        if small {
            data.iter().for_each(|part| first.extend_from_slice(part));
        }
        wire::write_all(&self.stream, &first, on_nap)?;
        for part in data.iter().filter(|_| !small) {
            wire::write_all(&self.stream, part, on_nap)?;
        }
        Ok(())
    }
}

impl Drop for RemoteRank {
    fn drop(&mut self) {
        // A forked child has the parent's socket, but not its thread.
        if self.made_in != fork_generation() {
            return;
        }
        // Ends the thread's read; sent bytes still arrive.
        self.stream.shut();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl SegmentCopy {
    fn receive(&self, stream: &RankConnection) {
        let bytes_max = self.layout.slot_bytes.max(2 * FILL_BYTES).max(TEXT_BYTES_MAX);
        let mut body = Vec::new();
        let fault = loop {
            match wire::read_frame(stream, &mut body, bytes_max) {
                Ok(Some(head)) => match self.apply_frame(&head, &body) {
                    Ok(()) => {}
                    Err(fault) => break fault,
                },
                Ok(None) => break Fault::new(Code::Unreachable, "its connection was closed"),
                Err(fault) => break fault,
            }
        };
        if self.segment.load_u32(FAILED, Ordering::Relaxed) == 0 {
            self.fail(&fault);
        }
        // After an invalid frame the connection is closed, so that the peer notices.
        stream.shut();
    }

    /// Applies a frame to the copy.
    fn apply_frame(&self, head: &RankFrameHeader, body: &[u8]) -> Result<(), Fault> {
        let (list, data) = body.split_at(head.list_bytes as usize);
        let text = || String::from_utf8_lossy(&data[..data.len().min(TEXT_BYTES_MAX)]).into_owned();
        match head.kind {
            RankFrameKind::Step => self.apply_step(head, list, data)?,
            RankFrameKind::Fill => self.apply_fill(head, list, data)?,
            RankFrameKind::StepRead => self.post(self.layout.steps_read(self.me), head.number),
            RankFrameKind::Filled => {
                let end = (head.extra != u64::MAX).then_some(head.extra);
                segment::put_file_end(&self.segment, head.number.wrapping_sub(1), end);
                self.post(FILLED, head.number);
            }
            RankFrameKind::CopiedOut => self.post(COPIED_OUT, head.number),
            RankFrameKind::Done => {
                segment::put_done(&self.segment, segment::fault_of(head.flag, text).as_ref());
                self.post(DONE, head.number);
            }
            RankFrameKind::Failed => {
                self.fail(&segment::fault_of(head.flag, text).unwrap_or_else(|| Code::Protocol.into()))
            }
        }
        Ok(())
    }

    fn apply_step(&self, head: &RankFrameHeader, list: &[u8], data: &[u8]) -> Result<(), Fault> {
        let place = self.aggregator_index.ok_or_else(|| {
            Fault::new(Code::Protocol, "it sent an offset list to a rank that is no aggregator")
        })?;
        let row = PacketPosition { at: 0, list_bytes: list.len(), data_bytes: data.len() };
        if self.layout.slot_bytes < list.len() + data.len() {
            return Err(Fault::new(Code::Protocol, "it sent a step that is longer than a slot"));
        }
        let at = self.layout.packets(head.number);
        self.segment.write(at, list);
        self.segment.write(at + list.len(), data);
        self.layout.put_row(&self.segment, head.number, place, row);
        self.layout.put_last(&self.segment, head.number, head.flag != 0);
        self.post(PUBLISHED, head.number);
        Ok(())
    }

    fn apply_fill(&self, head: &RankFrameHeader, list: &[u8], data: &[u8]) -> Result<(), Fault> {
        let windows = match self.windows.get() {
            Some(windows) => windows,
            None => {
                let made = SharedMemory::create("pario-two-phase-copy", self.layout.windows_bytes());
                let (made, _) = made.map_err(|error| Fault::from_io(&error, "memory for a window"))?;
                self.windows.get_or_init(|| made)
            }
        };
        let (start, mut left) = (self.layout.window(head.number), data);
        for entry in entries(list, self.layout.window_bytes) {
            let entry = entry?;
            let Some((piece, rest)) = left.split_at_checked(entry.len()) else {
                return Err(Fault::new(Code::Protocol, "a list names more bytes than came with it"));
            };
            windows.write(start + entry.start, piece);
            left = rest;
        }
        Ok(())
    }

    fn fail(&self, fault: &Fault) {
        segment::put_text(&self.segment, FaultText::Failed, &fault.text);
        self.post(FAILED, u32::from(fault.code as u16));
    }

    fn post(&self, word: usize, value: u32) {
        self.segment.store_u32(word, value, Ordering::Release);
        // Only this process has to be woken; it may sleep on any of the words.
        self.segment.futex_wake(word, i32::MAX.cast_unsigned());
    }
}
