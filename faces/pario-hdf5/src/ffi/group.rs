//! Callbacks of groups, and what all objects have in common when they are made.

use std::ffi::{c_char, c_uint, c_void};

use pario_container::{Kind, LinkName, NewLink, ObjectBody};

use super::abi::{DEFAULT, GroupInfo, GroupInfoArgs, Herr, Hid, LocParams, OK, VolOperation};
use super::failure::{Failure, VolOutcome, guard, guard_status};
use super::handle::Handle;
use super::library::Library;
use super::values::{arguments, bytes, checked, operation, put};
use super::{location, plists};
use crate::stats::{self, ServedCount};

/// Where a new object goes.
pub(super) struct NewPlace {
    pub(super) object: *mut c_void,
    pub(super) location: *const LocParams,
    /// NULL for an object without a name.
    pub(super) name: *const c_char,
    pub(super) lcpl: Hid,
}

/// Makes an object and returns its handle.
pub(super) fn make(library: &Library, new: &NewPlace, body: ObjectBody, timed: bool) -> VolOutcome<Handle> {
    let handle = Handle::borrow(new.object)?;
    let start = location::object(library, handle, new.location)?;
    if new.name.is_null() {
        let mut tree = start.file.tree()?;
        let id = tree.create_anonymous(body, timed)?;
        drop(tree);
        return Handle::of_object(handle, &start.file, id, LinkName::default());
    }
    let path = bytes(new.name)?;
    let (parents, utf8) = plists::link_creation(library, new.lcpl)?;
    let mut tree = start.file.tree()?;
    if parents {
        tree.create_parents(start.id, &path, &pario_container::Hex::default())?;
    }
    let (group, name) = tree.split(start.id, &path)?;
    let id = tree.create_named(NewLink { group, name: &name, utf8 }, body, timed)?;
    drop(tree);
    Handle::of_object(handle, &start.file, id, location::joined(&start.path, &path))
}

/// Opens an object of one kind.
pub(super) fn open_kind(
    library: &Library,
    (object, location): (*mut c_void, *const LocParams),
    name: *const c_char,
    (kind, lapl): (Kind, Hid),
) -> VolOutcome<Handle> {
    let handle = Handle::borrow(object)?;
    let start = location::object(library, handle, location)?;
    let near = Handle::of_object(handle, &start.file, start.id, start.path)?;
    let found = location::find(library, &near, &bytes(name)?, lapl);
    Box::new(near).close()?;
    let found = found?;
    let is = found.file.tree()?.header(found.id)?.kind();
    if is != kind {
        return Err(Failure::new(format!("`{}` is a {}, not a {}", found.path, is.word(), kind.word())));
    }
    Handle::of_object(handle, &found.file, found.id, found.path)
}

pub(super) unsafe extern "C" fn create(
    object: *mut c_void,
    location: *const LocParams,
    name: *const c_char,
    lcpl: Hid,
    gcpl: Hid,
    _gapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Groups, 1);
        let body = ObjectBody::Group { properties: plists::encode(library, gcpl)? };
        let timed = plists::timed(library, gcpl)?;
        Ok(make(library, &NewPlace { object, location, name, lcpl }, body, timed)?.into_raw())
    })
}

pub(super) unsafe extern "C" fn open(
    object: *mut c_void,
    location: *const LocParams,
    name: *const c_char,
    _gapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Groups, 1);
        Ok(open_kind(library, (object, location), name, (Kind::Group, DEFAULT))?.into_raw())
    })
}

/// Whether creation order of links is tracked.
pub(super) fn tracks_order(library: &'static Library, handle: &Handle, group: u64) -> VolOutcome<bool> {
    let properties = match &handle.tree()?.header(group)?.body {
        ObjectBody::Group { properties } => properties.clone(),
        ObjectBody::Dataset(_) | ObjectBody::Type { .. } => return Ok(false),
    };
    if properties.0.is_empty() {
        return Ok(false);
    }
    let plist = plists::decode(library, &properties, c"H5P_CLS_GROUP_CREATE_ID_g")?;
    let mut flags: c_uint = 0;
    // SAFETY: the list is open; the place outlives the call.
    checked(
        // SAFETY: the identifiers are open; places and buffers outlive the call.
        unsafe { (library.f.H5Pget_link_creation_order)(plist.id, &raw mut flags) },
        "H5Pget_link_creation_order",
    )?;
    Ok(flags & 1 != 0)
}

pub(super) unsafe extern "C" fn get(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Groups, 1);
        let handle = Handle::borrow(object)?;
        match operation(args) {
            0 => {
                let properties = match &handle.tree()?.header(handle.object())?.body {
                    ObjectBody::Group { properties } => properties.clone(),
                    ObjectBody::Dataset(_) | ObjectBody::Type { .. } => {
                        return Err(Failure::new("a group is needed"));
                    }
                };
                let gcpl: &mut Hid = arguments(args);
                // The root group has the creation list of the file, from which a group's properties are taken.
                let list = plists::decode(library, &properties, c"H5P_CLS_GROUP_CREATE_ID_g")?;
                *gcpl = list.release();
            }
            1 => {
                let wanted: &mut GroupInfoArgs = arguments(args);
                let place = location::object(library, handle, &raw const wanted.location)?;
                let mut tree = place.file.tree()?;
                let (links, next) = (tree.link_count(place.id)?, tree.next_order(place.id)?);
                drop(tree);
                let order_max = i64::try_from(next).unwrap_or(i64::MAX);
                put(wanted.info, GroupInfo { storage: 1, links, order_max, mounted: false });
            }
            kind => return Err(Failure::unsupported(&format!("query {kind} of groups"))),
        }
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn specific(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |_| match operation(args) {
        2 => {
            let handle = Handle::borrow(object)?;
            handle.tree()?.flush_object(handle.object())?;
            Ok(OK)
        }
        3 => {
            let handle = Handle::borrow(object)?;
            handle.tree()?.refresh(handle.object())?;
            Ok(OK)
        }
        _ => Err(Failure::unsupported("mounting files")),
    })
}

/// Closes groups, datasets, types and attributes.
pub(super) unsafe extern "C" fn close(object: *mut c_void, _dxpl: Hid, _req: *mut *mut c_void) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        Handle::take(object)?.close()?;
        Ok(OK)
    })
}
