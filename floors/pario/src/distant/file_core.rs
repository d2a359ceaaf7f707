//! A file over one or several components: reads, writes, requests, length. Distant files have one component, shared files one per home.
//!
//! Never: tells other homes of a write; asks for the length while it is known to be enough. Always: bytes that were never written are
//! zero; a read returns the exact number of bytes before the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use pario_core::limits::FILE_BYTES_MAX;
use pario_core::{Code, Fault};
use pario_sys::mutex::lock;
use pario_sys::{PartedBuffer, lend_parts};

use super::component::{BY_CALLER_MAX, Component, SENT_BEHIND_MIN, Source};
use super::counts::{CallTime, DistantCounts, FileCounters, add, is_enabled, print_line, report};
use super::request::{DistantRequest, PartDirection, PartProgress, RequestCore, RequestPart};
use super::stripe::{FilePart, FileStriping};
use crate::environment::STATS_VARIABLE;
use crate::error::{Error, Result};

/// How a read beyond the end ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndRule {
    /// With fewer bytes, as `pread`.
    Fewer,
    /// With an error.
    Error,
}

/// See the module.
#[derive(Debug)]
pub(super) struct FileCore {
    pub(super) name: String,
    rank: usize,
    striping: FileStriping,
    components: Vec<Arc<Component>>,
    end_rule: EndRule,
    /// A lower bound of the length.
    known: AtomicU64,
    pub(super) counters: Arc<FileCounters>,
    pub(super) is_timed: bool,
    under_way: Mutex<Vec<Weak<RequestCore>>>,
    hard_limit: Option<u64>,
    is_warned: AtomicBool,
    is_closed: AtomicBool,
}

/// Facts of a new [`FileCore`].
#[derive(Debug)]
pub(super) struct FileSpec {
    pub(super) name: String,
    pub(super) rank: usize,
    pub(super) striping: FileStriping,
    pub(super) components: Vec<Arc<Component>>,
    pub(super) end_rule: EndRule,
    pub(super) known: u64,
    pub(super) hard_limit: Option<u64>,
    pub(super) counters: Arc<FileCounters>,
}

impl FileCore {
    pub(super) fn new(spec: FileSpec) -> Arc<FileCore> {
        Arc::new(FileCore {
            name: spec.name,
            rank: spec.rank,
            striping: spec.striping,
            components: spec.components,
            end_rule: spec.end_rule,
            known: AtomicU64::new(spec.known),
            counters: spec.counters,
            is_timed: is_enabled(STATS_VARIABLE),
            under_way: Mutex::default(),
            hard_limit: spec.hard_limit,
            is_warned: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(super) fn components(&self) -> &[Arc<Component>] {
        &self.components
    }

    pub(super) fn counts(&self) -> DistantCounts {
        self.counters.values()
    }

    /// Refuses later calls, and completes requests under way.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        let under_way: Vec<_> = lock(&self.under_way).drain(..).collect();
        under_way.iter().filter_map(Weak::upgrade).for_each(|request| request.complete());
    }

    /// Prints the counters, if wanted.
    pub(super) fn report(&self) {
        if self.is_timed {
            report(&self.name, self.rank, &self.counts());
        }
    }

    fn check(&self, at: u64, bytes: usize) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) {
            return Err(Fault::new(Code::Closed, format!("{}: the file was closed", self.name)).into());
        }
        match at.checked_add(bytes as u64) {
            Some(end) if end <= FILE_BYTES_MAX => Ok(()),
            Some(_) | None => {
                let text = format!("{}: {bytes} bytes at {at} lie beyond the largest file", self.name);
                Err(Fault::new(Code::TooLarge, text).into())
            }
        }
    }

    pub(super) fn read_at(&self, at: u64, target: &mut [u8]) -> Result<usize> {
        self.check(at, target.len())?;
        let _time = CallTime::begin(&self.counters, self.is_timed);
        add(&self.counters.reads, 1);
        if target.is_empty() {
            return Ok(0);
        }
        if let Some((number, local)) = self.striping.one_place(at, target.len()) {
            let component = &self.components[number];
            let read = component.read_here(local, target);
            let read = read.map_err(|fault| component.access_fault(fault, target.len(), at))?;
            if let Some(count) = read {
                return self.settle_one((at, number, local), count, target);
            }
        }
        let parts = self.striping.parts(at, target.len());
        let ranges: Vec<_> = parts.iter().map(|part| part.ranges.clone()).collect();
        let results = lend_parts(target, &ranges, |buffers| {
            let mut list = Vec::with_capacity(parts.len());
            let mut here = Vec::new();
            for (part, buffer) in parts.into_iter().zip(buffers) {
                let component = Arc::clone(&self.components[part.component]);
                let state = if component.is_far()? {
                    component
                        .start_read(part.at, buffer)
                        .map_err(|fault| component.access_fault(fault, part.bytes(), part.file_offset(at)))?
                } else {
                    here.push((list.len(), buffer));
                    PartProgress::Waiting
                };
                list.push(RequestPart { component, part, base: at, state, direction: PartDirection::Read });
            }
            // Far parts are under way meanwhile.
            for (number, mut buffer) in here {
                let part: &mut RequestPart = &mut list[number];
                let (local, bytes) = (part.part.at, part.part.bytes());
                let file_at = part.part.file_offset(at);
                let read = part.component.read_part(local, &mut buffer);
                part.state = PartProgress::Done(
                    read.map_err(|fault| part.component.access_fault(fault, bytes, file_at)),
                );
            }
            let request = RequestCore::new(list);
            request.complete();
            request.results()
        })?;
        self.settle((at, target.len()), &results, target)
    }

