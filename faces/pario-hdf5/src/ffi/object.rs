//! Callbacks of objects of any kind, of blobs and of tokens.

use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_uint, c_void};

use pario_container::{BlobId, Kind, LinkName, LinkTarget, NewLink, ObjectCopyOptions};

use super::abi::{
    Herr, Hid, LocParams, OBJECT_DATASET, OBJECT_GROUP, OBJECT_TYPE, OK, ObjectInfo, ObjectInfoArgs,
    ObjectOperator, TextArgs, Token, VisitArgs, VolOperation,
};
use super::failure::{Failure, VolOutcome, guard, guard_status};
use super::handle::{Handle, HandleTarget, file_of, file_opened, id_type, new_opening};
use super::library::Library;
use super::link::{Registered, c_text};
use super::location::{self, ObjectPlace, joined, ordered_links};
use super::plists;
use super::values::{arguments, bytes, checked, length, memory, memory_mut, operation, put, put_text};
use crate::stats::{self, ServedCount};

pub(super) unsafe extern "C" fn open(
    object: *mut c_void,
    location: *const LocParams,
    opened: *mut c_int,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Objects, 1);
        let handle = Handle::borrow(object)?;
        let place = location::object(library, handle, location)?;
        let kind = place.file.tree()?.header(place.id)?.kind();
        put(opened, id_type(kind));
        Ok(Handle::of_object(handle, &place.file, place.id, place.path)?.into_raw())
    })
}

pub(super) unsafe extern "C" fn copy(
    source: *mut c_void,
    from: *const LocParams,
    source_name: *const c_char,
    target: *mut c_void,
    to: *const LocParams,
    target_name: *const c_char,
    ocpypl: Hid,
    lcpl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(source), |library| {
        stats::add(ServedCount::Objects, 1);
        let options = copy_options(library, ocpypl)?;
        let (source, target) = (Handle::borrow(source)?, Handle::borrow(target)?);
        let start = location::object(library, source, from)?;
        let found = place_at(library, source, &start, &bytes(source_name)?)?;
        let copied = found.file.tree()?.copy_source(found.id, options)?;
        let end = location::object(library, target, to)?;
        if copied.has_references() && !std::sync::Arc::ptr_eq(&found.file, &end.file) {
            return Err(Failure::unsupported("copies of references to another file"));
        }
        let (path, (parents, utf8)) = (bytes(target_name)?, plists::link_creation(library, lcpl)?);
        let mut tree = end.file.tree()?;
        if parents {
            tree.create_parents(end.id, &path, &pario_container::Hex::default())?;
        }
        let (group, name) = tree.split(end.id, &path)?;
        tree.paste(NewLink { group, name: &name, utf8 }, &copied)?;
        Ok(OK)
    })
}

fn copy_options(library: &Library, ocpypl: Hid) -> VolOutcome<ObjectCopyOptions> {
    let mut flags: c_uint = 0;
    // SAFETY: the list is open; the place outlives the call.
    checked(unsafe { (library.f.H5Pget_copy_object)(ocpypl, &raw mut flags) }, "H5Pget_copy_object")?;
    if flags & !0x11 != 0 {
        return Err(Failure::unsupported("copies that expand links or references, or merge types"));
    }
    Ok(ObjectCopyOptions { shallow: flags & 1 != 0, without_attributes: flags & 0x10 != 0 })
}

fn place_at(library: &Library, near: &Handle, start: &ObjectPlace, path: &[u8]) -> VolOutcome<ObjectPlace> {
    let inside = Handle {
        slot: near.slot,
        file: start.file.clone(),
        target: HandleTarget::Object(start.id),
        path: start.path.clone(),
        flags: near.flags,
        opening: near.opening,
    };
    location::find(library, &inside, path, super::abi::DEFAULT)
}

