//! Callbacks of links.

use std::collections::HashSet;
use std::ffi::{CString, c_char, c_int, c_void};

use pario_container::{Kind, LinkName, LinkRow, LinkTarget, NewLink};

use super::abi::{
    BY_NAME, HardLinkArgs, Herr, Hid, LINK_EXTERNAL, LINK_HARD, LINK_SOFT, LinkInfo, LinkIterateArgs,
    LinkValue, LinkValueArgs, LocParams, OK, TextArgs, Token, UserLinkArgs, VolOperation,
};
use super::failure::{Failure, VolOutcome, guard_status};
use super::group::tracks_order;
use super::handle::Handle;
use super::library::Library;
use super::location::{self, ObjectPlace, ordered_links};
use super::plists;
use super::values::{arguments, checked, index, length, memory, memory_mut, name, operation, put, put_text};
use crate::stats::{self, ServedCount};

/// An identifier of a handle, for a function of the program; closed when it goes out of scope.
#[derive(Debug)]
pub(super) struct Registered {
    library: &'static Library,
    pub(super) id: Hid,
}

impl Registered {
    pub(super) fn new(library: &'static Library, handle: Handle) -> VolOutcome<Registered> {
        let kind = handle.id_type()?;
        let raw = handle.into_raw();
        // SAFETY: the handle is live, and its close callback takes it back.
        let id = unsafe { (library.f.H5VLwrap_register)(raw, kind) };
        if id < 0 {
            Handle::take(raw)?.close()?;
        }
        Ok(Registered { library, id: checked(id, "H5VLwrap_register")? })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the identifier is open and owned.
        unsafe { (self.library.f.H5Idec_ref)(self.id) };
    }
}

/// A name for C.
pub(super) fn c_text(name: &LinkName) -> VolOutcome<CString> {
    CString::new(name.0.clone()).map_err(|_| Failure::new("a name holds a NUL byte"))
}

/// Group and name of a new link; missing groups are made if the list says so.
fn new_link(
    library: &Library,
    handle: &Handle,
    location: *const LocParams,
    lcpl: Hid,
) -> VolOutcome<(u64, LinkName, bool)> {
    let (parents, utf8) = plists::link_creation(library, lcpl)?;
    // SAFETY: HDF5 passes valid parameters.
    let known = unsafe { &*location };
    if parents && known.kind == BY_NAME {
        // SAFETY: the kind says which member is set.
        let path = name(unsafe { known.data.name }.name)?;
        handle.tree()?.create_parents(handle.object(), &path.0, &pario_container::Hex::default())?;
    }
    let (file, group, name) = location::link(library, handle, location)?;
    if !std::sync::Arc::ptr_eq(&file, &handle.file) {
        return Err(Failure::unsupported("new links in another file"));
    }
    Ok((group, name, utf8))
}

pub(super) unsafe extern "C" fn create(
    args: *mut VolOperation,
    object: *mut c_void,
    location: *const LocParams,
    lcpl: Hid,
    _lapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    // A hard link may come without an object of its own; then the existing object's file is meant.
    let near = if object.is_null() && operation(args) == 0 {
        arguments::<HardLinkArgs>(args).object
    } else {
        object
    };
    guard_status(Handle::slot_of(near), |library| {
        stats::add(ServedCount::Links, 1);
        let handle = Handle::borrow(near)?;
        let (group, name, utf8) = new_link(library, handle, location, lcpl)?;
        let target = match operation(args) {
            0 => {
                let wanted: &mut HardLinkArgs = arguments(args);
                let existing = if wanted.object.is_null() { near } else { wanted.object };
                let place = location::object(library, Handle::borrow(existing)?, &raw const wanted.location)?;
                if !std::sync::Arc::ptr_eq(&place.file, &handle.file) {
                    return Err(Failure::new(
                        "a hard link cannot lead into another file; use an external link",
                    ));
                }
                handle.tree()?.link_hard(NewLink { group, name: &name, utf8 }, place.id)?;
                return Ok(OK);
            }
            1 => {
                let target: &mut *const c_char = arguments(args);
                LinkTarget::Soft(super::values::name(*target)?)
            }
            2 => user_target(arguments(args))?,
            kind => return Err(Failure::unsupported(&format!("links of kind {kind}"))),
        };
        handle.tree()?.link_other(NewLink { group, name: &name, utf8 }, target)?;
        Ok(OK)
    })
}

