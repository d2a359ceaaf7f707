//! Callbacks of files.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use pario_container::{LinkName, ROOT_ID};

use super::abi::{
    AccessibleArgs, ContainerInfo, DEFAULT, EqualArgs, FileNameArgs, Herr, Hid, ID_ATTR, ID_DATASET,
    ID_DATATYPE, ID_FILE, ID_GROUP, OK, ObjectCountArgs, ObjectIdsArgs, VolOperation,
};
use super::failure::{Failure, VolOutcome, guard, guard_status};
use super::handle::{Handle, HandleTarget, file_closed, file_opened, new_opening};
use super::library::Library;
use super::values::{arguments, checked, operation, put, put_text, text};
use super::{compat, plists, registry};
use crate::stats::{self, ServedCount};

/// Flags of `H5Fget_obj_count` and the types of identifiers they stand for.
const COUNTED: [(c_uint, c_int); 5] =
    [(1, ID_FILE), (2, ID_DATASET), (4, ID_GROUP), (8, ID_DATATYPE), (16, ID_ATTR)];

/// `H5F_OBJ_LOCAL`.
const LOCAL: c_uint = 0x20;

fn refuse_driver(library: &Library, fapl: Hid) -> VolOutcome<()> {
    if fapl == DEFAULT {
        return Ok(());
    }
    // SAFETY: the list is open.
    let driver = checked(unsafe { (library.f.H5Pget_driver)(fapl) }, "H5Pget_driver")?;
    let known = [c"H5FD_SEC2_id_g", c"H5FD_SEC2_g"];
    let sec2 = known.iter().find_map(|name| library.variables.get(name).ok());
    if sec2.is_some_and(|sec2| sec2 != driver) {
        return Err(Failure::unsupported("file drivers other than the default (core, family, stdio, ...)"));
    }
    Ok(())
}

fn handle_of(slot: usize, file: std::sync::Arc<registry::OpenTree>, flags: c_uint, fapl: Hid) -> *mut c_void {
    stats::add(ServedCount::Files, 1);
    // SAFETY: the list is open; the copy is closed with the handle.
    let fapl =
        // SAFETY: the identifiers are open; places and buffers outlive the call.
        if fapl == DEFAULT { 0 } else { unsafe { (super::library::of_slot(slot).f.H5Pcopy)(fapl) }.max(0) };
    let opening = new_opening();
    let raw =
        Handle { slot, file, target: HandleTarget::File { fapl }, path: LinkName::from("/"), flags, opening }
            .into_raw();
    file_opened(opening, raw);
    raw
}

pub(super) unsafe extern "C" fn create<const S: usize>(
    name: *const c_char,
    flags: c_uint,
    fcpl: Hid,
    fapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(S, std::ptr::null_mut(), |library| {
        compat::install();
        refuse_driver(library, fapl)?;
        let mut block = 0;
        // SAFETY: the list is open; the place outlives the call.
        checked(unsafe { (library.f.H5Pget_userblock)(fcpl, &raw mut block) }, "H5Pget_userblock")?;
        if block != 0 {
            return Err(Failure::unsupported("user blocks"));
        }
        let properties = plists::encode(library, fcpl)?;
        Ok(handle_of(
            S,
            registry::create(&text(name)?, flags, properties)?,
            flags | super::abi::ACC_RDWR,
            fapl,
        ))
    })
}

pub(super) unsafe extern "C" fn open<const S: usize>(
    name: *const c_char,
    flags: c_uint,
    fapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(S, std::ptr::null_mut(), |library| {
        compat::install();
        refuse_driver(library, fapl)?;
        Ok(handle_of(S, registry::open(&text(name)?, flags)?, flags, fapl))
    })
}

pub(super) unsafe extern "C" fn get(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        let handle = Handle::borrow(object)?;
        match operation(args) {
            0 => {
                let target: &mut *mut ContainerInfo = arguments(args);
                put(*target, ContainerInfo { version: 1, features: 0, token_size: 8, blob_size: 16 });
            }
            1 => {
                let fapl: &mut Hid = arguments(args);
                *fapl = match list_of(handle) {
                    DEFAULT => file_access(library)?,
                    // SAFETY: the list belongs to the handle and is open.
                    list => checked(unsafe { (library.f.H5Pcopy)(list) }, "H5Pcopy")?,
                };
            }
            2 => {
                let properties = match &handle.tree()?.header(ROOT_ID)?.body {
                    pario_container::ObjectBody::Group { properties } => properties.clone(),
                    pario_container::ObjectBody::Dataset(_) | pario_container::ObjectBody::Type { .. } => {
                        return Err(Failure::new("the root is no group"));
                    }
                };
                let fcpl: &mut Hid = arguments(args);
                *fcpl = plists::decode(library, &properties, c"H5P_CLS_FILE_CREATE_ID_g")?.release();
            }
            3 => {
                let number: &mut *mut c_ulong = arguments(args);
                put(*number, handle.file.file_number());
            }
            4 => {
                let intent: &mut *mut c_uint = arguments(args);
                let swmr = handle.file.swmr.load(std::sync::atomic::Ordering::Relaxed);
                put(
                    *intent,
                    handle.flags & (super::abi::ACC_RDWR | 0x60)
                        | if swmr { super::abi::ACC_SWMR_WRITE } else { 0 },
                );
            }
            5 => {
                let name: &mut FileNameArgs = arguments(args);
                put_text(&name.text, handle.file.name.as_bytes());
            }
            6 => {
                let count: &mut ObjectCountArgs = arguments(args);
                put(count.count, open_ids(library, handle, count.types)?.len());
            }
            7 => {
                let list: &mut ObjectIdsArgs = arguments(args);
                let ids = open_ids(library, handle, list.types)?;
                for (position, id) in ids.iter().take(list.most).enumerate() {
                    // SAFETY: the list has room for `most` identifiers.
                    unsafe { list.ids.add(position).write(*id) };
                }
                put(list.count, ids.len().min(list.most));
            }
            kind => return Err(Failure::unsupported(&format!("query {kind} of files"))),
        }
        Ok(OK)
    })
}

