//! Reads and writes of `omp_file.h`, and the calls of one thread alone.
//!
//! Never: uses memory of the program after a call has returned. Always: arguments are checked before a member takes part with them.

use std::borrow::Cow;
use std::ffi::{c_int, c_long, c_void};
use std::io::IoSlice;

use libc::{iovec, off_t};
use pario_api::team::{
    Arguments, Hint, RefusedCall, TargetList, TeamCode, TeamError, TeamMember, TeamPlace, TeamResult,
};

use super::{END_OF_FILE, file, member};
use crate::ffi::call::status;
use crate::ffi::memory;
use crate::last_error::CallError;

/// Where a program wants its buffers.
#[derive(Clone, Copy)]
enum CPlace {
    Pointer,
    At(off_t),
    Each(*const off_t),
}

/// One member's call as the program gave it.
#[derive(Clone, Copy)]
struct CCall {
    is_write: bool,
    arguments: Arguments,
    list: *const iovec,
    buffers: i64,
    place: CPlace,
    fd: c_int,
    hint: c_int,
}

fn hint(hint: c_int) -> Hint {
    match hint {
        1.. => Hint::Contiguous,
        0 => Hint::Unknown,
        _ => Hint::NotContiguous,
    }
}

/// Carries out one member's read or write.
///
/// # Safety
/// Lists, offsets and buffers are as the header demands, and stay so during the call.
unsafe fn transfer(call: CCall) -> i64 {
    status(|| {
        let member = member(call.fd)?;
        let hint = hint(call.hint);
        // SAFETY: the caller's promise.
        let moved = match unsafe { checked(&call) } {
            // SAFETY: the caller's promise.
            Ok(checked) => unsafe { checked.carry_out(&member, &call, hint) },
            Err(text) => {
                let at_pointer = matches!(call.place, CPlace::Pointer);
                let refused =
                    RefusedCall { is_write: call.is_write, arguments: call.arguments, at_pointer, hint };
                member.refuse(refused, TeamError::new(TeamCode::BadArgument, text))
            }
        };
        Ok(moved?)
    })
}

/// Arguments that a call may have.
struct CheckedCall<'a> {
    list: Cow<'a, [iovec]>,
    place: TeamPlace<'a>,
}

/// # Safety
/// As for [`transfer`].
unsafe fn checked<'a>(call: &CCall) -> Result<CheckedCall<'a>, String> {
    let buffers = usize::try_from(call.buffers).map_err(|_| format!("a list of {} buffers", call.buffers))?;
    if call.list.is_null() && buffers != 0 {
        return Err(format!("a list of {buffers} buffers at a null pointer"));
    }
    // SAFETY: not null; the caller promises so many elements.
    let list = if buffers == 0 { &[] } else { unsafe { std::slice::from_raw_parts(call.list, buffers) } };
    for vector in list {
        let bytes = vector.iov_len.cast_signed();
        if bytes < 0 {
            return Err(format!("a length of {bytes} bytes"));
        }
        if vector.iov_base.is_null() && bytes != 0 {
            return Err(format!(
                "{bytes} bytes at a null pointer, or, in Fortran, in a section that is not contiguous"
            ));
        }
    }
    let place = match call.place {
        CPlace::Pointer => TeamPlace::Pointer,
        CPlace::At(offset) => TeamPlace::At(u64::try_from(offset).map_err(|_| negative(offset))?),
        CPlace::Each(offsets) if offsets.is_null() && buffers != 0 => {
            return Err(format!("a list of {buffers} offsets at a null pointer"));
        }
        CPlace::Each(_) if buffers == 0 => TeamPlace::Each(&[]),
        CPlace::Each(offsets) => {
            // SAFETY: not null; the caller promises one for each buffer.
            let signed = unsafe { std::slice::from_raw_parts(offsets, buffers) };
            if let Some(offset) = signed.iter().find(|offset| **offset < 0) {
                return Err(negative(*offset));
            }
            // SAFETY: the same numbers, none of which is negative.
            TeamPlace::Each(unsafe { std::slice::from_raw_parts(offsets.cast::<u64>(), buffers) })
        }
    };
    Ok(CheckedCall { list: without_null(list), place })
}

fn negative(offset: off_t) -> String {
    format!("offset {offset} is negative")
}

/// Empty buffers may have a null address; a slice of Rust may not.
fn without_null(list: &[iovec]) -> Cow<'_, [iovec]> {
    if list.iter().all(|vector| !vector.iov_base.is_null()) {
        return list.into();
    }
    let dangling = std::ptr::NonNull::<u8>::dangling().as_ptr().cast::<c_void>();
    let filled = |vector: &iovec| match vector.iov_base.is_null() {
        true => iovec { iov_base: dangling, iov_len: 0 },
        false => *vector,
    };
    list.iter().map(filled).collect::<Vec<_>>().into()
}

impl CheckedCall<'_> {
    /// # Safety
    /// As for [`transfer`].
    unsafe fn carry_out(&self, member: &TeamMember, call: &CCall, hint: Hint) -> TeamResult<u64> {
        if call.is_write {
            let first = self.list.as_ptr().cast::<IoSlice<'_>>();
            // SAFETY: an `IoSlice` has the layout of an `iovec`; addresses are not null and the program promises the memory.
            let sources = unsafe { std::slice::from_raw_parts(first, self.list.len()) };
            return member.write_list(sources, self.place, call.arguments, hint);
        }
        // SAFETY: the program promises memory that it does not use during the call; of a common call one list is claimed from.
        let targets = unsafe { TargetList::from_raw(self.list.as_ptr(), self.list.len()) };
        member.read_targets(targets, self.place, call.arguments, hint)
    }
}

