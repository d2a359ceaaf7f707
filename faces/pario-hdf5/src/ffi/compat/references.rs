//! Old references: an object reference is the object's id in 8 bytes, a region reference names a value in the heap of the file's
//! root group in 12 bytes: its position (8 bytes) and length (4 bytes). The value is the object's id and the encoded selection.

use std::ffi::{c_char, c_int, c_void};

use pario_container::{BlobId, ROOT_ID};

use super::super::abi::{FAIL, Herr, Hid, ObjectInfo, Token};
use super::super::failure::{Failure, VolOutcome, guard};
use super::super::handle::Handle;
use super::super::library::{Library, of_slot};
use super::super::values::{Closer, Owned, checked, memory, memory_mut, put};
use super::functions::ours;

/// `H5R_OBJECT1`, `H5R_DATASET_REGION1`.
const OBJECT: c_int = 0;
const REGION: c_int = 1;

/// Bytes in front of a region's selection: object id, length of the selection.
const REGION_HEAD: usize = 8;

fn handle_of<'a>(library: &Library, id: Hid) -> VolOutcome<&'a Handle> {
    // SAFETY: the caller has seen that the identifier has an object.
    Handle::borrow(unsafe { (library.f.H5VLobject)(id) })
}

/// The object that a reference names, and the encoded selection of a region.
fn resolve(
    library: &Library,
    near: Hid,
    kind: c_int,
    reference: *const c_void,
) -> VolOutcome<(u64, Vec<u8>)> {
    match kind {
        OBJECT => {
            let id = u64::from_le_bytes(memory(reference, 8).try_into().expect("8 bytes"));
            if id == 0 {
                return Err(Failure::new("the reference is empty"));
            }
            Ok((id, Vec::new()))
        }
        REGION => {
            let bytes = memory(reference, 12);
            let word =
                |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let (offset, size) = (u64::from(word(0)) | u64::from(word(4)) << 32, word(8));
            if size == 0 {
                return Err(Failure::new("the reference is empty"));
            }
            let handle = handle_of(library, near)?;
            let value = handle.tree()?.unchecked_blob(ROOT_ID, BlobId { offset, length: size, sum: 0 })?;
            let (head, selection) =
                value.split_at_checked(REGION_HEAD).ok_or_else(|| Failure::new("the region is damaged"))?;
            Ok((u64::from_le_bytes(head.try_into().expect("8 bytes")), selection.to_vec()))
        }
        _ => Err(Failure::unsupported("references of this kind")),
    }
}

fn create(
    library: &Library,
    (target, kind): (*mut c_void, c_int),
    (id, name): (Hid, *const c_char),
    space: Hid,
) -> VolOutcome<Herr> {
    let mut info = std::mem::MaybeUninit::<ObjectInfo>::zeroed();
    // SAFETY: the place outlives the call; the name is the program's.
    let done = unsafe { (library.f.H5Oget_info_by_name3)(id, name, info.as_mut_ptr(), 1, 0) };
    checked(done, "H5Oget_info_by_name3")?;
    // SAFETY: all bytes are zero or were filled in.
    let object = unsafe { info.assume_init() }.token.id();
    match kind {
        OBJECT => memory_mut(target, 8).copy_from_slice(&object.to_le_bytes()),
        REGION => {
            let mut size = 0;
            // SAFETY: without a buffer the size is returned.
            checked(
                // SAFETY: the identifiers are open; places and buffers outlive the call.
                unsafe { (library.f.H5Sencode2)(space, std::ptr::null_mut(), &raw mut size, 0) },
                "H5Sencode2",
            )?;
            let mut value = object.to_le_bytes().to_vec();
            value.resize(REGION_HEAD + size, 0);
            let buffer = value[REGION_HEAD..].as_mut_ptr().cast();
            // SAFETY: the buffer has the size that was asked for.
            checked(unsafe { (library.f.H5Sencode2)(space, buffer, &raw mut size, 0) }, "H5Sencode2")?;
            let handle = handle_of(library, id)?;
            let mut tree = handle.tree()?;
            let blob = tree.put_blob(ROOT_ID, &value)?;
            tree.flush_heap(ROOT_ID)?;
            let bytes = memory_mut(target, 12);
            bytes[..8].copy_from_slice(&blob.offset.to_le_bytes());
            bytes[8..].copy_from_slice(&blob.length.to_le_bytes());
        }
        _ => return Err(Failure::unsupported("references of this kind")),
    }
    Ok(0)
}

