//! The names under which Fortran programs without our module call `omp_file.h`: `name_`, `name__`, `NAME`.
//!
//! All arguments are references; lengths and offsets are 8 bytes, handles, counts and hints 4. A list is an array of addresses
//! and one of lengths. The lengths of strings follow the other arguments. Results are those of C, and may be ignored.
//!
//! Never: does more than convert arguments. Always: strings lose their trailing blanks.

use std::ffi::{CString, c_char, c_int, c_long, c_void};

use libc::{iovec, off_t, size_t};

use super::omp_file::{self, transfer as c};
use crate::last_error;

/// A string of Fortran.
///
/// # Safety
/// `text` has `bytes` bytes.
unsafe fn trimmed(text: *const c_char, bytes: size_t) -> CString {
    if text.is_null() {
        return CString::default();
    }
    // SAFETY: not null; the caller's promise.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    // C programs of Fortran's make may have ended it by a zero byte.
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    CString::new(text.trim_ascii_end()).unwrap_or_default()
}

/// Exports a function under the three names of Fortran compilers.
macro_rules! exports {
    ($($one:ident $two:ident $upper:ident ($($arg:ident: $ty:ty),*) $call:expr;)*) => { $(
        exports!(@one $one ($($arg: $ty),*) $call);
        exports!(@one $two ($($arg: $ty),*) $call);
        exports!(@one $upper ($($arg: $ty),*) $call);
    )* };
    (@one $name:ident ($($arg:ident: $ty:ty),*) $call:expr) => {
        /// See `omp_file.h` and the head of this file.
        ///
        /// # Safety
        /// Every argument is the address of a variable of its type; buffers as for C.
        #[unsafe(no_mangle)]
        #[expect(clippy::allow_attributes, reason = "each is needed by some of the functions")]
        #[allow(non_snake_case, reason = "names of compilers with upper case")]
        #[allow(clippy::too_many_arguments, reason = "as published")]
        #[allow(unused_unsafe, reason = "some functions of C are safe")]
        pub(crate) unsafe extern "C" fn $name($($arg: $ty),*) -> i64 {
            // SAFETY: the caller's promise.
            unsafe { $call }
        }
    };
}

/// Exports the four forms of a read or write.
macro_rules! transfers {
    ($($all:ident $($all_names:ident)* | $at_all:ident $($at_all_names:ident)* | $list_all:ident $($list_all_names:ident)* |
       $list_at_all:ident $($list_at_all_names:ident)*;)*) => { $(
        exports! {
            $($all_names)* (memory: *mut c_void, length: &c_long, fd: &c_int, hint: &c_int)
                all(c::$all, memory, length, fd, hint);
            $($at_all_names)* (memory: *mut c_void, length: &c_long, offset: &off_t, fd: &c_int, hint: &c_int)
                at_all(c::$at_all, memory, (length, offset), (fd, hint));
            $($list_all_names)* (addresses: *const *mut c_void, lengths: *const c_long, size: &c_int, fd: &c_int, hint: &c_int)
                list_all(c::$list_all, (addresses, lengths), size, (fd, hint));
            $($list_at_all_names)* (addresses: *const *mut c_void, lengths: *const c_long, offsets: *const off_t, size: &c_int, fd: &c_int, hint: &c_int)
                list_at_all(c::$list_at_all, (addresses, lengths), (offsets, size), (fd, hint));
        }
    )* };
}

type AllCall = unsafe extern "C" fn(*mut c_void, c_long, c_int, c_int) -> i64;
type AtAllCall = unsafe extern "C" fn(*mut c_void, c_long, off_t, c_int, c_int) -> i64;
type ListAllCall = unsafe extern "C" fn(*mut c_void, c_int, c_int, c_int) -> i64;
type ListAtAllCall = unsafe extern "C" fn(*mut c_void, *const off_t, c_int, c_int, c_int) -> i64;

/// # Safety
/// As for the exported functions; so for the others below.
unsafe fn all(call: AllCall, memory: *mut c_void, length: &c_long, fd: &c_int, hint: &c_int) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { call(memory, *length, *fd, *hint) }
}

/// # Safety
/// As above.
unsafe fn at_all(
    call: AtAllCall,
    memory: *mut c_void,
    (length, offset): (&c_long, &off_t),
    (fd, hint): (&c_int, &c_int),
) -> i64 {
    // SAFETY: the caller's promise.
    unsafe { call(memory, *length, *offset, *fd, *hint) }
}