/// An external link is flags, a file name and a path, both with a final NUL.
fn user_target(args: &UserLinkArgs) -> VolOutcome<LinkTarget> {
    let data = memory(args.buffer, args.size);
    if args.class != LINK_EXTERNAL {
        return Ok(LinkTarget::User { class: args.class, data: pario_container::Hex(data.to_vec()) });
    }
    let mut texts = data.get(1..).unwrap_or_default().split(|byte| *byte == 0);
    match (texts.next(), texts.next()) {
        (Some(file), Some(path)) => {
            Ok(LinkTarget::External { file: LinkName(file.to_vec()), path: LinkName(path.to_vec()) })
        }
        _ => Err(Failure::new("the external link is incomplete")),
    }
}

/// The value of a link as `H5Lget_val` returns it.
fn value(target: &LinkTarget) -> Vec<u8> {
    match target {
        LinkTarget::Hard { .. } => Vec::new(),
        LinkTarget::Soft(path) => [&path.0[..], &[0]].concat(),
        LinkTarget::External { file, path } => [&[0], &file.0[..], &[0], &path.0[..], &[0]].concat(),
        LinkTarget::User { data, .. } => data.0.clone(),
    }
}

/// `H5L_type_t` of a link.
pub(super) fn kind(target: &LinkTarget) -> c_int {
    match target {
        LinkTarget::Hard { .. } => LINK_HARD,
        LinkTarget::Soft(_) => LINK_SOFT,
        LinkTarget::External { .. } => LINK_EXTERNAL,
        LinkTarget::User { class, .. } => *class,
    }
}

fn info(row: &LinkRow, tracked: bool) -> LinkInfo {
    let value = match row.target {
        LinkTarget::Hard { id, .. } => LinkValue { token: Token::of(id) },
        LinkTarget::Soft(_) | LinkTarget::External { .. } | LinkTarget::User { .. } => {
            LinkValue { size: value(&row.target).len() }
        }
    };
    let order = i64::try_from(row.order).unwrap_or(i64::MAX);
    LinkInfo { kind: kind(&row.target), order_valid: tracked, order, cset: c_int::from(row.utf8), value }
}

pub(super) unsafe extern "C" fn copy(
    source: *mut c_void,
    from: *const LocParams,
    target: *mut c_void,
    to: *const LocParams,
    lcpl: Hid,
    _lapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    transfer((source, from), (target, to), lcpl, false)
}

pub(super) unsafe extern "C" fn relocate(
    source: *mut c_void,
    from: *const LocParams,
    target: *mut c_void,
    to: *const LocParams,
    lcpl: Hid,
    _lapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    transfer((source, from), (target, to), lcpl, true)
}

fn transfer(
    (source, from): (*mut c_void, *const LocParams),
    (target, to): (*mut c_void, *const LocParams),
    lcpl: Hid,
    moves: bool,
) -> Herr {
    // One of both may be H5L_SAME_LOC.
    let (source, target) = match (source.is_null(), target.is_null()) {
        (true, _) => (target, target),
        (_, true) => (source, source),
        _ => (source, target),
    };
    guard_status(Handle::slot_of(source), |library| {
        stats::add(ServedCount::Links, 1);
        let (source, target) = (Handle::borrow(source)?, Handle::borrow(target)?);
        if !std::sync::Arc::ptr_eq(&source.file, &target.file) {
            return Err(Failure::new("a link cannot move to another file"));
        }
        let (_, group, name) = location::link(library, source, from)?;
        let row = source.tree()?.link(group, &name)?;
        let (new_group, new_name, utf8) = new_link(library, target, to, lcpl)?;
        let mut tree = source.tree()?;
        if moves {
            tree.move_link((group, &name), (new_group, &new_name))?;
        } else if let LinkTarget::Hard { id, .. } = row.target {
            tree.find(group, &name.0)?;
            tree.link_hard(NewLink { group: new_group, name: &new_name, utf8 }, id)?;
        } else {
            tree.link_other(NewLink { group: new_group, name: &new_name, utf8 }, row.target)?;
        }
        Ok(OK)
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
        stats::add(ServedCount::Links, 1);
        let handle = Handle::borrow(object)?;
        let (place, row) = location::link_row(library, handle, location)?;
        match operation(args) {
            0 => {
                let target: &mut *mut LinkInfo = arguments(args);
                put(*target, info(&row, tracked(library, handle, &place)?));
            }
            1 => {
                let text: &mut TextArgs = arguments(args);
                put_text(text, &row.name.0);
            }
            2 => {
                let wanted: &mut LinkValueArgs = arguments(args);
                let (value, target) = (value(&row.target), memory_mut(wanted.buffer, wanted.size));
                let count = value.len().min(target.len());
                target[..count].copy_from_slice(&value[..count]);
            }
            kind => return Err(Failure::unsupported(&format!("query {kind} of links"))),
        }
        Ok(OK)
    })
}

