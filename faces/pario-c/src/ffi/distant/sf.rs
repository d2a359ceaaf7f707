//! `sf.h`: shared files with the names, types and numbers that Global Arrays has published.
//!
//! Never: sends a request with an offset or length that a file cannot have. Always: a number that is not 0 has a sentence.

use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use pario_api::distant::{SharedFile, SharedFileOptions};

use super::codes::{self, SfError};
use super::entries::{DONE, FILES, FileEntry, ForeignBuffer, SharedEntry, StartedRequest, keep, take};
use super::world;
use crate::ffi::call::{path, string};
use crate::last_error::{self, CallError};

/// Largest whole number that a double has exactly.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
/// Longest name.
const PATH_BYTES_MAX: usize = 4095;
/// Bytes of a message for `SF_Errmsg`, with its end.
const MESSAGE_BYTES: usize = 80;

type SfResult = Result<u64, SfError>;

/// Runs a call: 0, or a number, with the sentence kept.
pub(super) fn status(run: impl FnOnce() -> SfResult) -> c_int {
    let panicked = |_| Err(SfError::new(codes::UNKNFAIL, "a defect of Pario: the call panicked"));
    match catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(panicked) {
        Ok(count) => {
            last_error::record(&Ok(count));
            0
        }
        Err(error) => {
            codes::remember(&error);
            let SfError { code, text, count, errno } = error;
            last_error::record(&Err(CallError { code: code.into(), errno, text, count }));
            code
        }
    }
}

fn failed(general: c_int) -> impl Fn(CallError) -> SfError {
    move |error| SfError { code: general, text: error.text, count: 0, errno: error.errno }
}

/// A size or offset.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked")]
fn whole(number: f64, what: &str) -> Result<u64, SfError> {
    if (0.0..=EXACT_MAX).contains(&number) && number.fract() == 0.0 {
        return Ok(number as u64);
    }
    Err(SfError::new(codes::SEEKFAIL, format!("{what} {number} is negative, fractional or beyond 2^53")))
}

/// A limit or request size: unknown if it is not positive.
fn hint(number: f64) -> Option<u64> {
    whole(number.floor(), "hint").ok().filter(|bytes| *bytes != 0)
}

pub(super) struct CreateArgs {
    pub(super) name: *const c_char,
    pub(super) limits: (f64, f64),
    pub(super) request: f64,
    pub(super) suffix: Option<i64>,
}

/// # Safety
/// The name is a string.
pub(super) unsafe fn create(args: &CreateArgs) -> Result<c_int, SfError> {
    // SAFETY: the caller's promise.
    let name = unsafe { string(args.name, "SF_Create: the name") }.map_err(failed(codes::OPENFAIL))?;
    if PATH_BYTES_MAX < name.count_bytes() {
        let text = format!("the name has {} bytes; the limit is {PATH_BYTES_MAX}", name.count_bytes());
        return Err(SfError::new(codes::LONGFAIL, text));
    }
    let distant = world::joined().map_err(failed(codes::OPENFAIL))?;
    let options = SharedFileOptions::for_requests(hint(args.request).unwrap_or(0));
    let options = options.path(path(name)).limits(hint(args.limits.0), hint(args.limits.1));
    let options = args.suffix.into_iter().fold(options, SharedFileOptions::suffix);
    let file = distant.create(&options).map_err(|error| SfError::of(&error, codes::OPENFAIL))?;
    let entry = SharedEntry {
        file: RwLock::new(Some(file)),
        is_closed: AtomicBool::new(false),
        is_read_only: AtomicBool::new(false),
    };
    let refused = |refusal: crate::handles::HandleRefusal| SfError::new(codes::OPENFAIL, refusal.to_string());
    FILES.insert(Arc::new(FileEntry::Shared(entry))).map_err(refused)
}

/// # Safety
/// `name` is a string, `handle` the address of a variable.
unsafe fn create_at(args: &CreateArgs, handle: *mut c_int) -> c_int {
    status(|| {
        if handle.is_null() {
            return Err(SfError::new(codes::HANDFAIL, "SF_Create: the handle is a null pointer"));
        }
        // SAFETY: the caller's promise.
        let number = unsafe { create(args) }?;
        // SAFETY: not null; the caller's promise.
        unsafe { *handle = number };
        Ok(0)
    })
}

fn entry(handle: i64) -> Result<Arc<FileEntry>, SfError> {
    let number = c_int::try_from(handle).map_err(|_| {
        let text = format!(
            "{handle} is not a handle: is the program compiled for the INTEGER size of the other library?"
        );
        SfError::new(codes::HANDFAIL, text)
    })?;
    FILES.get(number).map_err(|refusal| SfError::new(codes::HANDFAIL, refusal.to_string()))
}