/// `H5O_info2_t` of an object.
fn info(place: &ObjectPlace) -> VolOutcome<ObjectInfo> {
    let file = place.file.file_number();
    let tree = place.file.tree()?;
    let header = tree.header(place.id)?;
    let kind = match header.kind() {
        Kind::Group => OBJECT_GROUP,
        Kind::Dataset => OBJECT_DATASET,
        Kind::Type => OBJECT_TYPE,
    };
    let time = i64::try_from(header.created).unwrap_or(0);
    Ok(ObjectInfo {
        file,
        token: Token::of(place.id),
        kind,
        links: header.links,
        accessed: time,
        modified: time,
        changed: time,
        born: time,
        attributes: length(header.attributes.len()),
    })
}

/// The current name of an object: where it lies, or how it was opened.
pub(super) fn shown_name(handle: &Handle) -> VolOutcome<LinkName> {
    let tree = handle.tree()?;
    let id = handle.object();
    if tree.header(id)?.links == 0 {
        return Ok(LinkName::default());
    }
    Ok(tree.path_of(id).unwrap_or_else(|| handle.path.clone()))
}

/// The handle that the program has of an object's file, so that HDF5 finds its identifier; a new one if it is closed.
fn file_handle(near: &Handle, place: &ObjectPlace) -> *mut c_void {
    let known = file_of(near.opening).filter(|pointer| {
        Handle::borrow(*pointer).is_ok_and(|file| std::sync::Arc::ptr_eq(&file.file, &place.file))
    });
    known.unwrap_or_else(|| {
        let opening = new_opening();
        let target = HandleTarget::File { fapl: 0 };
        let own = if place.file.writable { super::abi::ACC_RDWR } else { 0 };
        let flags = if std::sync::Arc::ptr_eq(&near.file, &place.file) { near.flags } else { own };
        let path = LinkName::from("/");
        let raw =
            Handle { slot: near.slot, file: place.file.clone(), target, path, flags, opening }.into_raw();
        file_opened(opening, raw);
        raw
    })
}

pub(super) unsafe extern "C" fn get(
    object: *mut c_void,
    location: *const LocParams,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Objects, 1);
        let handle = Handle::borrow(object)?;
        let place = location::object(library, handle, location)?;
        match operation(args) {
            0 => {
                let target: &mut *mut *mut c_void = arguments(args);
                put(*target, file_handle(handle, &place));
            }
            1 => {
                let text: &mut TextArgs = arguments(args);
                let near = Handle::of_object(handle, &place.file, place.id, place.path)?;
                let name = shown_name(&near);
                Box::new(near).close()?;
                put_text(text, &name?.0);
            }
            2 => {
                let target: &mut *mut c_int = arguments(args);
                put(*target, info(&place)?.kind);
            }
            3 => {
                let wanted: &mut ObjectInfoArgs = arguments(args);
                put(wanted.info, info(&place)?);
            }
            kind => return Err(Failure::unsupported(&format!("query {kind} of objects"))),
        }
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn specific(
    object: *mut c_void,
    location: *const LocParams,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Objects, 1);
        let handle = Handle::borrow(object)?;
        match operation(args) {
            0 => return Err(Failure::unsupported("reference counts beside links (H5Oincr_refcount)")),
            1 => {
                let exists: &mut *mut bool = arguments(args);
                put(*exists, location::object(library, handle, location).is_ok());
            }
            2 => {
                let token: &mut *mut Token = arguments(args);
                put(*token, Token::of(location::object(library, handle, location)?.id));
            }
            3 => {
                let place = location::object(library, handle, location)?;
                return visit(library, handle, place, arguments(args));
            }
            4 => handle.tree()?.flush_object(handle.object())?,
            5 => handle.tree()?.refresh(handle.object())?,
            kind => return Err(Failure::unsupported(&format!("operation {kind} of objects"))),
        }
        Ok(OK)
    })
}

struct Visit<'a> {
    args: &'a VisitArgs,
    operator: ObjectOperator,
    shown: Hid,
    seen: HashSet<u64>,
}