fn tracked(library: &'static Library, near: &Handle, group: &ObjectPlace) -> VolOutcome<bool> {
    let handle = Handle::of_object(near, &group.file, group.id, LinkName::default())?;
    let tracked = tracks_order(library, &handle, group.id);
    Box::new(handle).close()?;
    tracked
}

pub(super) unsafe extern "C" fn specific(
    object: *mut c_void,
    location: *const LocParams,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Links, 1);
        let handle = Handle::borrow(object)?;
        match operation(args) {
            0 => {
                let (place, row) = location::link_row(library, handle, location)?;
                place.file.tree()?.remove_link(place.id, &row.name)?;
                Ok(OK)
            }
            1 => {
                let exists: &mut *mut bool = arguments(args);
                put(*exists, exists_at(library, handle, location)?);
                Ok(OK)
            }
            2 => {
                let place = location::object(library, handle, location)?;
                iterate(library, handle, &place, arguments(args))
            }
            kind => Err(Failure::unsupported(&format!("operation {kind} of links"))),
        }
    })
}

fn exists_at(library: &Library, handle: &Handle, location: *const LocParams) -> VolOutcome<bool> {
    // SAFETY: HDF5 passes valid parameters.
    let known = unsafe { &*location };
    if known.kind == BY_NAME {
        // SAFETY: the kind says which member is set.
        let path = name(unsafe { known.data.name }.name)?;
        if path.0.iter().all(|byte| *byte == b'/') && !path.0.is_empty() {
            return Ok(true);
        }
    }
    let (file, group, name) = location::link(library, handle, location)?;
    Ok(file.tree()?.link(group, &name).is_ok())
}

/// What an iteration over links still has to visit.
struct LinkWalk<'a> {
    library: &'static Library,
    near: &'a Handle,
    args: &'a LinkIterateArgs,
    seen: HashSet<u64>,
}

fn iterate(
    library: &'static Library,
    handle: &Handle,
    place: &ObjectPlace,
    args: &LinkIterateArgs,
) -> VolOutcome<Herr> {
    let shown =
        Registered::new(library, Handle::of_object(handle, &place.file, place.id, place.path.clone())?)?;
    let mut walk = LinkWalk { library, near: handle, args, seen: HashSet::from([place.id]) };
    let result = walk.group(place, shown.id, b"");
    drop(shown);
    result
}

impl LinkWalk<'_> {
    fn group(&mut self, place: &ObjectPlace, shown: Hid, prefix: &[u8]) -> VolOutcome<Herr> {
        let operator = self.args.operator.ok_or_else(|| Failure::new("a function is missing"))?;
        let tracked = tracked(self.library, self.near, place)?;
        let rows = ordered_links(&mut place.file.tree()?, place.id, self.args.index, self.args.order)?;
        // SAFETY: HDF5 passes a place for the position, or none.
        let start = if self.args.position.is_null() { 0 } else { unsafe { *self.args.position } };
        for (position, row) in rows.iter().enumerate().skip(index(start)) {
            let path = LinkName([prefix, &row.name.0].concat());
            let (text, info) = (c_text(&path)?, info(row, tracked));
            // SAFETY: the program's function gets what HDF5 promises; the tree is not locked.
            let mut result = unsafe { operator(shown, text.as_ptr(), &raw const info, self.args.data) };
            if !self.args.position.is_null() {
                put(self.args.position, length(position + 1));
            }
            if let (OK, true, LinkTarget::Hard { id, .. }) = (result, self.args.recursive, &row.target) {
                result = self.descend((place, shown), (*id, &row.name), &path)?;
            }
            if result != OK {
                return Ok(result);
            }
        }
        Ok(OK)
    }

    fn descend(
        &mut self,
        (place, shown): (&ObjectPlace, Hid),
        (id, name): (u64, &LinkName),
        path: &LinkName,
    ) -> VolOutcome<Herr> {
        // The program's function may have removed it.
        if place.file.tree()?.find(place.id, &name.0).is_err() {
            return Ok(OK);
        }
        let is_group = place.file.tree()?.header(id)?.kind() == Kind::Group;
        if !is_group || !self.seen.insert(id) {
            return Ok(OK);
        }
        let inner = ObjectPlace { file: place.file.clone(), id, path: path.clone() };
        self.group(&inner, shown, &[&path.0[..], b"/"].concat())
    }
}
