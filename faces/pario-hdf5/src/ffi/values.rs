//! Small conversions at the border: texts, arguments, identifiers that close themselves.

use std::ffi::{CStr, c_char, c_int, c_void};

use pario_container::LinkName;

use super::abi::{Hid, TextArgs, VolOperation};
use super::failure::{Failure, VolOutcome};
use super::library::Library;

/// The bytes of a C text.
pub(crate) fn bytes(text: *const c_char) -> VolOutcome<Vec<u8>> {
    if text.is_null() {
        return Err(Failure::new("a name is missing"));
    }
    // SAFETY: HDF5 passes texts that end in NUL and live during the call.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec())
}

/// A C text as a name.
pub(crate) fn name(text: *const c_char) -> VolOutcome<LinkName> {
    bytes(text).map(LinkName)
}

/// A C text that must be UTF-8, such as a file name.
pub(crate) fn text(text: *const c_char) -> VolOutcome<String> {
    String::from_utf8(bytes(text)?).map_err(|_| Failure::new("a file name is not UTF-8"))
}

/// The arguments of an operation, behind its number.
pub(crate) fn arguments<'a, T>(operation: *mut VolOperation) -> &'a mut T {
    // SAFETY: HDF5's argument structures are a number, then a union that begins at 8 bytes; the caller has read the number and
    // names the member that belongs to it.
    unsafe { &mut *operation.cast::<u8>().add(8).cast::<T>() }
}

/// The number of an operation.
pub(crate) fn operation(operation: *const VolOperation) -> c_int {
    // SAFETY: HDF5 passes a valid structure.
    unsafe { (*operation).kind }
}

/// Writes a result to where HDF5 wants it; nowhere if it wants none.
pub(crate) fn put<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: HDF5 passes a place for one value of this type.
        unsafe { target.write(value) };
    }
}

/// Returns a text: its length, and as much as fits, with a final NUL.
pub(crate) fn put_text(args: &TextArgs, value: &[u8]) {
    put(args.length, value.len());
    if args.buffer.is_null() || args.size == 0 {
        return;
    }
    let count = value.len().min(args.size - 1);
    // SAFETY: the buffer has `size` bytes, and `count` is less.
    unsafe {
        std::ptr::copy_nonoverlapping(value.as_ptr().cast::<c_char>(), args.buffer, count);
    }
    // SAFETY: as above.
    unsafe { args.buffer.add(count).write(0) };
}

/// The program's memory of `size` bytes.
pub(crate) fn memory<'a>(pointer: *const c_void, size: usize) -> &'a [u8] {
    if size == 0 || pointer.is_null() {
        return &[];
    }
    // SAFETY: the program promises that its buffer holds what its memory space and type describe.
    unsafe { std::slice::from_raw_parts(pointer.cast::<u8>(), size) }
}

/// The program's memory of `size` bytes, to be written.
pub(crate) fn memory_mut<'a>(pointer: *mut c_void, size: usize) -> &'a mut [u8] {
    if size == 0 || pointer.is_null() {
        return &mut [];
    }
    // SAFETY: as for `memory`.
    unsafe { std::slice::from_raw_parts_mut(pointer.cast::<u8>(), size) }
}

/// A result of HDF5 that may be a failure.
pub(crate) fn checked<T: PartialOrd + Default>(value: T, function: &str) -> VolOutcome<T> {
    if value < T::default() { Err(Failure::of_library(function)) } else { Ok(value) }
}

/// A length from HDF5.
pub(crate) fn unsigned(value: i64, function: &str) -> VolOutcome<u64> {
    u64::try_from(value).map_err(|_| Failure::of_library(function))
}

/// A length as an index.
pub(crate) fn index(value: u64) -> usize {
    usize::try_from(value).expect("usize has 64 bits")
}

/// An index as a length.
pub(crate) fn length(value: usize) -> u64 {
    u64::try_from(value).expect("usize has at most 64 bits")
}

/// What closes an identifier.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Closer {
    Type,
    DataSpace,
    Plist,
    Iterator,
    Dataset,
    File,
}

/// An identifier that is closed when it goes out of scope.
#[derive(Debug)]
pub(crate) struct Owned {
    library: &'static Library,
    pub(crate) id: Hid,
    closer: Closer,
}

impl Owned {
    pub(crate) fn new(
        library: &'static Library,
        id: Hid,
        closer: Closer,
        function: &str,
    ) -> VolOutcome<Owned> {
        Ok(Owned { library, id: checked(id, function)?, closer })
    }

    /// The identifier, closed by its new owner.
    pub(crate) fn release(self) -> Hid {
        let id = self.id;
        std::mem::forget(self);
        id
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let f = &self.library.f;
        // SAFETY: the identifier is open and owned.
        unsafe {
            match self.closer {
                Closer::Type => (f.H5Tclose)(self.id),
                Closer::DataSpace => (f.H5Sclose)(self.id),
                Closer::Plist => (f.H5Pclose)(self.id),
                Closer::Iterator => (f.H5Ssel_iter_close)(self.id),
                Closer::Dataset => (f.H5Dclose)(self.id),
                Closer::File => (f.H5Fclose)(self.id),
            }
        };
    }
}
