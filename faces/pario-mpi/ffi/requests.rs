//! Accesses that do not block, as generalized requests of the MPI library.
//!
//! Where the library asks a function of ours whether a request is done (MPICH), or the program has MPI_THREAD_MULTIPLE, a thread
//! does the access while the program goes on. Elsewhere the access is done at once and its request is complete from the start.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

use pario_mpi::{Outcome, Place, Pool, Problem, Result, Together};

use super::access::{self, Buffer};
use super::api::{self, Status};
use super::errors;
use super::table::Opened;
use crate::abi::{self, Request};

/// An access for a thread.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Reading or writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Read,
    Write,
}

/// How requests are completed here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Completion {
    /// MPI asks.
    Polled,
    /// A thread tells MPI.
    Told,
    /// At the start.
    Started,
}

fn completion() -> Completion {
    if api::has_polled_requests() {
        return Completion::Polled;
    }
    let mut level = 0;
    match api::query_thread(&raw mut level) {
        Ok(()) if level == abi::THREAD_MULTIPLE => Completion::Told,
        Ok(()) | Err(_) => Completion::Started,
    }
}

/// A request under way.
#[derive(Debug)]
struct State {
    outcome: Arc<Outcome>,
    /// Known right after the request was made; completed once.
    request: Mutex<Option<Handle>>,
}

#[derive(Clone, Copy, Debug)]
struct Handle(Request);
// SAFETY: a handle, which any thread may pass to the MPI library that made it.
unsafe impl Send for Handle {}

/// Starts an access; returns its request.
pub(crate) fn start(
    opened: &Arc<Opened>,
    way: Way,
    place: Place,
    together: Together,
    buffer: Buffer,
) -> Result<Request> {
    let completion = completion();
    // Conversion calls MPI or the program: that is done on the program's own thread.
    if completion == Completion::Started || access::representation(opened).is_some() {
        let ended = match way {
            Way::Read => access::read(opened, place, together, buffer),
            Way::Write => access::write(opened, place, together, buffer),
        };
        return complete(ended?);
    }
    let (job, outcome) = prepare(opened, way, place, together, buffer)?;
    let state = Arc::new(State { outcome: Arc::clone(&outcome), request: Mutex::new(None) });
    let raw = Arc::into_raw(Arc::clone(&state)).cast_mut().cast::<c_void>();
    let mut request = crate::abi::request_none();
    match completion {
        Completion::Polled => {
            let functions: (api::QueryFn, api::FreeFn, api::CancelFn, api::QueryFn, api::WaitFn) =
                (query, free, cancel, poll, wait);
            api::grequest_start_polled(functions, raw, &raw mut request).unwrap_or(Ok(()))?;
        }
        Completion::Told | Completion::Started => {
            api::grequest_start(query, free, cancel, raw, &raw mut request)?
        }
    }
    *state.request.lock().unwrap_or_else(PoisonError::into_inner) = Some(Handle(request));
    let run: Job = match completion {
        Completion::Polled => job,
        Completion::Told | Completion::Started => Box::new(move || {
            job();
            state.complete();
        }),
    };
    let queue = if together == Together::Yes { opened.file.line() } else { Pool::independent() };
    queue.run(run)?;
    Ok(request)
}

/// The access as a job for a thread, its pointer moved already.
pub(crate) fn prepare(
    opened: &Arc<Opened>,
    way: Way,
    place: Place,
    together: Together,
    buffer: Buffer,
) -> Result<(Job, Arc<Outcome>)> {
    let mut memory = opened.file.or_nothing(together, way == Way::Read, buffer.memory())?;
    let at = opened.file.start_at(way == Way::Read, place, together, memory.bytes())?;
    let (outcome, opened) = (Outcome::new(), Arc::clone(opened));
    let told = Arc::clone(&outcome);
    let job = move || {
        told.tell(errors::protected(|| match way {
            Way::Read => opened.file.read_at(at, together, &mut memory),
            Way::Write => opened.file.write_at(at, together, &memory),
        }));
    };
    Ok((Box::new(job), outcome))
}

/// A request that is complete from the start.
pub(crate) fn complete(bytes: u64) -> Result<Request> {
    let outcome = Outcome::new();
    outcome.tell(Ok(bytes));
    let state = Arc::new(State { outcome, request: Mutex::new(None) });
    let mut request = crate::abi::request_none();
    let raw = Arc::into_raw(state).cast_mut().cast::<c_void>();
    api::grequest_start(query, free, cancel, raw, &raw mut request)?;
    api::grequest_complete(request)?;
    Ok(request)
}

impl State {
    /// Tells MPI, once.
    fn complete(&self) {
        let request = self.request.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Handle(request)) = request {
            // A library that cannot complete it lets the program wait; there is nobody else to tell.
            let _ = api::grequest_complete(request);
        }
    }
}

/// The state of a request.
///
/// # Safety
/// `state` is what `start` or `complete` gave to the MPI library, and `free` has not been called.
unsafe fn state_of<'a>(state: *mut c_void) -> &'a State {
    // SAFETY: promised by the caller; the library holds one count of it.
    unsafe { &*state.cast::<State>() }
}

unsafe extern "C" fn query(state: *mut c_void, status: *mut Status) -> c_int {
    // SAFETY: the library calls it with what it was given, before `free`.
    let state = unsafe { state_of(state) };
    match state.outcome.now().unwrap_or(Ok(0)).and_then(|bytes| access::tell(status, bytes)) {
        Ok(()) => 0,
        Err(problem) => {
            let _ = access::tell(status, 0);
            code(&problem)
        }
    }
}

fn code(problem: &Problem) -> c_int {
    errors::code_of(problem)
}

unsafe extern "C" fn free(state: *mut c_void) -> c_int {
    // SAFETY: the library's own count of it, given back once.
    drop(unsafe { Arc::from_raw(state.cast::<State>().cast_const()) });
    0
}

/// An access that has begun is not cancelled.
unsafe extern "C" fn cancel(_state: *mut c_void, _complete: c_int) -> c_int {
    0
}

unsafe extern "C" fn poll(state: *mut c_void, _status: *mut Status) -> c_int {
    // SAFETY: the library calls it with what it was given, before `free`.
    let state = unsafe { state_of(state) };
    if state.outcome.asked().is_some() {
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
        // SAFETY: each is what it was given, before `free`.
        let state = unsafe { state_of(state) };
        let _ = state.outcome.wait();
        state.complete();
    }
    0
}