fn visit(
    library: &'static Library,
    handle: &Handle,
    place: ObjectPlace,
    args: &VisitArgs,
) -> VolOutcome<Herr> {
    let operator = args.operator.ok_or_else(|| Failure::new("a function is missing"))?;
    let shown =
        Registered::new(library, Handle::of_object(handle, &place.file, place.id, place.path.clone())?)?;
    let mut visit = Visit { args, operator, shown: shown.id, seen: HashSet::from([place.id]) };
    let mut result = visit.call(&place, &LinkName::from("."))?;
    if result == OK && place.file.tree()?.header(place.id)?.kind() == Kind::Group {
        result = visit.group(&place, &LinkName::default())?;
    }
    drop(shown);
    Ok(result)
}

impl Visit<'_> {
    fn call(&self, place: &ObjectPlace, path: &LinkName) -> VolOutcome<Herr> {
        let (text, info) = (c_text(path)?, info(place)?);
        // SAFETY: the program's function gets what HDF5 promises; the tree is not locked.
        Ok(unsafe { (self.operator)(self.shown, text.as_ptr(), &raw const info, self.args.data) })
    }

    fn group(&mut self, place: &ObjectPlace, prefix: &LinkName) -> VolOutcome<Herr> {
        let rows = ordered_links(&mut place.file.tree()?, place.id, self.args.index, self.args.order)?;
        for row in rows {
            let LinkTarget::Hard { id, .. } = row.target else { continue };
            // The program's function may have removed it.
            if !self.seen.insert(id) || place.file.tree()?.find(place.id, &row.name.0).is_err() {
                continue;
            }
            let mut path = prefix.0.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(&row.name.0);
            let inner = ObjectPlace { file: place.file.clone(), id, path: joined(&place.path, &row.name.0) };
            let mut result = self.call(&inner, &LinkName(path.clone()))?;
            let still_there = place.file.tree()?.header(id).map(|header| header.kind());
            if result == OK && still_there.is_ok_and(|kind| kind == Kind::Group) {
                result = self.group(&inner, &LinkName(path))?;
            }
            if result != OK {
                return Ok(result);
            }
        }
        Ok(OK)
    }
}

/// The blob id at a place of HDF5.
fn blob_at(pointer: *const c_void) -> BlobId {
    BlobId::parse(memory(pointer, BlobId::SIZE).try_into().expect("16 bytes"))
}

pub(super) unsafe extern "C" fn blob_put(
    object: *mut c_void,
    buffer: *const c_void,
    size: usize,
    blob: *mut c_void,
    _context: *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        stats::add(ServedCount::Blobs, 1);
        let handle = Handle::borrow(object)?;
        let id = handle.tree()?.put_blob(handle.object(), memory(buffer, size))?;
        memory_mut(blob, BlobId::SIZE).copy_from_slice(&id.bytes());
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn blob_get(
    object: *mut c_void,
    blob: *const c_void,
    buffer: *mut c_void,
    size: usize,
    _context: *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        stats::add(ServedCount::Blobs, 1);
        let handle = Handle::borrow(object)?;
        let bytes = handle.tree()?.blob(handle.object(), blob_at(blob))?;
        let target = memory_mut(buffer, size);
        if bytes.len() != target.len() {
            return Err(Failure::new(format!(
                "a value of {} bytes where {} are expected",
                bytes.len(),
                target.len()
            )));
        }
        target.copy_from_slice(&bytes);
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn blob_specific(
    object: *mut c_void,
    blob: *mut c_void,
    args: *mut VolOperation,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        match operation(args) {
            // Space of values is reclaimed with their object.
            0 => (),
            1 => {
                let null: &mut *mut bool = arguments(args);
                put(*null, blob_at(blob).is_null());
            }
            2 => memory_mut(blob, BlobId::SIZE).fill(0),
            kind => return Err(Failure::unsupported(&format!("operation {kind} of blobs"))),
        }
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn token_compare(
    object: *mut c_void,
    first: *const Token,
    second: *const Token,
    result: *mut c_int,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        // SAFETY: HDF5 passes tokens, or NULL for none.
        let (first, second) = unsafe { (first.as_ref(), second.as_ref()) };
        let order = first.map(Token::id).cmp(&second.map(Token::id));
        put(result, order as c_int);
        Ok(OK)
    })
}
