//! The server's page cache for reads: present pages, pages in flight, and read-ahead.
//!
//! Read-ahead is that of Linux 2.6: a read that starts where the last one of the file ended is sequential and opens a window of
//! 32 KiB, doubled by each further one up to 128 KiB; as soon as less than a window is ahead of the reader, the next window is
//! fetched. Any other read closes the window and fetches only itself. Its NFS server keeps one state per file, copies it when a
//! read begins and puts it back when the read ends: so a lone reader that waits for each reply is read ahead, whereas reads of
//! one file that overlap in time do not see each other and look random, even if they are in order.
//!
//! Never: forgets a page. What is read ahead and not yet asked for is a few windows, far less than the server's memory, and
//! nothing here is read twice, so that an eviction would change nothing.

use super::{FileIndex, OpId, RequestIndex};

/// Bytes of a page.
pub(crate) const PAGE: u64 = 4 << 10;

/// Parameters of read-ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReadAheadParams {
    /// Bytes of the first window.
    pub(crate) first: u64,
    /// Bytes of the largest.
    pub(crate) max: u64,
}

impl ReadAheadParams {
    /// Linux 2.6.
    pub(crate) const PAPER: ReadAheadParams = ReadAheadParams { first: 32 << 10, max: 128 << 10 };
}

/// Pages `start..end` of a file that must be fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fetch {
    pub(crate) file: FileIndex,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// Request that waits for them; `None` for read-ahead.
    pub(crate) waiter: Option<RequestIndex>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PageState {
    Absent,
    Coming(OpId),
    Present,
}

#[derive(Debug)]
struct FilePages {
    pages: Vec<PageState>,
    state: ReadAheadState,
}

/// Read-ahead state of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReadAheadState {
    /// End of the last read.
    next: u32,
    /// Pages of the window; 0 if closed.
    window: u32,
    /// First page not read ahead.
    ahead: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct PageCache {
    params: ReadAheadParams,
    files: Vec<FilePages>,
}

/// Requirements of a read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Need {
    /// Pages to fetch: missing ones, and read-ahead.
    pub(crate) fetches: Vec<Fetch>,
    /// Operations in flight that it also waits for.
    pub(crate) coming: Vec<OpId>,
    /// Read-ahead state after the read.
    pub(crate) after: ReadAheadState,
}

impl PageCache {
    /// Of files with these lengths, all pages absent.
    pub(crate) fn new(params: ReadAheadParams, lengths: &[u64]) -> PageCache {
        let file = |length: &u64| FilePages {
            pages: vec![PageState::Absent; page_at(length.div_ceil(PAGE)) as usize],
            state: ReadAheadState::default(),
        };
        PageCache { params, files: lengths.iter().map(file).collect() }
    }

    /// A request reads `start..end` of a file.
    pub(crate) fn read(&mut self, file: FileIndex, start: u64, end: u64, reader: RequestIndex) -> Need {
        let (first, last) = (page_at(start / PAGE), page_at(end.div_ceil(PAGE)));
        let mut need = Need::default();
        self.want(&mut need, Fetch { file, start: first, end: last, waiter: Some(reader) });
        let length = page_at(self.files[file.0].pages.len() as u64);
        need.after = self.files[file.0].state;
        if let Some((from, to)) = need.after.read(self.params, first, last, length) {
            self.want(&mut need, Fetch { file, start: from, end: to, waiter: None });
        }
        need
    }

    /// A read has ended.
    pub(crate) fn read_ended(&mut self, file: FileIndex, after: ReadAheadState) {
        self.files[file.0].state = after;
    }

    /// A fetch was queued for the disk.
    pub(crate) fn set_coming(&mut self, fetch: Fetch, op: OpId) {
        self.files[fetch.file.0].pages[fetch.start as usize..fetch.end as usize].fill(PageState::Coming(op));
    }

    /// It arrived.
    pub(crate) fn set_present(&mut self, fetch: Fetch) {
        self.files[fetch.file.0].pages[fetch.start as usize..fetch.end as usize].fill(PageState::Present);
    }

    /// Adds the absent pages of `wanted`.
    fn want(&self, need: &mut Need, wanted: Fetch) {
        let pages = &self.files[wanted.file.0].pages;
        let mut absent_from = None;
        for at in wanted.start..wanted.end {
            match pages[at as usize] {
                PageState::Absent => {
                    absent_from.get_or_insert(at);
                    continue;
                }
                PageState::Coming(op) if wanted.waiter.is_some() && !need.coming.contains(&op) => {
                    need.coming.push(op);
                }
                PageState::Coming(_) | PageState::Present => {}
            }
            if let Some(start) = absent_from.take() {
                need.fetches.push(Fetch { start, end: at, ..wanted });
            }
        }
        if let Some(start) = absent_from {
            need.fetches.push(Fetch { start, ..wanted });
        }
    }
}

impl ReadAheadState {
    /// Records a read of pages `first..last` of a file with `length` pages; returns the pages to read ahead.
    fn read(&mut self, params: ReadAheadParams, first: u32, last: u32, length: u32) -> Option<(u32, u32)> {
        let is_sequential = first == self.next;
        self.next = last;
        if !is_sequential {
            self.window = 0;
            return None;
        }
        let (least, most) = (page_at(params.first / PAGE), page_at(params.max / PAGE));
        self.window = if self.window == 0 { least } else { (2 * self.window).min(most) };
        self.ahead = self.ahead.max(last);
        if self.window < self.ahead - last {
            return None;
        }
        let from = self.ahead.min(length);
        self.ahead = (from + self.window).min(length);
        (from < self.ahead).then_some((from, self.ahead))
    }
}

fn page_at(number: u64) -> u32 {
    u32::try_from(number).expect("files of the model are shorter than 16 TiB")
}
