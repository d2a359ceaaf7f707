//! The program's MPI library: found at run time, among the loaded libraries.
//!
//! Never: loads a library. Always: a library of another ABI is reported before any of its functions is called with incompatible
//! handles.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::abi;

/// A symbol of the MPI library, looked up once.
#[derive(Debug)]
pub(crate) struct Symbol {
    name: &'static str,
    found: AtomicPtr<c_void>,
}

impl Symbol {
    pub(crate) const fn new(name: &'static str) -> Symbol {
        Symbol { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null if the library has none.
    pub(crate) fn address_or_null(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let Ok(name) = CString::new(self.name) else { return known };
        // SAFETY: the handle is RTLD_NEXT or a result of `dlopen` that is never closed; the name ends with a zero.
        let found = unsafe { libc::dlsym(library(), name.as_ptr()) };
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// Address of a data symbol. The program may have its own copy, which then is used by the library too. Ends the program if
    /// the symbol is missing: no call works without it.
    #[cfg(feature = "data-handles")]
    pub(crate) fn data(&self) -> *mut c_void {
        let known = self.found.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let Ok(name) = CString::new(self.name) else { return known };
        // SAFETY: RTLD_DEFAULT is a handle; the name ends with a zero.
        let first = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        if !first.is_null() {
            self.found.store(first, Ordering::Relaxed);
            return first;
        }
        let found = self.address_or_null();
        if found.is_null() {
            end(&format!("the MPI library has no {}", self.name));
        }
        found
    }
}

/// A function of the MPI library as a typed pointer; `None` if it has none.
macro_rules! real {
    ($name:expr, fn($($ty:ty),*) -> $ret:ty) => {{
        static PLACE: $crate::ffi::Symbol = $crate::ffi::Symbol::new($name);
        let place = PLACE.address_or_null();
        // SAFETY: the symbol of this name has this signature, by the standard and the ABI; null becomes `None`.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Option<unsafe extern "C" fn($($ty),*) -> $ret>>(place) }
    }};
}

/// The handle of the MPI library for `dlsym`.
fn library() -> *mut c_void {
    struct LibraryHandle(*mut c_void);
    // SAFETY: `dlsym` may be called with it by any thread.
    unsafe impl Send for LibraryHandle {}
    // SAFETY: the same.
    unsafe impl Sync for LibraryHandle {}
    static LIBRARY: OnceLock<LibraryHandle> = OnceLock::new();
    LIBRARY.get_or_init(|| LibraryHandle(find())).0
}

fn find() -> *mut c_void {
    if let Some(handle) = abi::SONAMES.iter().find_map(|name| loaded(name)) {
        return handle;
    }
    if let Some((name, instead)) = other_abi() {
        end(&wrong_abi(name, instead));
    }
    // Linked into the program, or under an unknown name.
    // SAFETY: RTLD_NEXT is a handle; the name ends with a zero.
    if unsafe { libc::dlsym(libc::RTLD_NEXT, c"PMPI_Init".as_ptr()) }.is_null() {
        end(&format!("no MPI library of {} is loaded (looked for {:?})", abi::NAME, abi::SONAMES));
    }
    libc::RTLD_NEXT
}

/// A library that is already loaded, also with local symbols (as under Python).
fn loaded(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name ends with a zero; RTLD_NOLOAD runs no code of the library.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(handle)
}

fn other_abi() -> Option<(&'static CStr, &'static str)> {
    abi::OTHERS.iter().copied().find(|(name, _)| loaded(name).is_some())
}

fn wrong_abi(name: &CStr, instead: &str) -> String {
    let name = name.to_string_lossy();
    format!("{} is preloaded, but the program uses {name}: preload {instead} instead", abi::LIBRARY)
}

/// Prints the reason and ends the program.
fn end(why: &str) -> ! {
    eprintln!("pario: {why}");
    std::process::abort()
}

/// Runs when this library is loaded, before the program: a preload of the wrong ABI is reported immediately.
extern "C" fn check_abi(_count: c_int, _words: *const *const c_char, _environment: *const *const c_char) {
    let own = abi::SONAMES.iter().any(|name| loaded(name).is_some());
    if let Some((name, instead)) = other_abi().filter(|_| !own) {
        eprintln!("pario: {}", wrong_abi(name, instead));
        // SAFETY: ends the process; nothing of it has run yet.
        unsafe { libc::_exit(1) }
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static CHECK_ABI: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = check_abi;
