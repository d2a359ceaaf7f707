//! Files that handles stand for, and requests under way.
//!
//! Never: gives the number of a request again while it is under way. Always: memory of the program is used only between the start of a
//! request and its end.

use std::collections::HashMap;
use std::ffi::{c_char, c_int};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use pario_api::distant::{DistantFile, DistantFiles, DistantRequest, SharedFile};

use crate::ffi::per_process::PerProcess;
use crate::handles::{HandleKind, HandleTable};

/// A finished request.
pub(super) const DONE: c_int = -1;
/// Requests that a program may have started and not waited for.
const REQUESTS_MAX: usize = 1 << 20;

pub(super) static FILES: HandleTable<Arc<FileEntry>> = HandleTable::new(HandleKind::Distant);
static REQUESTS: PerProcess<Mutex<RequestTable>> = PerProcess::new();

/// What a handle stands for.
#[derive(Debug)]
pub(super) enum FileEntry {
    Shared(SharedEntry),
    Registered(RwLock<Option<DistantFiles>>),
    Opened(RwLock<Option<DistantFile>>),
}

/// A file of `sf.h`.
#[derive(Debug)]
pub(super) struct SharedEntry {
    pub(super) file: RwLock<Option<SharedFile>>,
    /// Between `SF_Close` and `SF_Open`.
    pub(super) is_closed: AtomicBool,
    /// After `SF_Rwtor`.
    pub(super) is_read_only: AtomicBool,
}

/// Memory of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct ForeignBuffer {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the program leaves the memory alone until the request is complete, and says so by calling the function.
unsafe impl Send for ForeignBuffer {}
// SAFETY: as above.
unsafe impl Sync for ForeignBuffer {}

impl ForeignBuffer {
    /// # Safety
    /// The memory has so many bytes and is left alone by the program until the request is complete.
    pub(super) unsafe fn new(start: *mut c_char, bytes: usize) -> ForeignBuffer {
        let start = if bytes == 0 { std::ptr::dangling_mut() } else { start.cast() };
        ForeignBuffer { start, bytes }
    }
}

impl AsRef<[u8]> for ForeignBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the promise of `new`.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl AsMut<[u8]> for ForeignBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the promise of `new`; one request has one buffer.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

/// A request of the program.
#[derive(Debug)]
pub(super) struct StartedRequest {
    pub(super) pending: DistantRequest<ForeignBuffer>,
    pub(super) writes: bool,
}

#[derive(Debug, Default)]
struct RequestTable {
    open: HashMap<c_int, StartedRequest>,
    last: c_int,
}

fn table() -> std::sync::MutexGuard<'static, RequestTable> {
    REQUESTS.get(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives a request its number; `None`: too many are open.
pub(super) fn keep(request: StartedRequest) -> Option<c_int> {
    let mut table = table();
    if REQUESTS_MAX <= table.open.len() {
        return None;
    }
    loop {
        table.last = table.last.checked_add(1).unwrap_or(1);
        let number = table.last;
        if let std::collections::hash_map::Entry::Vacant(slot) = table.open.entry(number) {
            slot.insert(request);
            return Some(number);
        }
    }
}

/// Takes a request out.
pub(super) fn take(number: c_int) -> Option<StartedRequest> {
    table().open.remove(&number)
}

/// Whether a request is complete; `None`: unknown.
pub(super) fn test(number: c_int) -> Option<bool> {
    table().open.get(&number).map(|request| request.pending.test())
}
