//! POSIX calls on Pario's paths and descriptors; all other calls go to the C library.
//!
//! A descriptor of Pario's is a real descriptor of the null device, so that no other file gets its number.
//!
//! Never: takes a lock or memory for a call that is not Pario's, after the environment has been read once. Always: Pario's
//! internal calls go to the C library, since its own paths and descriptors are not Pario's.

mod copies;
mod descriptors;
mod locks;
mod mapping;
mod paths;
mod refused;
mod streams;
mod vectors;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

use pario_mpi::posix::{Posix, PosixFile, PosixPath, posix_path, report_paths};

use super::errors::protected;

/// A function of the C library, overridden by this library.
macro_rules! libc_call {
    ($name:literal, fn($($ty:ty),*) -> $ret:ty) => {{
        static FOUND: std::sync::atomic::AtomicPtr<std::ffi::c_void> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        let mut place = FOUND.load(std::sync::atomic::Ordering::Relaxed);
        if place.is_null() {
            // SAFETY: RTLD_NEXT is a handle; the name ends with a zero.
            place = unsafe { libc::dlsym(libc::RTLD_NEXT, concat!($name, "\0").as_ptr().cast()) };
            FOUND.store(place, std::sync::atomic::Ordering::Relaxed);
        }
        // SAFETY: the C library's function of this name has this signature; null becomes `None`.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<unsafe extern "C" fn($($ty),*) -> $ret>>(place) }
    }};
}
pub(crate) use libc_call;

static FILES: RwLock<Option<HashMap<c_int, Arc<PosixFile>>>> = RwLock::new(None);
/// Number of descriptors: a program that has none pays for one load.
static OPEN: AtomicUsize = AtomicUsize::new(0);

/// The file of a descriptor; `None`: it is not Pario's.
fn file_of(descriptor: c_int) -> Option<Arc<PosixFile>> {
    if OPEN.load(Ordering::Relaxed) == 0 {
        return None;
    }
    FILES.read().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&descriptor).map(Arc::clone)
}

/// Creates a descriptor for a file.
fn describe(file: PosixFile) -> Posix<c_int> {
    // SAFETY: the path ends with a zero; the call has no other conditions.
    let descriptor =
        unsafe { libc::openat(libc::AT_FDCWD, c"/dev/null".as_ptr(), libc::O_PATH | libc::O_CLOEXEC) };
    if descriptor < 0 {
        return Err(libc::EMFILE);
    }
    name(descriptor, Arc::new(file));
    Ok(descriptor)
}

/// Binds a descriptor to a file; returns the file that it was bound to before.
fn name(descriptor: c_int, file: Arc<PosixFile>) -> Option<Arc<PosixFile>> {
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    let before = files.get_or_insert_default().insert(descriptor, file);
    if before.is_none() {
        OPEN.fetch_add(1, Ordering::Relaxed);
    }
    before
}

/// Registers the report of served calls at the end of the program.
fn report_at_end() {
    static OWNER: AtomicU32 = AtomicU32::new(0);
    extern "C" fn report() {
        // A forked child has its parent's counts.
        if OWNER.load(Ordering::Relaxed) != std::process::id() {
            return;
        }
        // A panic was printed to standard error.
        let _ = protected(|| {
            let files = FILES.read().unwrap_or_else(PoisonError::into_inner);
            files.iter().flat_map(HashMap::values).for_each(|file| file.report());
            report_paths();
            Ok(())
        });
    }
    static ASKED: Once = Once::new();
    ASKED.call_once(|| {
        OWNER.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the function lives as long as this library, which is never unloaded. If registration fails, nothing is
        // reported.
        let _ = unsafe { libc::atexit(report) };
    });
}

fn forget(descriptor: c_int) -> Option<Arc<PosixFile>> {
    if OPEN.load(Ordering::Relaxed) == 0 {
        return None;
    }
    let mut files = FILES.write().unwrap_or_else(PoisonError::into_inner);
    let file = files.as_mut()?.remove(&descriptor)?;
    OPEN.fetch_sub(1, Ordering::Relaxed);
    Some(file)
}

/// Resolves a path; `None`: a path of the C library.
fn ours(path: *const c_char) -> Option<Posix<PosixPath>> {
    static MAPPED: OnceLock<bool> = OnceLock::new();
    if path.is_null() {
        return None;
    }
    // SAFETY: the program passes a string that ends with a zero.
    let name = unsafe { CStr::from_ptr(path) };
    let mapped = || *MAPPED.get_or_init(|| std::env::var_os("PARIO_MAP").is_some_and(|map| !map.is_empty()));
    let bytes = name.to_bytes();
    if !bytes.starts_with(b"pario://") && !bytes.starts_with(b"//") && !mapped() {
        return None;
    }
    let name = name.to_str().ok()?;
    let found = protected(|| Ok(posix_path(name))).unwrap_or(Err(libc::EIO));
    match found {
        Ok(None) => None,
        Ok(Some(place)) => {
            report_at_end();
            Some(Ok(place))
        }
        Err(number) => Some(Err(number)),
    }
}

/// Sets `errno` and returns -1.
fn failed(number: c_int) -> c_int {
    // SAFETY: the C library gives each thread its own variable.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the same.
    unsafe { place.write(number) };
    -1
}

/// A call without a value.
fn done(work: impl FnOnce() -> Posix<()>) -> c_int {
    match protected(|| Ok(work())).unwrap_or(Err(libc::EIO)) {
        Ok(()) => 0,
        Err(number) => failed(number),
    }
}

/// A call that returns a count.
fn counted(work: impl FnOnce() -> Posix<i64>) -> i64 {
    match protected(|| Ok(work())).unwrap_or(Err(libc::EIO)) {
        Ok(count) => count,
        Err(number) => failed(number).into(),
    }
}