fn with<T>(
    handle: i64,
    work: impl FnOnce(&SharedEntry, &SharedFile) -> Result<T, SfError>,
) -> Result<T, SfError> {
    let entry = entry(handle)?;
    let FileEntry::Shared(shared) = &*entry else {
        return Err(SfError::new(codes::HANDFAIL, format!("{handle} is a handle of dio.h")));
    };
    let file = shared.file.read().unwrap_or_else(PoisonError::into_inner);
    let ended = || SfError::new(codes::HANDFAIL, format!("file {handle} was destroyed"));
    work(shared, file.as_ref().ok_or_else(ended)?)
}

fn check_open(shared: &SharedEntry) -> Result<(), SfError> {
    match shared.is_closed.load(Ordering::Acquire) {
        false => Ok(()),
        true => Err(SfError::new(codes::HANDFAIL, "the file is closed: call SF_Open")),
    }
}

pub(super) fn destroy(handle: i64) -> SfResult {
    with(handle, |_, _| Ok(()))?;
    let number = c_int::try_from(handle).unwrap_or(DONE);
    let taken = FILES.remove(number);
    let distant = world::current().map_err(failed(codes::DELFAIL))?;
    let Some(FileEntry::Shared(shared)) = taken.as_deref() else { return Ok(0) };
    let file = shared.file.write().unwrap_or_else(PoisonError::into_inner).take();
    match file {
        Some(file) => file.destroy(&distant).map(|()| 0).map_err(|error| SfError::of(&error, codes::DELFAIL)),
        None => Ok(0),
    }
}

pub(super) fn rwtor(handle: i64) -> SfResult {
    with(handle, |shared, _| {
        check_open(shared)?;
        shared.is_read_only.store(true, Ordering::Release);
        Ok(0)
    })
}

pub(super) fn set_closed(handle: i64, is_closed: bool) -> SfResult {
    with(handle, |shared, _| {
        shared.is_closed.store(is_closed, Ordering::Release);
        Ok(0)
    })
}

pub(super) fn fsync(handle: i64) -> SfResult {
    with(handle, |shared, file| {
        check_open(shared)?;
        file.sync().map(|()| 0).map_err(|error| SfError::of(&error, codes::FSYNCFAIL))
    })
}

/// Starts a transfer; the number of its request.
///
/// # Safety
/// `buffer` has so many bytes, and is left alone until the request is complete.
pub(super) unsafe fn start(
    handle: i64,
    (offset, bytes): (f64, f64),
    buffer: *mut c_char,
    writes: bool,
) -> Result<c_int, SfError> {
    with(handle, |shared, file| {
        check_open(shared)?;
        if writes && shared.is_read_only.load(Ordering::Acquire) {
            return Err(SfError::new(codes::MODEFAIL, "the file is read-only since SF_Rwtor"));
        }
        let (at, length) = (whole(offset, "offset")?, whole(bytes, "length")?);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if buffer.is_null() && length != 0 || isize::try_from(length).is_err() {
            return Err(SfError::new(codes::SEEKFAIL, format!("{bytes} bytes at the address {buffer:?}")));
        }
        // SAFETY: the caller's promise.
        let memory = unsafe { ForeignBuffer::new(buffer, length) };
        let general = if writes { codes::WRITFAIL } else { codes::READFAIL };
        let started = match writes {
            true => file.start_write_at(at, memory),
            false => file.start_read_at(at, memory),
        };
        let pending = started.map_err(|error| SfError::of(&error, general))?;
        let full = || SfError::new(general, "too many requests are under way: wait for some");
        keep(StartedRequest { pending, writes }).ok_or_else(full)
    })
}

/// Waits for a request.
pub(super) fn wait(number: i64) -> SfResult {
    if number == i64::from(DONE) {
        return Ok(0);
    }
    let found = c_int::try_from(number).ok().and_then(take);
    let Some(request) = found else {
        return Err(SfError::new(codes::HANDFAIL, format!("{number} is not a request under way")));
    };
    let general = if request.writes { codes::WRITFAIL } else { codes::READFAIL };
    let (result, _) = request.pending.wait_with_buffer();
    result.map(|count| count as u64).map_err(|error| SfError::of(&error, general))
}

/// Creates a shared file; collective.
///
/// # Safety
/// `name` is a string, `handle` the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Create(
    name: *const c_char,
    hard_limit: f64,
    soft_limit: f64,
    request: f64,
    handle: *mut c_int,
) -> c_int {
    let args = CreateArgs { name, limits: (hard_limit, soft_limit), request, suffix: None };
    // SAFETY: the caller's promise.
    unsafe { create_at(&args, handle) }
}

