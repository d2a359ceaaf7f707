//! A rank of another node: a connection to it, and a copy of what we would see of its segment.
//!
//! A thread receives, and writes into the copy what the rank would have written into its own segment; whoever waits and copies does not know
//! the difference. A frame never has to wait for room: a rank sends a step only when the one before the last was taken, and a
//! window only when the one before the last was copied out.
//!
//! Never: holds more than a segment and two windows of a peer. Always: a connection that ends is seen by whoever waits.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use pario_core::{Code, Fault};
use pario_sys::{Shared, fork_generation};

use super::list::entries;
use super::segment::{self, DONE, DRAINED, FAILED, FILLED, Form, PUBLISHED, Row, Text};
use super::wire::{self, Frame, Head, Kind};

/// Data and list of one frame of a window.
pub(super) const FILL_BYTES: usize = 256 << 10;
/// How long a send waits before it is asked whether the peer still lives.
const NAP: Duration = Duration::from_millis(100);
const TEXT_BYTES_MAX: usize = 4096;
const STACK_BYTES: usize = 128 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Far {
    stream: TcpStream,
    copy: Arc<Copy>,
    thread: Option<JoinHandle<()>>,
    made_in: u64,
}

/// What was received of a rank.
#[derive(Debug)]
pub(super) struct Copy {
    form: Form,
    /// This rank, whose steps the other takes.
    me: usize,
    /// Which aggregator we are.
    place: Option<usize>,
    segment: Shared,
    windows: OnceLock<Shared>,
}

impl Far {
    /// A connection that has been greeted.
    pub(super) fn new(stream: TcpStream, form: Form, me: usize, place: Option<usize>) -> Result<Far, Fault> {
        let failed = |error: &std::io::Error| Fault::from_io(error, "a connection between ranks");
        let (segment, _) =
            Shared::create("pario-two-phase-copy", form.bytes()).map_err(|error| failed(&error))?;
        let copy = Arc::new(Copy { form, me, place, segment, windows: OnceLock::new() });
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        stream.set_write_timeout(Some(NAP)).map_err(|error| failed(&error))?;
        let mut reader = stream.try_clone().map_err(|error| failed(&error))?;
        let receiving = Arc::clone(&copy);
        let thread = std::thread::Builder::new()
            .name("pario-exchange".into())
            .stack_size(STACK_BYTES)
            .spawn(move || receiving.receive(&mut reader))
            .map_err(|error| failed(&error))?;
        Ok(Far { stream, copy, thread: Some(thread), made_in: fork_generation() })
    }

    pub(super) fn segment(&self) -> &Shared {
        &self.copy.segment
    }

    /// Its windows, once it has sent any.
    pub(super) fn windows(&self) -> Option<&Shared> {
        self.copy.windows.get()
    }

    /// Sends a frame. `on_nap` says whether to go on waiting.
    pub(super) fn send(
        &self,
        frame: &Frame<'_>,
        on_nap: &dyn Fn() -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Frame { head, list, data } = *frame;
        let data_bytes: usize = data.iter().map(|part| part.len()).sum();
        let number = |bytes: usize| u32::try_from(bytes).expect("frames are bounded");
        let checksum = wire::checksum(std::iter::once(list).chain(data.iter().copied()));
        let head = Head { list_bytes: number(list.len()), data_bytes: number(data_bytes), checksum, ..head };
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

impl Drop for Far {
    fn drop(&mut self) {
        // A forked child has the parent's socket, but not its thread.
        if self.made_in != fork_generation() {
            return;
        }
        // Ends the thread's read; what was sent still arrives.
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Copy {
    fn receive(&self, stream: &mut TcpStream) {
        let bytes_max = self.form.slot_bytes.max(2 * FILL_BYTES).max(TEXT_BYTES_MAX);
        let mut body = Vec::new();
        let fault = loop {
            match wire::read_frame(stream, &mut body, bytes_max) {
                Ok(Some(head)) => match self.take(&head, &body) {
                    Ok(()) => {}
                    Err(fault) => break fault,
                },
                Ok(None) => break Fault::new(Code::Unreachable, "its connection ended"),
                Err(fault) => break fault,
            }
        };
        if self.segment.load_u32(FAILED, Ordering::Relaxed) == 0 {
            self.fail(&fault);
        }
        // A peer that sends nonsense is not listened to any more, and shall know.
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Writes into the copy what a frame says.
    fn take(&self, head: &Head, body: &[u8]) -> Result<(), Fault> {
        let (list, data) = body.split_at(head.list_bytes as usize);
        let text = || String::from_utf8_lossy(&data[..data.len().min(TEXT_BYTES_MAX)]).into_owned();
        match head.kind {
            Kind::Step => self.take_step(head, list, data)?,
            Kind::Fill => self.take_fill(head, list, data)?,
            Kind::Taken => self.post(self.form.taken(self.me), head.number),
            Kind::Filled => {
                let end = (head.extra != u64::MAX).then_some(head.extra);
                segment::put_file_end(&self.segment, head.number.wrapping_sub(1), end);
                self.post(FILLED, head.number);
            }
            Kind::Drained => self.post(DRAINED, head.number),
            Kind::Done => {
                segment::put_done(&self.segment, segment::fault_of(head.flag, text).as_ref());
                self.post(DONE, head.number);
            }
            Kind::Failed => {
                self.fail(&segment::fault_of(head.flag, text).unwrap_or_else(|| Code::Protocol.into()))
            }
        }
        Ok(())
    }

    fn take_step(&self, head: &Head, list: &[u8], data: &[u8]) -> Result<(), Fault> {
        let place =
            self.place.ok_or_else(|| Fault::new(Code::Protocol, "it sends a list to no aggregator"))?;
        let row = Row { at: 0, list_bytes: list.len(), data_bytes: data.len() };
        if self.form.slot_bytes < list.len() + data.len() {
            return Err(Fault::new(Code::Protocol, "it sends a step that is longer than a slot"));
        }
        let at = self.form.packets(head.number);
        self.segment.write(at, list);
        self.segment.write(at + list.len(), data);
        self.form.put_row(&self.segment, head.number, place, row);
        self.form.put_last(&self.segment, head.number, head.flag != 0);
        self.post(PUBLISHED, head.number);
        Ok(())
    }

    fn take_fill(&self, head: &Head, list: &[u8], data: &[u8]) -> Result<(), Fault> {
        let windows = match self.windows.get() {
            Some(windows) => windows,
            None => {
                let made = Shared::create("pario-two-phase-copy", self.form.windows_bytes());
                let (made, _) = made.map_err(|error| Fault::from_io(&error, "memory for a window"))?;
                self.windows.get_or_init(|| made)
            }
        };
        let (start, mut left) = (self.form.window(head.number), data);
        for entry in entries(list, self.form.window_bytes) {
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
        segment::put_text(&self.segment, Text::Failed, &fault.text);
        self.post(FAILED, u32::from(fault.code as u16));
    }

    fn post(&self, word: usize, value: u32) {
        self.segment.store_u32(word, value, Ordering::Release);
        // There is one process to wake; it may sleep on any of the words.
        self.segment.futex_wake(word, i32::MAX.cast_unsigned());
    }
}