pub(in crate::ffi) fn buffer(address: *const c_void, bytes: c_long) -> iovec {
    iovec { iov_base: address.cast_mut(), iov_len: bytes.cast_unsigned().try_into().unwrap_or(usize::MAX) }
}

/// Exports the four forms of a read or write.
macro_rules! transfers {
    ($($is_write:literal $arguments:ident $all:ident $at_all:ident $list_all:ident $list_at_all:ident;)*) => { $(
        /// One buffer at the pointer; see `omp_file.h`.
        ///
        /// # Safety
        /// `buffer` is memory of `bytes` bytes, which the program leaves alone during the call.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $all(memory: *mut c_void, bytes: c_long, fd: c_int, hint: c_int) -> i64 {
            let (list, arguments) = (buffer(memory, bytes), Arguments::$arguments);
            let call = CCall { is_write: $is_write, arguments, list: &raw const list, buffers: 1, place: CPlace::Pointer, fd, hint };
            // SAFETY: the caller's promise.
            unsafe { transfer(call) }
        }

        /// One buffer at an offset; see `omp_file.h`.
        ///
        /// # Safety
        /// `buffer` is memory of `bytes` bytes, which the program leaves alone during the call.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $at_all(memory: *mut c_void, bytes: c_long, offset: off_t, fd: c_int, hint: c_int) -> i64 {
            let (list, arguments) = (buffer(memory, bytes), Arguments::$arguments);
            let call = CCall { is_write: $is_write, arguments, list: &raw const list, buffers: 1, place: CPlace::At(offset), fd, hint };
            // SAFETY: the caller's promise.
            unsafe { transfer(call) }
        }

        /// A list of buffers at the pointer; see `omp_file.h`.
        ///
        /// # Safety
        /// `list` has `buffers` elements, each with its memory, which the program leaves alone during the call.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $list_all(list: *mut c_void, buffers: c_int, fd: c_int, hint: c_int) -> i64 {
            let (list, buffers, arguments) = (list.cast_const().cast(), buffers.into(), Arguments::$arguments);
            let call = CCall { is_write: $is_write, arguments, list, buffers, place: CPlace::Pointer, fd, hint };
            // SAFETY: the caller's promise.
            unsafe { transfer(call) }
        }

        /// A list of buffers, each at its offset; see `omp_file.h`.
        ///
        /// # Safety
        /// `list` and `offsets` have `buffers` elements, each with its memory, which the program leaves alone during the call.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $list_at_all(list: *mut c_void, offsets: *const off_t, buffers: c_int, fd: c_int, hint: c_int) -> i64 {
            let (list, buffers, arguments) = (list.cast_const().cast(), buffers.into(), Arguments::$arguments);
            let call = CCall { is_write: $is_write, arguments, list, buffers, place: CPlace::Each(offsets), fd, hint };
            // SAFETY: the caller's promise.
            unsafe { transfer(call) }
        }
    )* };
}

transfers! {
    true Different omp_file_write_all omp_file_write_at_all omp_file_write_list_all omp_file_write_list_at_all;
    false Different omp_file_read_all omp_file_read_at_all omp_file_read_list_all omp_file_read_list_at_all;
    true Common omp_file_write_com_all omp_file_write_com_at_all omp_file_write_com_list_all omp_file_write_com_list_at_all;
    false Common omp_file_read_com_all omp_file_read_com_at_all omp_file_read_com_list_all omp_file_read_com_list_at_all;
}

/// Writes by one thread alone, at an offset.
///
/// # Safety
/// `buffer` has `bytes` bytes, which the program leaves alone during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_file_write_at(
    buffer: *const c_void,
    bytes: c_long,
    offset: off_t,
    fd: c_int,
) -> i64 {
    status(|| {
        let file = file(fd)?;
        // SAFETY: the caller's promise.
        let source = unsafe { memory::source(buffer, bytes) }?;
        file.write_at(memory::offset(offset)?, source)?;
        Ok(source.len() as u64)
    })
}

/// Reads by one thread alone, from an offset on.
///
/// # Safety
/// `buffer` has `bytes` bytes, which the program leaves alone during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_file_read_at(
    buffer: *mut c_void,
    bytes: c_long,
    offset: off_t,
    fd: c_int,
) -> i64 {
    status(|| {
        let file = file(fd)?;
        // SAFETY: the caller's promise.
        let target = unsafe { memory::target(buffer, bytes) }?;
        let (offset, length) = (memory::offset(offset)?, target.len());
        let count = file.read_at(offset, target)?;
        if count < length {
            let text =
                format!("{}: the file ends after {count} of {length} bytes at offset {offset}", file.name());
            return Err(CallError { code: END_OF_FILE, count: count as u64, ..CallError::new(0, text) });
        }
        Ok(count as u64)
    })
}

/// Writes part `part` of `parts` behind the parts with lower numbers; waits for none.
///
/// # Safety
/// `buffer` has `bytes` bytes, which the program leaves alone during the call.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn omp_file_write_part(
    buffer: *const c_void,
    bytes: c_long,
    part: c_long,
    parts: c_long,
    fd: c_int,
) -> i64 {
    status(|| {
        let file = file(fd)?;
        // SAFETY: the caller's promise.
        let source = unsafe { memory::source(buffer, bytes) }?;
        let number = |number: c_long| {
            let wrong = || CallError::new(libc::EINVAL, format!("part {part} of {parts}"));
            u64::try_from(number).map_err(|_| wrong())
        };
        file.write_part(source, number(part)?, number(parts)?)?;
        Ok(source.len() as u64)
    })
}