/// Creates a shared file with named components; collective.
///
/// # Safety
/// `name` is a string, `handle` the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Create_suffix(
    name: *const c_char,
    hard_limit: f64,
    soft_limit: f64,
    request: f64,
    handle: *mut c_int,
    suffix: c_int,
) -> c_int {
    let args = CreateArgs { name, limits: (hard_limit, soft_limit), request, suffix: Some(suffix.into()) };
    // SAFETY: the caller's promise.
    unsafe { create_at(&args, handle) }
}

macro_rules! handle_calls {
    ($($(#[$doc:meta])* $name:ident($handle:ident) $call:expr;)*) => { $(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($handle: c_int) -> c_int {
            status(|| $call)
        }
    )* };
}

handle_calls! {
    /// Ends and removes a shared file; collective.
    SF_Destroy(handle) destroy(handle.into());
    /// Makes the file read-only for this process.
    SF_Rwtor(handle) rwtor(handle.into());
    /// Opens the file again after `SF_Close`, for this process.
    SF_Open(handle) set_closed(handle.into(), false);
    /// Closes the file for this process.
    SF_Close(handle) set_closed(handle.into(), true);
    /// Puts the file on stable storage.
    SF_Fsync(handle) fsync(handle.into());
}

/// # Safety
/// As the exported functions.
unsafe fn transfer(
    handle: c_int,
    range: (f64, f64),
    buffer: *mut c_char,
    request: *mut c_int,
    writes: bool,
) -> c_int {
    status(|| {
        if request.is_null() {
            return Err(SfError::new(codes::HANDFAIL, "the request is a null pointer"));
        }
        // SAFETY: the caller's promise.
        let number = unsafe { start(handle.into(), range, buffer, writes) };
        // SAFETY: not null; the caller's promise.
        unsafe { *request = *number.as_ref().unwrap_or(&DONE) };
        number.map(|_| 0)
    })
}

/// Starts a write.
///
/// # Safety
/// `buffer` has so many bytes, left alone until the wait; `request` is the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Write(
    handle: c_int,
    offset: f64,
    bytes: f64,
    buffer: *mut c_char,
    request: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { transfer(handle, (offset, bytes), buffer, request, true) }
}

/// Starts a read.
///
/// # Safety
/// `buffer` has so many bytes, left alone until the wait; `request` is the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Read(
    handle: c_int,
    offset: f64,
    bytes: f64,
    buffer: *mut c_char,
    request: *mut c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { transfer(handle, (offset, bytes), buffer, request, false) }
}

/// Waits for a request.
///
/// # Safety
/// `request` is the address of an int.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Wait(request: *mut c_int) -> c_int {
    status(|| {
        if request.is_null() {
            return Err(SfError::new(codes::HANDFAIL, "the request is a null pointer"));
        }
        // SAFETY: not null; the caller's promise.
        let number = unsafe { *request };
        // SAFETY: as above.
        unsafe { *request = DONE };
        wait(number.into())
    })
}

/// Waits for all requests: each is taken by `each` and marked as finished.
pub(super) fn wait_all(requests: impl Iterator<Item = i64>) -> SfResult {
    let failures: Vec<SfError> = requests.filter_map(|number| wait(number).err()).collect();
    match failures.into_iter().next() {
        None => Ok(0),
        Some(first) => Err(SfError { code: codes::WAITALL_FAILED, ..first }),
    }
}

/// Waits for all requests of a list.
///
/// # Safety
/// `list` has `count` ints.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Waitall(list: *mut c_int, count: c_int) -> c_int {
    status(|| {
        let Some(length) = usize::try_from(count).ok().filter(|length| *length == 0 || !list.is_null())
        else {
            return Err(SfError::new(codes::HANDFAIL, format!("{count} requests at the address {list:?}")));
        };
        if length == 0 {
            return Ok(0);
        }
        // SAFETY: not null; the caller's promise.
        let list = unsafe { std::slice::from_raw_parts_mut(list, length) };
        wait_all(list.iter_mut().map(|request| std::mem::replace(request, DONE).into()))
    })
}

/// The sentence of a number, in 80 bytes.
///
/// # Safety
/// `message` has 80 bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn SF_Errmsg(code: c_int, message: *mut c_char) {
    if message.is_null() {
        return;
    }
    let text = codes::short(code, MESSAGE_BYTES - 1);
    // SAFETY: not null; the caller's promise.
    let target = unsafe { std::slice::from_raw_parts_mut(message.cast::<u8>(), text.len() + 1) };
    target[..text.len()].copy_from_slice(&text);
    target[text.len()] = 0;
}