/// The access list by which a file was opened.
fn list_of(handle: &Handle) -> Hid {
    match handle.target {
        HandleTarget::File { fapl } => fapl,
        HandleTarget::Object(_) | HandleTarget::Attribute { .. } => DEFAULT,
    }
}

/// An access list that leads to Pario again.
fn file_access(library: &'static Library) -> VolOutcome<Hid> {
    let class = library.variables.get(c"H5P_CLS_FILE_ACCESS_ID_g")?;
    // SAFETY: the class is HDF5's own.
    let fapl = checked(unsafe { (library.f.H5Pcreate)(class) }, "H5Pcreate")?;
    // SAFETY: the name ends in NUL.
    let connector = unsafe { (library.f.H5VLget_connector_id_by_name)(super::types::NAME.as_ptr()) };
    checked(connector, "H5VLget_connector_id_by_name")?;
    // SAFETY: list and connector are open; the connector has no settings of its own.
    let done = unsafe { (library.f.H5Pset_vol)(fapl, connector, std::ptr::null()) };
    // SAFETY: it was opened above.
    unsafe { (library.f.H5VLclose)(connector) };
    checked(done, "H5Pset_vol")?;
    Ok(fapl)
}

struct Search<'a> {
    library: &'static Library,
    handle: &'a Handle,
    kind: c_int,
    /// Only objects reached through this opening of the file.
    local: bool,
    found: Vec<Hid>,
}

unsafe extern "C" fn collect(id: Hid, data: *mut c_void) -> Herr {
    // SAFETY: `open_ids` passes a search that outlives the iteration.
    let search = unsafe { &mut *data.cast::<Search<'_>>() };
    let f = &search.library.f;
    // SAFETY: the identifier is open; a type that was never committed has no object.
    if search.kind == ID_DATATYPE && unsafe { (f.H5Tcommitted)(id) } <= 0 {
        return 0;
    }
    // SAFETY: the identifier is open.
    let object = unsafe { (f.H5VLobject)(id) };
    let ours = Handle::borrow(object).is_ok_and(|other| {
        std::sync::Arc::ptr_eq(&other.file, &search.handle.file)
            && (!search.local || other.opening == search.handle.opening)
    });
    if ours {
        search.found.push(id);
    }
    0
}

fn open_ids(library: &'static Library, handle: &Handle, types: c_uint) -> VolOutcome<Vec<Hid>> {
    let mut search = Search { library, handle, kind: 0, local: types & LOCAL != 0, found: Vec::new() };
    for (flag, kind) in COUNTED {
        if types & flag != 0 {
            search.kind = kind;
            let data = (&raw mut search).cast::<c_void>();
            // SAFETY: the callback takes a search, which outlives the call.
            checked(unsafe { (library.f.H5Iiterate)(kind, collect, data) }, "H5Iiterate")?;
        }
    }
    Ok(search.found)
}

pub(super) unsafe extern "C" fn specific<const S: usize>(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(S, |_| {
        match operation(args) {
            0 => Handle::borrow(object)?.tree()?.flush()?,
            1 => {
                let handle = Handle::borrow(object)?;
                let target: &mut *mut *mut c_void = arguments(args);
                put(*target, handle_of(handle.slot, handle.file.clone(), handle.flags, list_of(handle)));
            }
            2 => {
                compat::install();
                let wanted: &mut AccessibleArgs = arguments(args);
                put(wanted.accessible, chosen() && registry::accessible(&text(wanted.name)?)?);
            }
            3 => {
                let wanted: &mut AccessibleArgs = arguments(args);
                registry::delete(&text(wanted.name)?)?;
            }
            4 => {
                let wanted: &mut EqualArgs = arguments(args);
                let handle = Handle::borrow(object)?;
                let same = Handle::borrow(wanted.other);
                put(wanted.same, same.is_ok_and(|other| std::sync::Arc::ptr_eq(&other.file, &handle.file)));
            }
            kind => return Err(Failure::unsupported(&format!("operation {kind} of files"))),
        }
        Ok(OK)
    })
}

/// Whether Pario was chosen by the environment. HDF5 2.0 to 2.2 crash if a connector that was only found says yes.
fn chosen() -> bool {
    std::env::var("HDF5_VOL_CONNECTOR").is_ok_and(|value| value.split_whitespace().next() == Some("pario"))
}

pub(super) unsafe extern "C" fn close(object: *mut c_void, _dxpl: Hid, _req: *mut *mut c_void) -> Herr {
    guard_status(Handle::slot_of(object), |_| {
        // Chunks and values are written at the file's close even if objects stay open.
        let handle = Handle::take(object)?;
        file_closed(object);
        let flushed = handle.tree()?.flush();
        handle.close()?;
        flushed?;
        Ok(OK)
    })
}