/// A list of Fortran: addresses and lengths.
///
/// # Safety
/// Both have `size` elements.
unsafe fn vectors(addresses: *const *mut c_void, lengths: *const c_long, size: c_int) -> Vec<iovec> {
    let Some(size) = usize::try_from(size).ok().filter(|_| !addresses.is_null() && !lengths.is_null()) else {
        return Vec::new();
    };
    // SAFETY: not null; the caller's promise.
    let addresses = unsafe { std::slice::from_raw_parts(addresses, size) };
    // SAFETY: as above.
    let lengths = unsafe { std::slice::from_raw_parts(lengths, size) };
    let pairs = addresses.iter().zip(lengths);
    pairs.map(|(address, bytes)| c::buffer(*address, *bytes)).collect()
}

/// # Safety
/// As above.
unsafe fn list_all(
    call: ListAllCall,
    (addresses, lengths): (*const *mut c_void, *const c_long),
    size: &c_int,
    (fd, hint): (&c_int, &c_int),
) -> i64 {
    // SAFETY: the caller's promise.
    let list = unsafe { vectors(addresses, lengths, *size) };
    // SAFETY: the caller's promise.
    unsafe { call(list.as_ptr().cast_mut().cast(), *size, *fd, *hint) }
}

/// # Safety
/// As above.
unsafe fn list_at_all(
    call: ListAtAllCall,
    (addresses, lengths): (*const *mut c_void, *const c_long),
    (offsets, size): (*const off_t, &c_int),
    (fd, hint): (&c_int, &c_int),
) -> i64 {
    // SAFETY: the caller's promise.
    let list = unsafe { vectors(addresses, lengths, *size) };
    // SAFETY: the caller's promise.
    unsafe { call(list.as_ptr().cast_mut().cast(), offsets, *size, *fd, *hint) }
}

transfers! {
    omp_file_write_all omp_file_write_all_ omp_file_write_all__ OMP_FILE_WRITE_ALL |
    omp_file_write_at_all omp_file_write_at_all_ omp_file_write_at_all__ OMP_FILE_WRITE_AT_ALL |
    omp_file_write_list_all omp_file_write_list_all_ omp_file_write_list_all__ OMP_FILE_WRITE_LIST_ALL |
    omp_file_write_list_at_all omp_file_write_list_at_all_ omp_file_write_list_at_all__ OMP_FILE_WRITE_LIST_AT_ALL;
    omp_file_read_all omp_file_read_all_ omp_file_read_all__ OMP_FILE_READ_ALL |
    omp_file_read_at_all omp_file_read_at_all_ omp_file_read_at_all__ OMP_FILE_READ_AT_ALL |
    omp_file_read_list_all omp_file_read_list_all_ omp_file_read_list_all__ OMP_FILE_READ_LIST_ALL |
    omp_file_read_list_at_all omp_file_read_list_at_all_ omp_file_read_list_at_all__ OMP_FILE_READ_LIST_AT_ALL;
    omp_file_write_com_all omp_file_write_com_all_ omp_file_write_com_all__ OMP_FILE_WRITE_COM_ALL |
    omp_file_write_com_at_all omp_file_write_com_at_all_ omp_file_write_com_at_all__ OMP_FILE_WRITE_COM_AT_ALL |
    omp_file_write_com_list_all omp_file_write_com_list_all_ omp_file_write_com_list_all__ OMP_FILE_WRITE_COM_LIST_ALL |
    omp_file_write_com_list_at_all omp_file_write_com_list_at_all_ omp_file_write_com_list_at_all__ OMP_FILE_WRITE_COM_LIST_AT_ALL;
    omp_file_read_com_all omp_file_read_com_all_ omp_file_read_com_all__ OMP_FILE_READ_COM_ALL |
    omp_file_read_com_at_all omp_file_read_com_at_all_ omp_file_read_com_at_all__ OMP_FILE_READ_COM_AT_ALL |
    omp_file_read_com_list_all omp_file_read_com_list_all_ omp_file_read_com_list_all__ OMP_FILE_READ_COM_LIST_ALL |
    omp_file_read_com_list_at_all omp_file_read_com_list_at_all_ omp_file_read_com_list_at_all__ OMP_FILE_READ_COM_LIST_AT_ALL;
}

