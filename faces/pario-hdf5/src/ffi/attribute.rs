//! Callbacks of attributes.

use std::ffi::{c_char, c_int, c_void};

use pario_container::{Attribute, Header, Hex, LinkName};

use super::abi::{
    AttrIndexArgs, AttrInfo, AttrInfoArgs, AttrIterateArgs, AttrNameArgs, BY_INDEX, BY_SELF, Herr, Hid,
    LocParams, OK, Pair, VolOperation,
};
use super::failure::{Failure, VolOutcome, guard, guard_status};
use super::handle::{Handle, HandleTarget};
use super::library::Library;
use super::location::{self, ordered_attributes};
use super::transfer::conversion;
use super::values::{arguments, checked, index, length, memory, memory_mut, name, operation, put, put_text};
use super::{link, plists, space, types};
use crate::stats::{self, ServedCount};

fn handle_of(near: &Handle, place: &location::ObjectPlace, attribute: LinkName) -> VolOutcome<Handle> {
    place.file.tree()?.hold(place.id)?;
    Ok(Handle {
        slot: near.slot,
        file: place.file.clone(),
        target: HandleTarget::Attribute { owner: place.id, name: attribute },
        path: place.path.clone(),
        flags: near.flags,
        opening: near.opening,
    })
}

pub(super) unsafe extern "C" fn create(
    object: *mut c_void,
    location: *const LocParams,
    attribute: *const c_char,
    type_id: Hid,
    space_id: Hid,
    acpl: Hid,
    _aapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Attributes, 1);
        let handle = Handle::borrow(object)?;
        let place = location::object(library, handle, location)?;
        let (element, space) = (types::record(library, type_id, handle)?, space::shape(library, space_id)?);
        let mut cset: c_int = 0;
        // SAFETY: the list is open; the place outlives the call.
        checked(unsafe { (library.f.H5Pget_char_encoding)(acpl, &raw mut cset) }, "H5Pget_char_encoding")?;
        let value = Hex(vec![0; index(space.elements() * element.size)]);
        let name = name(attribute)?;
        let new = Attribute { name: name.clone(), utf8: cset == 1, order: 0, element, space, value };
        place.file.tree()?.create_attribute(place.id, new)?;
        Ok(handle_of(handle, &place, name)?.into_raw())
    })
}

pub(super) unsafe extern "C" fn open(
    object: *mut c_void,
    location: *const LocParams,
    attribute: *const c_char,
    _aapl: Hid,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> *mut c_void {
    guard(Handle::slot_of(object), std::ptr::null_mut(), |library| {
        stats::add(ServedCount::Attributes, 1);
        let handle = Handle::borrow(object)?;
        let (place, wanted) = attribute_at(library, handle, location, attribute)?;
        place.file.tree()?.attribute(place.id, &wanted)?;
        Ok(handle_of(handle, &place, wanted)?.into_raw())
    })
}

/// The object and the name of an attribute that is named, or counted by the location.
fn attribute_at(
    library: &Library,
    handle: &Handle,
    location: *const LocParams,
    attribute: *const c_char,
) -> VolOutcome<(location::ObjectPlace, LinkName)> {
    // SAFETY: HDF5 passes valid parameters.
    let known = unsafe { &*location };
    if known.kind != BY_INDEX {
        return Ok((location::object(library, handle, location)?, name(attribute)?));
    }
    // SAFETY: the kind says which member is set.
    let by = unsafe { known.data.index };
    let place = location::find(library, handle, &super::values::bytes(by.name)?, by.lapl)?;
    let names = ordered_attributes(place.file.tree()?.header(place.id)?, by.index, by.order);
    let found = names.into_iter().nth(index(by.n));
    Ok((place, found.ok_or_else(|| Failure::new(format!("no attribute number {}", by.n)))?))
}

fn attribute_of(handle: &Handle) -> VolOutcome<Attribute> {
    let (owner, name) = handle.attribute()?;
    Ok(handle.tree()?.attribute(owner, name)?.clone())
}

pub(super) unsafe extern "C" fn read(
    object: *mut c_void,
    memory_type: Hid,
    buffer: *mut c_void,
    dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Attributes, 1);
        let handle = Handle::borrow(object)?;
        let attribute = attribute_of(handle)?;
        let (count, size) = (index(attribute.space.elements()), types::size(library, memory_type));
        let program = memory_mut(buffer, count * size);
        let mut value = attribute.value.0;
        match conversion(library, memory_type, &attribute.element, handle)? {
            None => program.copy_from_slice(&value),
            Some(types) => {
                value.resize(count * size.max(index(attribute.element.size)), 0);
                let mut background = vec![0; value.len()];
                background[..program.len()].copy_from_slice(program);
                let buffers = (&mut value[..], Some(&mut background[..]));
                super::types::convert(library, (types.stored.id, types.memory.id, dxpl), count, buffers)?;
                program.copy_from_slice(&value[..program.len()]);
            }
        }
        Ok(OK)
    })
}

pub(super) unsafe extern "C" fn write(
    object: *mut c_void,
    memory_type: Hid,
    buffer: *const c_void,
    dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Attributes, 1);
        let handle = Handle::borrow(object)?;
        let (owner, name) = handle.attribute()?;
        let attribute = attribute_of(handle)?;
        let (count, size) = (index(attribute.space.elements()), types::size(library, memory_type));
        let mut value = memory(buffer, count * size).to_vec();
        if let Some(types) = conversion(library, memory_type, &attribute.element, handle)? {
            let stored_size = index(attribute.element.size);
            value.resize(count * size.max(stored_size), 0);
            let mut background = attribute.value.0.clone();
            background.resize(value.len(), 0);
            let buffers = (&mut value[..], Some(&mut background[..]));
            super::types::convert(library, (types.memory.id, types.stored.id, dxpl), count, buffers)?;
            value.truncate(count * stored_size);
        }
        let mut tree = handle.tree()?;
        tree.flush_heap(owner)?;
        tree.write_attribute(owner, name, value)?;
        Ok(OK)
    })
}