    /// A read of one part is complete.
    fn settle_one(
        &self,
        (at, component, local): (u64, usize, u64),
        count: usize,
        target: &mut [u8],
    ) -> Result<usize> {
        if count == target.len() {
            self.prove(at + count as u64);
            add(&self.counters.read_bytes, count as u64);
            return Ok(count);
        }
        let whole = 0..target.len();
        let part = FilePart { component, at: local, ranges: std::iter::once(whole).collect() };
        self.settle((at, target.len()), &[(part, count)], target)
    }

    /// The bytes of a read are there as far as components have them: fills in zeros, finds the end.
    pub(super) fn settle(
        &self,
        (at, bytes): (u64, usize),
        parts: &[(FilePart, usize)],
        target: &mut [u8],
    ) -> Result<usize> {
        let end = at + bytes as u64;
        let mut is_short = false;
        for (part, count) in parts {
            if 0 < *count {
                self.prove(self.striping.end_of(part.component, part.at + *count as u64));
            }
            for range in part.rest(*count) {
                target[range].fill(0);
                is_short = true;
            }
        }
        let mut count = bytes;
        if is_short && self.known.load(Ordering::Relaxed) < end {
            let length = if self.components.len() == 1 {
                // The part itself shows the end.
                parts.iter().map(|(_, count)| *count as u64).sum::<u64>() + at
            } else {
                self.length()?
            };
            count = usize::try_from(length.saturating_sub(at)).unwrap_or(bytes).min(bytes);
        }
        add(&self.counters.read_bytes, count as u64);
        if count < bytes && self.end_rule == EndRule::Error {
            return Err(Error::PastEnd { file: self.name.clone(), at, wanted: bytes, read: count });
        }
        Ok(count)
    }

    fn prove(&self, length: u64) {
        // Distant files may be cut by their homes: nothing is known of them.
        if self.end_rule == EndRule::Error && self.known.load(Ordering::Relaxed) < length {
            self.known.fetch_max(length, Ordering::Relaxed);
        }
    }

    /// A write is complete.
    pub(super) fn wrote(&self, at: u64, bytes: usize) {
        add(&self.counters.written_bytes, bytes as u64);
        if 0 < bytes {
            self.prove(at + bytes as u64);
        }
    }

    fn check_write(&self, at: u64, bytes: usize) -> Result<()> {
        self.check(at, bytes)?;
        if let Some(limit) = self.hard_limit.filter(|limit| *limit < at + bytes as u64)
            && !self.is_warned.swap(true, Ordering::Relaxed)
        {
            print_line(&format!(
                "pario: distant: {}: rank {}: a write of {bytes} bytes at {at} exceeds the hard limit of {limit} bytes given at creation",
                self.name, self.rank
            ));
        }
        Ok(())
    }

    pub(super) fn write_at(&self, at: u64, source: &[u8]) -> Result<()> {
        self.check_write(at, source.len())?;
        let _time = CallTime::begin(&self.counters, self.is_timed);
        add(&self.counters.writes, 1);
        if source.is_empty() {
            return Ok(());
        }
        if let Some((number, local)) = self.striping.one_place(at, source.len()) {
            let component = &self.components[number];
            let written = component.write_here(local, Source(&[source]));
            if written.map_err(|fault| component.access_fault(fault, source.len(), at))? {
                self.wrote(at, source.len());
                return Ok(());
            }
        }
        let parts = self.start_parts(at, source, |component, part, source| {
            let pieces = pieces_of(part, source);
            if component.is_far()? {
                return component.send_write(part.at, Source(&pieces)).map(PartProgress::Sent);
            }
            component.write_here(part.at, Source(&pieces))?;
            Ok(PartProgress::Done(Ok(part.bytes())))
        })?;
        let request = RequestCore::new(parts);
        request.complete();
        request.results()?;
        self.wrote(at, source.len());
        Ok(())
    }

    /// Starts the parts of a write; a part that cannot be started is complete with its fault.
    fn start_parts(
        &self,
        at: u64,
        source: &[u8],
        mut start: impl FnMut(&Arc<Component>, &FilePart, &[u8]) -> std::result::Result<PartProgress, Fault>,
    ) -> Result<Vec<RequestPart>> {
        let mut list = Vec::new();
        for part in self.striping.parts(at, source.len()) {
            let component = Arc::clone(&self.components[part.component]);
            let state = start(&component, &part, source).unwrap_or_else(|fault| {
                PartProgress::Done(Err(component.access_fault(fault, part.bytes(), part.file_offset(at))))
            });
            list.push(RequestPart { component, part, base: at, state, direction: PartDirection::Write });
        }
        Ok(list)
    }