fn open(library: &Library, near: Hid, kind: c_int, reference: *const c_void) -> VolOutcome<Hid> {
    let (object, _) = resolve(library, near, kind, reference)?;
    // SAFETY: the identifier is open; an unknown token is an error.
    checked(unsafe { (library.f.H5Oopen_by_token)(near, Token::of(object)) }, "H5Oopen_by_token")
}

fn kind_of(library: &'static Library, near: Hid, kind: c_int, reference: *const c_void) -> VolOutcome<c_int> {
    let id = open(library, near, kind, reference)?;
    // SAFETY: the identifier was opened above.
    let kind = unsafe { (library.f.H5Iget_type)(id) };
    // SAFETY: as above.
    unsafe { (library.f.H5Oclose)(id) };
    Ok(match kind {
        2 => 0,
        5 => 1,
        3 => 2,
        _ => -1,
    })
}

fn region(library: &'static Library, near: Hid, kind: c_int, reference: *const c_void) -> VolOutcome<Hid> {
    let (_, selection) = resolve(library, near, kind, reference)?;
    // SAFETY: the bytes are those of `H5Sencode2`.
    let space = unsafe { (library.f.H5Sdecode)(selection.as_ptr().cast()) };
    Ok(Owned::new(library, space, Closer::DataSpace, "H5Sdecode")?.release())
}

fn name_of(
    library: &Library,
    (near, buffer, size): (Hid, *mut c_char, usize),
    reference: (c_int, *const c_void),
) -> VolOutcome<isize> {
    let (kind, reference) = reference;
    let id = open(library, near, kind, reference)?;
    // SAFETY: the identifier was opened above; buffer and size are the program's.
    let length = unsafe { (library.f.H5Iget_name)(id, buffer, size) };
    // SAFETY: as above.
    unsafe { (library.f.H5Oclose)(id) };
    Ok(length)
}

unsafe extern "C" fn reference_create<const S: usize>(
    target: *mut c_void,
    id: Hid,
    name: *const c_char,
    kind: c_int,
    space: Hid,
) -> Herr {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rcreate)(target, id, name, kind, space) };
    }
    guard(S, FAIL, |library| create(library, (target, kind), (id, name), space))
}

unsafe extern "C" fn dereference1<const S: usize>(id: Hid, kind: c_int, reference: *const c_void) -> Hid {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rdereference1)(id, kind, reference) };
    }
    guard(S, -1, |library| open(library, id, kind, reference))
}

unsafe extern "C" fn dereference2<const S: usize>(
    id: Hid,
    oapl: Hid,
    kind: c_int,
    reference: *const c_void,
) -> Hid {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rdereference2)(id, oapl, kind, reference) };
    }
    guard(S, -1, |library| open(library, id, kind, reference))
}

unsafe extern "C" fn object_type1<const S: usize>(id: Hid, kind: c_int, reference: *const c_void) -> c_int {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rget_obj_type1)(id, kind, reference) };
    }
    guard(S, -1, |library| kind_of(library, id, kind, reference))
}

unsafe extern "C" fn object_type2<const S: usize>(
    id: Hid,
    kind: c_int,
    reference: *const c_void,
    target: *mut c_int,
) -> Herr {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rget_obj_type2)(id, kind, reference, target) };
    }
    guard(S, FAIL, |library| {
        put(target, kind_of(library, id, kind, reference)?);
        Ok(0)
    })
}

unsafe extern "C" fn get_region<const S: usize>(id: Hid, kind: c_int, reference: *const c_void) -> Hid {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rget_region)(id, kind, reference) };
    }
    guard(S, -1, |library| region(library, id, kind, reference))
}

unsafe extern "C" fn get_name<const S: usize>(
    id: Hid,
    kind: c_int,
    reference: *const c_void,
    buffer: *mut c_char,
    size: usize,
) -> isize {
    if !ours(of_slot(S), id) {
        // SAFETY: the arguments are passed on as they are.
        return unsafe { (of_slot(S).f.H5Rget_name)(id, kind, reference, buffer, size) };
    }
    guard(S, -1, |library| name_of(library, (id, buffer, size), (kind, reference)))
}

/// Names and functions.
pub(super) fn table<const S: usize>() -> Vec<(&'static str, *const c_void)> {
    vec![
        ("H5Rcreate", reference_create::<S> as *const c_void),
        ("H5Rdereference1", dereference1::<S> as *const c_void),
        ("H5Rdereference2", dereference2::<S> as *const c_void),
        ("H5Rget_obj_type1", object_type1::<S> as *const c_void),
        ("H5Rget_obj_type2", object_type2::<S> as *const c_void),
        ("H5Rget_region", get_region::<S> as *const c_void),
        ("H5Rget_name", get_name::<S> as *const c_void),
    ]
}