fn info(attribute: &Attribute) -> AttrInfo {
    AttrInfo {
        order_valid: true,
        order: u32::try_from(attribute.order).unwrap_or(u32::MAX),
        cset: c_int::from(attribute.utf8),
        size: length(attribute.value.0.len()),
    }
}

pub(super) unsafe extern "C" fn get(
    object: *mut c_void,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Attributes, 1);
        let handle = Handle::borrow(object)?;
        let target: &mut Hid = arguments(args);
        match operation(args) {
            0 => {
                *target =
                    plists::decode(library, &Hex::default(), c"H5P_CLS_ATTRIBUTE_CREATE_ID_g")?.release()
            }
            1 => {
                let wanted: &mut AttrInfoArgs = arguments(args);
                put(wanted.info, info(&named(library, handle, &raw const wanted.location, wanted.name)?));
            }
            2 => {
                let wanted: &mut AttrNameArgs = arguments(args);
                let attribute = named(library, handle, &raw const wanted.location, std::ptr::null())?;
                put_text(&wanted.text, &attribute.name.0);
            }
            3 => *target = space::create(library, &attribute_of(handle)?.space)?.release(),
            4 => {
                let size: &mut *mut u64 = arguments(args);
                put(*size, length(attribute_of(handle)?.value.0.len()));
            }
            5 => *target = types::decode(library, &attribute_of(handle)?.element)?.release(),
            kind => return Err(Failure::unsupported(&format!("query {kind} of attributes"))),
        }
        Ok(OK)
    })
}

/// The attribute itself, or the one that a location names.
fn named(
    library: &Library,
    handle: &Handle,
    location: *const LocParams,
    name: *const c_char,
) -> VolOutcome<Attribute> {
    // SAFETY: HDF5 passes valid parameters.
    let by_self = unsafe { (*location).kind } == BY_SELF;
    if by_self && name.is_null() {
        return attribute_of(handle);
    }
    let (place, name) = attribute_at(library, handle, location, name)?;
    Ok(place.file.tree()?.attribute(place.id, &name)?.clone())
}

pub(super) unsafe extern "C" fn specific(
    object: *mut c_void,
    location: *const LocParams,
    args: *mut VolOperation,
    _dxpl: Hid,
    _req: *mut *mut c_void,
) -> Herr {
    guard_status(Handle::slot_of(object), |library| {
        stats::add(ServedCount::Attributes, 1);
        let handle = Handle::borrow(object)?;
        let place = location::object(library, handle, location)?;
        match operation(args) {
            0 => {
                let wanted: &mut *const c_char = arguments(args);
                place.file.tree()?.remove_attribute(place.id, &name(*wanted)?)?;
            }
            1 => {
                let by: &mut AttrIndexArgs = arguments(args);
                let names = ordered_attributes(place.file.tree()?.header(place.id)?, by.index, by.order);
                let found = names
                    .get(index(by.n))
                    .ok_or_else(|| Failure::new(format!("no attribute number {}", by.n)))?;
                place.file.tree()?.remove_attribute(place.id, found)?;
            }
            2 => {
                let Pair(wanted, exists): &mut Pair<*const c_char, *mut bool> = arguments(args);
                put(*exists, place.file.tree()?.header(place.id)?.attribute(&name(*wanted)?).is_some());
            }
            3 => return iterate(library, handle, &place, arguments(args)),
            4 => {
                let Pair(old, new): &mut Pair<*const c_char, *const c_char> = arguments(args);
                place.file.tree()?.rename_attribute(place.id, &name(*old)?, &name(*new)?)?;
            }
            kind => return Err(Failure::unsupported(&format!("operation {kind} of attributes"))),
        }
        Ok(OK)
    })
}

fn iterate(
    library: &'static Library,
    handle: &Handle,
    place: &location::ObjectPlace,
    args: &AttrIterateArgs,
) -> VolOutcome<Herr> {
    let operator = args.operator.ok_or_else(|| Failure::new("a function is missing"))?;
    let names = {
        let tree = place.file.tree()?;
        let header: &Header = tree.header(place.id)?;
        ordered_attributes(header, args.index, args.order)
    };
    // SAFETY: HDF5 passes a place for the position, or none.
    let start = if args.position.is_null() { 0 } else { unsafe { *args.position } };
    let shown = link::Registered::new(
        library,
        Handle::of_object(handle, &place.file, place.id, place.path.clone())?,
    )?;
    let mut result = OK;
    for (position, name) in names.iter().enumerate().skip(index(start)) {
        // A callback may have removed it.
        let Some(attribute) = place.file.tree()?.header(place.id)?.attribute(name).cloned() else { continue };
        let text = link::c_text(name)?;
        let info = info(&attribute);
        // SAFETY: the program's function gets what HDF5 promises; the tree is not locked.
        result = unsafe { operator(shown.id, text.as_ptr(), &raw const info, args.data) };
        if !args.position.is_null() {
            put(args.position, length(position + 1));
        }
        if result != OK {
            break;
        }
    }
    drop(shown);
    Ok(result)
}
