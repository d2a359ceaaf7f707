//! Older calls that reach a connector as operations of the native one: their numbers and arguments are in `H5VLnative.h`.

use std::ffi::{c_char, c_int, c_uint, c_void};

use pario_container::{DataLayout, Kind, LinkTarget};

use super::abi::{GroupStat, Herr, Hid, LocParams, OK, OptionalOperation, TextArgs};
use super::dataset::dataset_of;
use super::failure::{Failure, VolOutcome, guard_status};
use super::handle::Handle;
use super::library::Library;
use super::link::{Registered, c_text};
use super::location::{self, ordered_links};
use super::values::{bytes, index, length, memory, memory_mut, put, put_text};
use crate::stats::{self, ServedCount};

fn args<'a, T>(operation: *mut OptionalOperation) -> &'a mut T {
    // SAFETY: HDF5 passes the arguments that belong to the number, which the caller has read.
    unsafe { &mut *(*operation).args.cast::<T>() }
}

fn kind(operation: *const OptionalOperation) -> c_int {
    // SAFETY: HDF5 passes a valid structure.
    unsafe { (*operation).kind }
}

/// What native files have and trees do not.
pub(super) unsafe extern "C" fn refused(
    object: *mut c_void,
    operation: *mut OptionalOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        Err(Failure::unsupported(&format!("operation {} of native HDF5 files", kind(operation))))
    })
}

pub(super) unsafe extern "C" fn file(
    object: *mut c_void,
    operation: *mut OptionalOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        let handle = Handle::borrow(object)?;
        match kind(operation) {
            // The cache of external files, libver bounds: nothing to do.
            0 | 23 | 28 => Ok(OK),
            // SWMR: readers find every call that returned.
            13 if handle.file.writable => {
                handle.file.swmr.store(true, std::sync::atomic::Ordering::Relaxed);
                Ok(OK)
            }
            // Size of the file.
            8 => {
                let size: &mut *mut u64 = args(operation);
                put(*size, handle.file.tree()?.stored_size()?);
                Ok(OK)
            }
            number => Err(Failure::unsupported(&format!("operation {number} of native HDF5 files"))),
        }
    })
}

/// Arguments of `H5Giterate`.
#[repr(C)]
struct IterateArgs {
    location: LocParams,
    start: u64,
    last: *mut u64,
    operator: Option<unsafe extern "C" fn(Hid, *const c_char, *mut c_void) -> Herr>,
    data: *mut c_void,
}

/// Arguments of `H5Gget_objinfo`.
#[repr(C)]
struct StatArgs {
    location: LocParams,
    follow: bool,
    target: *mut GroupStat,
}

pub(super) unsafe extern "C" fn group(
    object: *mut c_void,
    operation: *mut OptionalOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Groups, 1);
        let handle = Handle::borrow(object)?;
        match kind(operation) {
            0 => iterate(library, handle, args(operation)),
            1 => stat(library, handle, args(operation)),
            number => Err(Failure::unsupported(&format!("operation {number} of native groups"))),
        }
    })
}

fn iterate(library: &'static Library, handle: &Handle, wanted: &IterateArgs) -> VolOutcome<Herr> {
    let operator = wanted.operator.ok_or_else(|| Failure::new("a function is missing"))?;
    let place = location::object(library, handle, &raw const wanted.location)?;
    let rows = ordered_links(&mut place.file.tree()?, place.id, 0, 0)?;
    let shown = Registered::new(library, Handle::of_object(handle, &place.file, place.id, place.path)?)?;
    let mut result = OK;
    for (position, row) in rows.iter().enumerate().skip(index(wanted.start)) {
        let text = c_text(&row.name)?;
        put(wanted.last, length(position + 1));
        // SAFETY: the program's function gets what HDF5 promises; the tree is not locked.
        result = unsafe { operator(shown.id, text.as_ptr(), wanted.data) };
        if result != OK {
            break;
        }
    }
    drop(shown);
    Ok(result)
}

