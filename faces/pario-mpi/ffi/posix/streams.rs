//! Streams (`fopen`, `fdopen`) on Pario's files: streams of the C library with custom I/O functions. `fileno` returns the
//! descriptor of a file of Pario's, which C++ streams read and write.

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock};

use super::descriptors::{close, lseek, read, write};
use super::paths::open_with;
use super::{failed, file_of, libc_call, ours};

/// A stream of the C library, opaque here.
type Stream = *mut c_void;

/// I/O functions of a stream; its cookie is the descriptor.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> isize,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> isize,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    /// Of the GNU C library.
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> Stream;
}

/// Descriptors by streams.
static STREAMS: RwLock<Option<HashMap<usize, c_int>>> = RwLock::new(None);
/// Number of streams: a program that has none pays for one load.
static OPEN: AtomicUsize = AtomicUsize::new(0);

fn descriptor(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C" fn stream_read(cookie: *mut c_void, target: *mut c_char, bytes: usize) -> isize {
    // SAFETY: the stream's own buffer, of so many bytes.
    isize::try_from(unsafe { read(descriptor(cookie), target.cast(), bytes) }).unwrap_or(-1)
}

unsafe extern "C" fn stream_write(cookie: *mut c_void, source: *const c_char, bytes: usize) -> isize {
    // SAFETY: the same.
    let written = unsafe { write(descriptor(cookie), source.cast(), bytes) };
    // A failed write of a stream is reported by 0.
    isize::try_from(written).unwrap_or(0).max(0)
}

unsafe extern "C" fn stream_seek(cookie: *mut c_void, offset: *mut i64, from: c_int) -> c_int {
    // SAFETY: the stream passes the address of a number.
    let wished = unsafe { offset.read() };
    // SAFETY: plain numbers.
    let found = unsafe { lseek(descriptor(cookie), wished, from) };
    if found < 0 {
        return -1;
    }
    // SAFETY: the same address.
    unsafe { offset.write(found) };
    0
}

unsafe extern "C" fn stream_close(cookie: *mut c_void) -> c_int {
    let number = descriptor(cookie);
    if let Some(streams) = STREAMS.write().unwrap_or_else(PoisonError::into_inner).as_mut() {
        let before = streams.len();
        streams.retain(|_, other| *other != number);
        OPEN.fetch_sub(before - streams.len(), Ordering::Relaxed);
    }
    // SAFETY: a plain number.
    unsafe { close(number) }
}

/// Opens a stream on a descriptor of Pario's; null if out of memory: then the descriptor stays the caller's.
fn stream(number: c_int, mode: *const c_char) -> Stream {
    let functions =
        Functions { read: stream_read, write: stream_write, seek: stream_seek, close: stream_close };
    let cookie = std::ptr::without_provenance_mut(usize::try_from(number).unwrap_or(usize::MAX));
    // SAFETY: the mode is the program's string; the functions take this cookie, and live as long as this library.
    let made = unsafe { fopencookie(cookie, mode, functions) };
    if !made.is_null() {
        let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
        streams.get_or_insert_default().insert(made.addr(), number);
        OPEN.fetch_add(1, Ordering::Relaxed);
    }
    made
}

/// The flags of `open` for a mode of `fopen`.
fn flags(mode: *const c_char) -> Result<c_int, c_int> {
    if mode.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program passes a string that ends with a zero.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let both = mode.contains(&b'+');
    let alone = if both { libc::O_RDWR } else { libc::O_WRONLY };
    let exclusive = if mode.contains(&b'x') { libc::O_EXCL } else { 0 };
    match mode.first() {
        Some(b'r') if both => Ok(libc::O_RDWR),
        Some(b'r') => Ok(libc::O_RDONLY),
        Some(b'w') => Ok(alone | libc::O_CREAT | libc::O_TRUNC | exclusive),
        Some(b'a') => Ok(alone | libc::O_CREAT | libc::O_APPEND | exclusive),
        _ => Err(libc::EINVAL),
    }
}

macro_rules! opening {
    ($($name:ident $symbol:literal;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> Stream {
            let number = match (ours(path), flags(mode)) {
                (None, _) => {
                    let Some(real) = libc_call!($symbol, fn(*const c_char, *const c_char) -> Stream) else {
                        failed(libc::ENOSYS);
                        return null_mut();
                    };
                    // SAFETY: the program's arguments as they came.
                    return unsafe { real(path, mode) };
                }
                (Some(Err(number)), _) | (Some(Ok(_)), Err(number)) => failed(number),
                (Some(Ok(place)), Ok(flags)) => open_with(&place, flags, 0o666),
            };
            if number < 0 {
                return null_mut();
            }
            let made = stream(number, mode);
            if made.is_null() {
                // SAFETY: a plain number, unknown to the program.
                unsafe { close(number) };
                failed(libc::ENOMEM);
            }
            made
        }
    )* };
}

opening! {
    fopen "fopen";
    fopen64 "fopen64";
}

/// See POSIX.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fdopen(number: c_int, mode: *const c_char) -> Stream {
    let Some(file) = file_of(number) else {
        let Some(real) = libc_call!("fdopen", fn(c_int, *const c_char) -> Stream) else {
            failed(libc::ENOSYS);
            return null_mut();
        };
        // SAFETY: the program's arguments as they came.
        return unsafe { real(number, mode) };
    };
    let allowed = flags(mode).and_then(|flags| {
        let way = flags & libc::O_ACCMODE;
        let (reads, writes) = (way != libc::O_WRONLY, way != libc::O_RDONLY);
        let may = (!reads || file.mode().read) && (!writes || file.mode().write);
        if may { Ok(flags) } else { Err(libc::EINVAL) }
    });
    match allowed {
        Ok(flags) => {
            if flags & libc::O_APPEND != 0 {
                file.set_append(true);
            }
            stream(number, mode)
        }
        Err(error) => {
            failed(error);
            null_mut()
        }
    }
}

macro_rules! numbers {
    ($($name:ident $symbol:literal;)*) => { $(
        /// See POSIX.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(stream: Stream) -> c_int {
            if OPEN.load(Ordering::Relaxed) != 0 {
                let streams = STREAMS.read().unwrap_or_else(PoisonError::into_inner);
                if let Some(number) = streams.as_ref().and_then(|streams| streams.get(&stream.addr())) {
                    return *number;
                }
            }
            let Some(real) = libc_call!($symbol, fn(Stream) -> c_int) else { return failed(libc::ENOSYS) };
            // SAFETY: the program's argument as it came.
            unsafe { real(stream) }
        }
    )* };
}

numbers! {
    fileno "fileno";
    fileno_unlocked "fileno_unlocked";
}
