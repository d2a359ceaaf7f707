//! Calls that are not supported on Pario's paths yet: a matching error number and a message, instead of a missing file.

use std::ffi::{c_char, c_void};
use std::ptr::null_mut;

use pario_mpi::posix::refuse;

use super::{failed, libc_call, ours};

/// Alternative to reopening a stream.
const STREAM: &str = "use fclose and fopen";
/// Alternative to a directory listing.
const LISTING: &str = "list it with `pario ls`";

/// Refuses the call if the path is Pario's.
fn refused(function: &'static str, path: *const c_char, cure: &str) -> bool {
    match ours(path) {
        None => return false,
        Some(Err(number)) => {
            failed(number);
        }
        Some(Ok(place)) => {
            refuse(function, &place.name(), cure);
            failed(libc::ENOTSUP);
        }
    }
    true
}

/// `NAME(path, arguments) -> pointer`
macro_rules! refused_paths {
    ($($name:ident $symbol:literal ($($arg:ident: $ty:ty),*) $cure:expr;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char $(, $arg: $ty)*) -> *mut c_void {
            if refused($symbol, path, $cure) {
                return null_mut();
            }
            let Some(real) = libc_call!($symbol, fn(*const c_char $(, $ty)*) -> *mut c_void) else {
                failed(libc::ENOSYS);
                return null_mut();
            };
            // SAFETY: the program's arguments as they came.
            unsafe { real(path $(, $arg)*) }
        }
    )* };
}

refused_paths! {
    freopen "freopen" (mode: *const c_char, stream: *mut c_void) STREAM;
    freopen64 "freopen64" (mode: *const c_char, stream: *mut c_void) STREAM;
    opendir "opendir" () LISTING;
}