fn stat(library: &Library, handle: &Handle, wanted: &StatArgs) -> VolOutcome<Herr> {
    let mut stat = GroupStat {
        file: [0; 2],
        object: [0; 2],
        links: 0,
        kind: 0,
        modified: 0,
        link_size: 0,
        header: [0; 3],
    };
    // SAFETY: the kind says which member is set.
    let names_link = wanted.location.kind == super::abi::BY_NAME
        && bytes(unsafe { wanted.location.data.name }.name)?
            .split(|byte| *byte == b'/')
            .any(|part| !matches!(part, b"" | b"."));
    if !wanted.follow && names_link {
        let (_, row) = location::link_row(library, handle, &raw const wanted.location)?;
        if let LinkTarget::Soft(path) = &row.target {
            stat.kind = 3;
            stat.link_size = path.0.len() + 1;
            put(wanted.target, stat);
            return Ok(OK);
        }
    }
    let place = location::object(library, handle, &raw const wanted.location)?;
    stat.file[0] = place.file.file_number();
    let tree = place.file.tree()?;
    let header = tree.header(place.id)?;
    stat.object[0] = place.id;
    stat.links = header.links;
    stat.kind = match header.kind() {
        Kind::Group => 0,
        Kind::Dataset => 1,
        Kind::Type => 2,
    };
    stat.modified = i64::try_from(header.created).unwrap_or(0);
    put(wanted.target, stat);
    Ok(OK)
}

pub(super) unsafe extern "C" fn object(
    object: *mut c_void,
    location: *const LocParams,
    operation: *mut OptionalOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Objects, 1);
        let place = location::object(library, Handle::borrow(object)?, location)?;
        match kind(operation) {
            0 => {
                let text: &mut TextArgs = args(operation);
                let comment = place.file.tree()?.header(place.id)?.comment.clone().unwrap_or_default();
                put_text(text, comment.as_bytes());
            }
            1 => {
                let text: &mut *const c_char = args(operation);
                let comment = if text.is_null() { Vec::new() } else { bytes(*text)? };
                let comment = String::from_utf8_lossy(&comment).into_owned();
                place.file.tree()?.set_comment(place.id, (!comment.is_empty()).then_some(comment))?;
            }
            number => return Err(Failure::unsupported(&format!("operation {number} of native objects"))),
        }
        Ok(OK)
    })
}

/// Arguments of chunk information by number.
#[repr(C)]
struct ChunkByNumber {
    space: Hid,
    number: u64,
    offset: *mut u64,
    mask: *mut c_uint,
    address: *mut u64,
    size: *mut u64,
}

/// Arguments of chunk information by position.
#[repr(C)]
struct ChunkByPosition {
    position: *const u64,
    mask: *mut c_uint,
    address: *mut u64,
    size: *mut u64,
}

/// Arguments of reading a stored chunk.
#[repr(C)]
struct ChunkRead {
    position: *const u64,
    mask: u32,
    buffer: *mut c_void,
    size: *mut usize,
}

/// Arguments of writing a stored chunk.
#[repr(C)]
struct ChunkWrite {
    position: *const u64,
    mask: u32,
    size: usize,
    buffer: *const c_void,
}

/// Arguments of iterating over chunks.
#[repr(C)]
struct ChunkIterate {
    operator: Option<unsafe extern "C" fn(*const u64, c_uint, u64, u64, *mut c_void) -> c_int>,
    data: *mut c_void,
}

/// Shape of a dataset's chunks.
fn chunk_shape(handle: &Handle) -> VolOutcome<Vec<u64>> {
    match dataset_of(handle)?.layout {
        DataLayout::Ordered { chunk } | DataLayout::Indexed { chunk } => Ok(chunk),
        DataLayout::Contiguous => Err(Failure::new("the dataset has no chunks")),
    }
}

/// Coordinates, in chunks, of a position in elements.
fn coordinates(chunk: &[u64], position: *const u64) -> VolOutcome<Vec<u64>> {
    // SAFETY: HDF5 passes as many numbers as the dataset has dimensions.
    let position = unsafe { std::slice::from_raw_parts(position, chunk.len()) };
    if position.iter().zip(chunk).any(|(at, size)| at % size != 0) {
        return Err(Failure::new("the offset is not that of a chunk"));
    }
    Ok(position.iter().zip(chunk).map(|(at, size)| at / size).collect())
}