    fn track(&self, request: &Arc<RequestCore>) {
        let mut under_way = lock(&self.under_way);
        if under_way.len() == under_way.capacity() {
            under_way.retain(|request| 0 < request.strong_count());
        }
        under_way.push(Arc::downgrade(request));
    }

    pub(super) fn start_read<B: AsMut<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        at: u64,
        mut buffer: B,
    ) -> Result<DistantRequest<B>> {
        let bytes = buffer.as_mut().len();
        self.check(at, bytes)?;
        let _time = CallTime::begin(&self.counters, self.is_timed);
        add(&self.counters.reads, 1);
        add(&self.counters.started, 1);
        let parts = self.striping.parts(at, bytes);
        let ranges: Vec<_> = parts.iter().map(|part| part.ranges.clone()).collect();
        let (buffer, buffers) = PartedBuffer::new(buffer, &ranges);
        let mut list = Vec::with_capacity(parts.len());
        for (part, memory) in parts.into_iter().zip(buffers) {
            let component = Arc::clone(&self.components[part.component]);
            let state = component.start_behind(part.at, memory).unwrap_or_else(|fault| {
                PartProgress::Done(Err(component.access_fault(fault, part.bytes(), part.file_offset(at))))
            });
            list.push(RequestPart { component, part, base: at, state, direction: PartDirection::Read });
        }
        let request = Arc::new(RequestCore::new(list));
        self.track(&request);
        Ok(DistantRequest::of_read(request, self, buffer, (at, bytes)))
    }

    pub(super) fn start_write<B: AsRef<[u8]> + Send + Sync + 'static>(
        self: &Arc<Self>,
        at: u64,
        buffer: B,
    ) -> Result<DistantRequest<B>> {
        let buffer = Arc::new(buffer);
        let source = (*buffer).as_ref();
        let bytes = source.len();
        self.check_write(at, bytes)?;
        let _time = CallTime::begin(&self.counters, self.is_timed);
        add(&self.counters.writes, 1);
        add(&self.counters.started, 1);
        let list = self.start_parts(at, source, |component, part, source| {
            if BY_CALLER_MAX < bytes || SENT_BEHIND_MIN <= part.bytes() && component.is_far()? {
                let (memory, part) = (Arc::clone(&buffer), part.clone());
                return component.write_behind(move |component| {
                    let pieces = pieces_of(&part, (*memory).as_ref());
                    if !component.write_here(part.at, Source(&pieces))? {
                        let sent = component.send_write(part.at, Source(&pieces))?;
                        sent.link.wait(sent.ticket, None)?;
                    }
                    Ok(part.bytes())
                });
            }
            let pieces = pieces_of(part, source);
            if component.write_here(part.at, Source(&pieces))? {
                return Ok(PartProgress::Done(Ok(Source(&pieces).bytes())));
            }
            component.send_write(part.at, Source(&pieces)).map(PartProgress::Sent)
        })?;
        let request = Arc::new(RequestCore::new(list));
        self.track(&request);
        Ok(DistantRequest::of_write(request, self, buffer, (at, bytes)))
    }

    /// The length: all homes are asked at the same time.
    pub(super) fn length(&self) -> Result<u64> {
        self.check(0, 0)?;
        add(&self.counters.measures, 1);
        let mut asked = Vec::with_capacity(self.components.len());
        for component in &self.components {
            asked.push(component.start_length().map_err(|fault| component.at(fault)));
        }
        let mut length = 0;
        let mut failed = None;
        for (number, (component, asked)) in self.components.iter().zip(asked).enumerate() {
            let found = asked.and_then(|asked| component.finish_length(asked).map_err(|f| component.at(f)));
            match found {
                Ok(bytes) => length = length.max(self.striping.end_of(number, bytes)),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        if let Some(fault) = failed {
            return Err(fault.into());
        }
        self.prove(length);
        Ok(length)
    }

    /// Sets the length of every component.
    pub(super) fn truncate(&self, bytes: u64) -> Result<()> {
        self.check(bytes, 0)?;
        for (number, component) in self.components.iter().enumerate() {
            component.truncate(self.striping.length_of(number, bytes))?;
        }
        Ok(())
    }

    /// Puts all components on stable storage.
    pub(super) fn sync(&self) -> Result<()> {
        self.check(0, 0)?;
        self.components.iter().try_for_each(|component| component.sync()).map_err(Error::from)
    }
}

fn pieces_of<'a>(part: &FilePart, source: &'a [u8]) -> Vec<&'a [u8]> {
    part.ranges.iter().map(|range| &source[range.clone()]).collect()
}