/// # Safety
/// As above; `name` has `bytes` bytes.
unsafe fn open_all(fd: *mut c_int, name: *const c_char, flags: c_int, bytes: size_t) -> i64 {
    // SAFETY: the caller's promise.
    let name = unsafe { trimmed(name, bytes) };
    // SAFETY: the caller's promise.
    unsafe { omp_file::omp_file_open_all(fd, name.as_ptr(), flags, 0o666) }
}

/// # Safety
/// As above; the strings have so many bytes.
unsafe fn set(key: *const c_char, value: *const c_char, key_bytes: size_t, value_bytes: size_t) -> i64 {
    // SAFETY: the caller's promise.
    let key = unsafe { trimmed(key, key_bytes) };
    // SAFETY: the caller's promise.
    let value = unsafe { trimmed(value, value_bytes) };
    let value = if value.is_empty() { std::ptr::null() } else { value.as_ptr() };
    // SAFETY: strings of ours.
    unsafe { omp_file::omp_file_set(key.as_ptr(), value) }
}

/// The sentence of the last error, filled with blanks; returns its length.
///
/// # Safety
/// As above; `text` has `bytes` bytes.
unsafe fn strerror(text: *mut c_char, bytes: size_t) -> i64 {
    let last = last_error::sentence();
    if text.is_null() {
        return 0;
    }
    // SAFETY: not null; the caller's promise.
    let target = unsafe { std::slice::from_raw_parts_mut(text.cast::<u8>(), bytes) };
    target.fill(b' ');
    let count = last.len().min(bytes);
    target[..count].copy_from_slice(&last[..count]);
    last_error::signed(last.len() as u64)
}

exports! {
    omp_file_open_all_ omp_file_open_all__ OMP_FILE_OPEN_ALL (fd: *mut c_int, name: *const c_char, flags: &c_int, bytes: size_t) open_all(fd, name, *flags, bytes);
    omp_file_close_all_ omp_file_close_all__ OMP_FILE_CLOSE_ALL (fd: &c_int) omp_file::omp_file_close_all(*fd);
    omp_file_fsync_ omp_file_fsync__ OMP_FILE_FSYNC (fd: &c_int) omp_file::omp_file_fsync(*fd);
    omp_file_seek_all_ omp_file_seek_all__ OMP_FILE_SEEK_ALL (fd: &c_int, offset: &off_t) omp_file::omp_file_seek_all(*fd, *offset);
    omp_file_tell_ omp_file_tell__ OMP_FILE_TELL (fd: &c_int) omp_file::omp_file_tell(*fd);
    omp_file_size_ omp_file_size__ OMP_FILE_SIZE (fd: &c_int) omp_file::omp_file_size(*fd);
    omp_file_count_ omp_file_count__ OMP_FILE_COUNT () omp_file::omp_file_count();
    omp_file_errno_ omp_file_errno__ OMP_FILE_ERRNO () omp_file::omp_file_errno();
    omp_file_strerror_ omp_file_strerror__ OMP_FILE_STRERROR (text: *mut c_char, bytes: size_t) strerror(text, bytes);
    omp_file_set_ omp_file_set__ OMP_FILE_SET (key: *const c_char, value: *const c_char, key_bytes: size_t, value_bytes: size_t) set(key, value, key_bytes, value_bytes);
    omp_file_write_at_ omp_file_write_at__ OMP_FILE_WRITE_AT (memory: *const c_void, length: &c_long, offset: &off_t, fd: &c_int) c::omp_file_write_at(memory, *length, *offset, *fd);
    omp_file_read_at_ omp_file_read_at__ OMP_FILE_READ_AT (memory: *mut c_void, length: &c_long, offset: &off_t, fd: &c_int) c::omp_file_read_at(memory, *length, *offset, *fd);
    omp_file_write_part_ omp_file_write_part__ OMP_FILE_WRITE_PART (memory: *const c_void, length: &c_long, part: &c_long, parts: &c_long, fd: &c_int) c::omp_file_write_part(memory, *length, *part, *parts, *fd);
    ompc_barrier_init_ ompc_barrier_init__ OMPC_BARRIER_INIT (_threads: &c_int) 0;
}