pub(super) unsafe extern "C" fn dataset(
    object: *mut c_void,
    operation: *mut OptionalOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Datasets, 1);
        let handle = Handle::borrow(object)?;
        let id = handle.object();
        super::engine::attach(library, handle)?;
        let number = kind(operation);
        if ![2, 3, 4, 5, 6, 7, 10].contains(&number) {
            return Err(Failure::unsupported(&format!("operation {number} of native datasets")));
        }
        let chunk = chunk_shape(handle)?;
        match number {
            2 => {
                let (position, size): (*const u64, *mut u64) = {
                    let pair: &mut super::abi::Pair<*const u64, *mut u64> = args(operation);
                    (pair.0, pair.1)
                };
                let at = coordinates(&chunk, position)?;
                let places = handle.tree()?.chunk_places(id)?;
                let found = places.into_iter().find(|(place, _)| *place == at);
                put(size, found.map_or(0, |(_, place)| place.size));
            }
            3 => {
                let pair: &mut super::abi::Pair<Hid, *mut u64> = args(operation);
                put(pair.1, length(handle.tree()?.chunk_places(id)?.len()));
            }
            4 => by_number(handle, &chunk, args(operation))?,
            5 => by_position(handle, &chunk, args(operation))?,
            6 => read_chunk(handle, &chunk, args(operation))?,
            7 => {
                let wanted: &mut ChunkWrite = args(operation);
                let at = coordinates(&chunk, wanted.position)?;
                handle.tree()?.write_chunk(id, &at, memory(wanted.buffer, wanted.size), wanted.mask)?;
            }
            _ => return each_chunk(handle, &chunk, args(operation)),
        }
        Ok(OK)
    })
}

fn by_number(handle: &Handle, chunk: &[u64], wanted: &ChunkByNumber) -> VolOutcome<()> {
    let places = handle.tree()?.chunk_places(handle.object())?;
    let missing = || Failure::new(format!("no chunk number {}", wanted.number));
    let (at, place) = places.get(index(wanted.number)).ok_or_else(missing)?;
    for (dimension, (one, size)) in at.iter().zip(chunk).enumerate() {
        if !wanted.offset.is_null() {
            // SAFETY: HDF5 passes room for as many numbers as the dataset has dimensions.
            unsafe { wanted.offset.add(dimension).write(one * size) };
        }
    }
    put(wanted.mask, place.mask);
    put(wanted.address, place.offset);
    put(wanted.size, place.size);
    Ok(())
}

fn by_position(handle: &Handle, chunk: &[u64], wanted: &ChunkByPosition) -> VolOutcome<()> {
    let at = coordinates(chunk, wanted.position)?;
    let places = handle.tree()?.chunk_places(handle.object())?;
    let found = places.into_iter().find(|(place, _)| *place == at).map(|(_, place)| place);
    put(wanted.mask, found.map_or(0, |place| place.mask));
    put(wanted.address, found.map_or(u64::MAX, |place| place.offset));
    put(wanted.size, found.map_or(0, |place| place.size));
    Ok(())
}

fn read_chunk(handle: &Handle, chunk: &[u64], wanted: &mut ChunkRead) -> VolOutcome<()> {
    let at = coordinates(chunk, wanted.position)?;
    let stored = handle.tree()?.read_chunk(handle.object(), &at)?;
    let (stored, mask) = stored.ok_or_else(|| Failure::new("the chunk was never written"))?;
    wanted.mask = mask;
    // HDF5 2.x passes the size of the buffer, 1.14 nothing.
    // SAFETY: HDF5 passes a size, or NULL.
    let room = unsafe { wanted.size.as_ref() }.copied().unwrap_or(stored.len());
    if !wanted.buffer.is_null() && room >= stored.len() {
        memory_mut(wanted.buffer, stored.len()).copy_from_slice(&stored);
    }
    put(wanted.size, stored.len());
    Ok(())
}

fn each_chunk(handle: &Handle, chunk: &[u64], wanted: &ChunkIterate) -> VolOutcome<Herr> {
    let operator = wanted.operator.ok_or_else(|| Failure::new("a function is missing"))?;
    for (at, place) in handle.tree()?.chunk_places(handle.object())? {
        let position: Vec<u64> = at.iter().zip(chunk).map(|(one, size)| one * size).collect();
        // SAFETY: the program's function gets what HDF5 promises; the tree is not locked.
        let result =
            unsafe { operator(position.as_ptr(), place.mask, place.offset, place.size, wanted.data) };
        if result != OK {
            return Ok(result);
        }
    }
    Ok(OK)
}
