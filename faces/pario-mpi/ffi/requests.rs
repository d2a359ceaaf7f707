//! Non-blocking accesses, as generalized requests of the MPI library.
//!
//! Where the library polls a function (MPICH), or the program has MPI_THREAD_MULTIPLE, a thread does the access while the program
//! continues. Elsewhere the access is done immediately and its request is complete from the start.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use pario_mpi::{AccessOrigin, AccessOutcome, MpiError, Result, Together, WorkerPool};

use super::access::{self, Buffer};
use super::api::{self, Status};
use super::errors;
use super::table::OpenHandle;
use crate::abi::{self, Request};

/// An access for a thread.
pub(crate) type RequestJob = Box<dyn FnOnce() + Send>;

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestDirection {
    Read,
    Write,
}

/// How requests are completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RequestCompletion {
    /// The MPI library polls.
    Polled,
    /// A thread calls MPI.
    Told,
    /// Complete when created.
    Started,
}

fn completion() -> RequestCompletion {
    if api::has_polled_requests() {
        return RequestCompletion::Polled;
    }
    let mut level = 0;
    match api::query_thread(&raw mut level) {
        Ok(()) if level == abi::THREAD_MULTIPLE => RequestCompletion::Told,
        Ok(()) | Err(_) => RequestCompletion::Started,
    }
}

/// A request in progress.
#[derive(Debug)]
struct RequestState {
    outcome: Arc<AccessOutcome>,
    /// Set right after the request is created; completed once.
    request: Mutex<Option<RequestHandle>>,
}

#[derive(Clone, Copy, Debug)]
struct RequestHandle(Request);
// SAFETY: a handle, which any thread may pass to the MPI library that made it.
unsafe impl Send for RequestHandle {}

/// Starts an access; returns its request.
pub(crate) fn start(
    opened: &Arc<OpenHandle>,
    way: RequestDirection,
    place: AccessOrigin,
    together: Together,
    buffer: Buffer,
) -> Result<Request> {
    let completion = completion();
    // Conversion calls MPI or the program, so it runs on the program's own thread.
    if completion == RequestCompletion::Started || access::representation(opened).is_some() {
        let ended = match way {
            RequestDirection::Read => access::read(opened, place, together, buffer),
            RequestDirection::Write => access::write(opened, place, together, buffer),
        };
        return complete(ended?);
    }
    let (job, outcome) = prepare(opened, way, place, together, buffer)?;
    let state = Arc::new(RequestState { outcome: Arc::clone(&outcome), request: Mutex::new(None) });
    let raw = Arc::into_raw(Arc::clone(&state)).cast_mut().cast::<c_void>();
    let mut request = crate::abi::request_none();
    match completion {
        RequestCompletion::Polled => {
            let functions: (api::QueryFn, api::FreeFn, api::CancelFn, api::QueryFn, api::WaitFn) =
                (query, free, cancel, poll, wait);
            api::grequest_start_polled(functions, raw, &raw mut request).unwrap_or(Ok(()))?;
        }
        RequestCompletion::Told | RequestCompletion::Started => {
            api::grequest_start(query, free, cancel, raw, &raw mut request)?
        }
    }
    *state.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(RequestHandle(request));
    let run: RequestJob = match completion {
        RequestCompletion::Polled => job,
        RequestCompletion::Told | RequestCompletion::Started => Box::new(move || {
            job();
            state.complete();
        }),
    };
    match together {
        Together::Yes => opened.file.queue().start(run)?,
        Together::No => WorkerPool::independent().run(run)?,
    }
    Ok(request)
}

/// The access as a job for a thread, with its pointer already advanced.
pub(crate) fn prepare(
    opened: &Arc<OpenHandle>,
    way: RequestDirection,
    place: AccessOrigin,
    together: Together,
    buffer: Buffer,
) -> Result<(RequestJob, Arc<AccessOutcome>)> {
    let mut memory = opened.file.or_nothing(together, way == RequestDirection::Read, buffer.memory())?;
    let at = opened.file.start_at(way == RequestDirection::Read, place, together, memory.bytes())?;
    let (outcome, opened) = (AccessOutcome::new(), Arc::clone(opened));
    let told = Arc::clone(&outcome);
    let job = move || {
        told.finish(errors::protected(|| match way {
            RequestDirection::Read => opened.file.read_at(at, together, &mut memory),
            RequestDirection::Write => opened.file.write_at(at, together, &memory),
        }));
    };
    Ok((Box::new(job), outcome))
}

/// A request that is complete from the start.
pub(crate) fn complete(bytes: u64) -> Result<Request> {
    let outcome = AccessOutcome::new();
    outcome.finish(Ok(bytes));
    let state = Arc::new(RequestState { outcome, request: Mutex::new(None) });
    let mut request = crate::abi::request_none();
    let raw = Arc::into_raw(state).cast_mut().cast::<c_void>();
    api::grequest_start(query, free, cancel, raw, &raw mut request)?;
    api::grequest_complete(request)?;
    Ok(request)
}

impl RequestState {
    /// Completes the request at MPI, once.
    fn complete(&self) {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(RequestHandle(request)) = request {
            // If the library cannot complete it, the program waits; the error cannot be reported to a caller.
            let _ = api::grequest_complete(request);
        }
    }
}

/// The state of a request.
///
/// # Safety
/// `state` was passed to the MPI library by `start` or `complete`, and `free` has not been called.
unsafe fn state_of<'a>(state: *mut c_void) -> &'a RequestState {
    // SAFETY: promised by the caller; the library holds one reference.
    unsafe { &*state.cast::<RequestState>() }
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut Status) -> c_int {
    // SAFETY: the library passes the registered state, before `free`.
    let state = unsafe { state_of(state) };
    match state.outcome.now().unwrap_or(Ok(0)).and_then(|bytes| access::tell(status, bytes)) {
        Ok(()) => 0,
        Err(problem) => {
            let _ = access::tell(status, 0);
            code(&problem)
        }
    }
}

fn code(problem: &MpiError) -> c_int {
    errors::code_of(problem)
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the library's own reference, released once.
    drop(unsafe { Arc::from_raw(state.cast::<RequestState>().cast_const()) });
    0
}

/// An access that has begun is not cancelled.
unsafe extern "C" fn cancel(_state: *mut c_void, _complete: c_int) -> c_int {
    0
}

unsafe extern "C" fn poll(state: *mut c_void, _status: *mut Status) -> c_int {
    // SAFETY: the library passes the registered state, before `free`.
    let state = unsafe { state_of(state) };
    if state.outcome.now().is_some() {
        state.complete();
    }
    0
}

unsafe extern "C" fn wait(
    count: c_int,
    states: *mut *mut c_void,
    _limit: f64,
    _status: *mut Status,
) -> c_int {
    for at in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the library passes an array of so many states.
        let place = unsafe { states.add(at) };
        // SAFETY: the same.
        let state = unsafe { place.read() };
        // SAFETY: each is a registered state, before `free`.
        let state = unsafe { state_of(state) };
        let _ = state.outcome.wait();
        state.complete();
    }
    0
}
